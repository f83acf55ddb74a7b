//! The words and the bounds that both the checks of requests and the API's description name.

/// How much reasoning a model can be asked for.
pub(crate) const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// How much effort a model can be asked for in the Messages API.
pub(crate) const MESSAGE_EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// How much reasoning a model can be asked for in Ollama's API.
pub(crate) const THINK_LEVELS: [&str; 4] = ["low", "medium", "high", "max"];

/// How urgent a request can be, in OpenAI's words and in Anthropic's.
pub(crate) const SERVICE_TIERS: [&str; 6] =
    ["auto", "default", "flex", "scale", "priority", "standard_only"];

/// Most words that an answer may be kept from.
pub(crate) const MAX_BAD_WORDS: usize = 256;
/// Longest word that an answer may be kept from.
pub(crate) const MAX_BAD_WORD_BYTES: usize = 256;
/// Most tokens whose logprobs may be asked for.
pub(crate) const MAX_LOGPROB_TOKENS: usize = 128;
/// Most choices of a prompt.
pub(crate) const MAX_CHOICES: i64 = 128;
/// Longest time that a request may be given, which is a day.
pub(crate) const MAX_DEADLINE_MS: i64 = 86_400_000;
/// Most characters of a cache salt.
pub(crate) const MAX_CACHE_SALT_CHARS: usize = 128;
/// Most texts that may end an answer.
pub(crate) const MAX_STOP_STRINGS: usize = 16;
/// Most sequence breakers of the DRY penalty.
pub(crate) const MAX_BREAKERS: usize = 64;
/// Longest sequence breaker of the DRY penalty.
pub(crate) const MAX_BREAKER_BYTES: usize = 40;
/// Bound of the exponent of beam scores, up or down: beyond it lengths to its power overflow.
pub(crate) const MAX_LENGTH_PENALTY: f64 = 10.0;
/// Largest template that a request may bring.
pub(crate) const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// Most prompts of one request for completions.
pub(crate) const MAX_PROMPTS: usize = 1024;
/// Most sequences of one request for completions: of each prompt as many as it has choices or beams.
pub(crate) const MAX_SEQUENCES: usize = 2048;
/// Most texts of one request for embeddings.
pub(crate) const MAX_INPUTS: usize = 2048;

/// Most questions of one request for decisions.
pub(crate) const MAX_QUESTIONS: usize = 400;
/// Most answers that a question can have to choose from.
pub(crate) const MAX_DECISION_CHOICES: usize = 255;
/// Most levels of a score.
pub(crate) const MAX_DECISION_LEVELS: usize = 10;
/// Most bytes of JSON that a part of a question or its input holds.
pub(crate) const MAX_DECISION_JSON_BYTES: usize = 256 << 10;

/// Most lines of a batch.
pub(crate) const MAX_BATCH_LINES: usize = 50_000;
/// Most items on a page of a response's input.
pub(crate) const MAX_PAGE_ITEMS: usize = 100;
/// Most pairs of a response's metadata.
pub(crate) const MAX_METADATA_PAIRS: usize = 16;
/// Longest key of a response's metadata.
pub(crate) const MAX_METADATA_KEY_CHARS: usize = 64;
/// Longest value of a response's metadata.
pub(crate) const MAX_METADATA_VALUE_CHARS: usize = 512;
/// What asks a response for the logprobs of its text.
pub(crate) const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";
/// What asks a response for its reasoning in a form that a client can send back in place of it.
pub(crate) const INCLUDE_REASONING: &str = "reasoning.encrypted_content";
/// What a response can be asked to include. All but the first two are results of tools that there are
/// none of.
pub(crate) const INCLUDABLES: [&str; 8] = [
    INCLUDE_LOGPROBS,
    INCLUDE_REASONING,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
];

/// What the file of an `input_audio` part can be said to be. What it is, its bytes say.
pub(crate) const AUDIO_FORMATS: [&str; 11] =
    ["wav", "mp3", "flac", "ogg", "opus", "webm", "m4a", "mp4", "aac", "aiff", "mpeg"];

/// How the types of tools begin that a provider runs, or that have a shape of their own. They are left
/// out: nobody runs them here.
pub(crate) const HOSTED_TOOLS: [&str; 10] = [
    "apply_patch",
    "code_interpreter",
    "computer",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
];
