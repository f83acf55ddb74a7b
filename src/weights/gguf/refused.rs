//! Architectures that the format has and this program doesn't read, and why.

/// What a file of such an architecture is, by `general.architecture`.
const REASONS: &[(&str, &str)] = &[
    ("arctic", "a dense part beside experts in each layer"),
    ("arwkv7", LINEAR_RECURRENCE),
    ("chameleon", "norms of heads with scales and offsets of their own"),
    ("clip", "this is a vision projector, not a language model"),
    ("codeshell", NO_DECODER),
    ("cogvlm", "layers with other weights for pictures"),
    ("dbrx", NO_DECODER),
    ("deepseek2-ocr", NO_DECODER),
    ("deepseek4", "compressed caches and hyper-connections"),
    ("dots3note", "layers with a window and sizes of their own, which its folder alone is read of"),
    ("dream", DIFFUSION),
    ("gemma4-assistant", "a drafter that reads its model's cache"),
    ("glm5-next", "pools of tokens that an indexer chooses, which its folder alone is read of"),
    ("gptj", "no converter writes it"),
    ("graniteswitch", "adapters that its tokens switch"),
    ("grok", "bounds of scores and norms that no other model has"),
    ("grovemoe", "adjoint experts of groups"),
    ("hrm_text", "recurrent reasoning over its own hidden states"),
    ("jais", "biases by distance beside gated feed-forward parts"),
    ("kimi-k3", "attention to the outputs of earlier layers"),
    ("llada", DIFFUSION),
    ("llada-moe", DIFFUSION),
    ("maincoder", "norms of heads behind a rotation of neighbouring pairs"),
    ("maple", NO_DECODER),
    ("muse-glimmer", NO_DECODER),
    ("neo-bert", NO_ENCODER),
    ("nomic-bert-moe", "an encoder with experts, which its folder alone is read of"),
    ("openelm", "attention and feed-forward parts of other sizes in each layer"),
    ("plamo", NO_DECODER),
    ("plamo2", NO_DECODER),
    ("plamo3", NO_DECODER),
    ("plm", "latent attention beside feed-forward parts without gates"),
    ("pockettts", SPEECH),
    ("qwen3tts", SPEECH),
    ("qwen4exp", NO_DECODER),
    ("refact", "biases by distance beside gated feed-forward parts"),
    ("rnd1", DIFFUSION),
    ("rwkv6", LINEAR_RECURRENCE),
    ("rwkv6qwen2", LINEAR_RECURRENCE),
    ("rwkv7", LINEAR_RECURRENCE),
    ("smallthinker", "routers that see a layer's input"),
    ("spark2_5", NO_DECODER),
    ("t5", "an encoder and a decoder"),
    ("t5encoder", "the encoder of T5, which its folder alone is read of"),
    ("talkie", "gains of heads and a path around all layers"),
    ("wavtokenizer-dec", SPEECH),
];

const NO_DECODER: &str = "a decoder that is not known here";
const NO_ENCODER: &str = "an encoder that is not known here";
const DIFFUSION: &str = "texts that are made by diffusion, not token by token";
const LINEAR_RECURRENCE: &str = "a gated linear recurrence";
const SPEECH: &str = "a model that speaks";

/// Why files of this architecture are not read, if that is known.
pub(super) fn reason(gguf: &str) -> Option<&'static str> {
    REASONS.iter().find(|(known, _)| *known == gguf).map(|(_, reason)| *reason)
}
