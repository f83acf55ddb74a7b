//! # Glossary
//!
//! One word for each thing, the field's own where it has one. The last column has words that are not
//! used for it; `tests/recipes.rs` looks for them in names.
//!
//! | Word | What it is | Not |
//! |---|---|---|
//! | activation | an elementwise function between two linear layers | |
//! | adapter | a LoRA that is added to the served model, named as a model by requests | |
//! | architecture | what `config.json` calls a model's network; a file in `models::architectures` | |
//! | backend | which form of a kernel computes: CPU, CUDA or plain candle operations | |
//! | batch | the rows that one forward pass computes, and what is wanted of them | |
//! | block | 32 slots of the KV cache, the unit that sequences are given and share | |
//! | block table | a sequence's blocks in order of position | `page_table` |
//! | chunk | a part of a prompt that one step computes | |
//! | completed choice | one answer of a request, all of it there | `folded` |
//! | constraint | what a grammar allows next in one sequence | |
//! | context length | tokens of a sequence that have slots in the KV cache | |
//! | CUDA graph | launches that are captured once and started with one call | `recorded_step` |
//! | decode | from token ids to text; also a step of one token for a sequence | |
//! | delta | what a chunk of a stream adds to an answer | |
//! | draft | tokens that are proposed and verified in one step | |
//! | elementwise | of one number at a time, whatever its place | |
//! | engine | the thread that owns scheduler, runner and samplers, and its handle | |
//! | envelope | id, model and time of a response, around its choices | |
//! | grammar | a compiled regular expression, schema or context-free grammar | |
//! | host, device | the machine's own memory and processor; the GPU | |
//! | KV cache | keys and values of all tokens that sequences may look back at | |
//! | KV format | the element type of the KV cache, and its layout | |
//! | lease | how long a server holds a line that it claimed, unless a heartbeat prolongs it | |
//! | line | a stored request that waits for a server: one of a batch, or a response in the background | |
//! | load | bringing blocks back from a slower tier for a sequence that waits | |
//! | logits | a number for each token of the vocabulary, before softmax | |
//! | logprob | the logarithm of a token's probability | |
//! | media | pictures and sounds, in a prompt or apart from it | |
//! | microbatch | a part of a step that goes through the stages while others are in later ones | |
//! | mixer | what mixes the tokens of a sequence in a layer: attention or a recurrence | |
//! | owner | whose stored objects a request may see: those of its API key | |
//! | packed matrix | weights in the order in which a CPU's kernels read them | |
//! | plan | what the scheduler decided for a step | |
//! | preemption | taking a running sequence's blocks away, to compute them again later | |
//! | prefill | computing the tokens of a prompt | |
//! | prefix cache | full blocks that are found again by the hash of all tokens up to them | |
//! | protocol | one of the shapes of requests and answers: OpenAI's, Anthropic's, Ollama's | |
//! | rank | one of the processes that compute a model together | |
//! | reasoning | what a model says before its answer, told apart from it | `thoughts` |
//! | request | what a client sends; it makes one sequence or several | |
//! | row | a token of a step in tensors of activations | |
//! | sampling parameters | what a request says of how its tokens are drawn | |
//! | sequence | tokens that are continued together: a prompt and one answer to it | |
//! | sink | a score that every query has besides those of positions | |
//! | slot | the place of one token in the KV cache, or of one sequence's states | |
//! | snapshot | a copy of a sequence's states, from which others with the same tokens resume | |
//! | speculation | verifying drafts, so that a step gives more than one token | |
//! | SSE event | a piece of a stream as it is sent | |
//! | stage | a rank that computes some of the layers, after the stage before | |
//! | state | what a recurrent layer keeps of a sequence, of a fixed size | |
//! | step | what the engine computes at once: some tokens of some sequences | |
//! | tier | a place for blocks and snapshots beside the KV cache: a folder on disk | |
//! | usage and timings | what a response says of its tokens and of the time they took | |
//! | weight kind | the element type of a matrix in memory | |
