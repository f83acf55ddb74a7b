//! One file per architecture: the classes of `config.json` it reads, and the decoder each of them
//! stands for. A new architecture is a file, and two lines here.

pub(super) use jina_embeddings_v5::{is_of_class as pools_itself, reads_whole_texts};

use super::common::{Architecture, EncoderArchitecture};

mod afmoe;
mod apertus;
mod arcee;
mod aria;
mod audio_language;
mod bailing;
mod bamba;
mod bart;
mod beam;
mod bert_decoder;
mod biogpt;
mod bitnet;
mod bloom;
mod chatglm;
mod codegen;
mod cohere;
mod ctrl;
mod cwm;
mod dbrx;
mod deci;
mod deepseek;
mod deepseek_moe;
mod diffllama;
mod doge;
mod dory;
mod dots3;
mod ernie4_5;
mod euro_bert;
mod exaone;
mod falcon;
mod falcon_h1;
mod flint;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod glm5_next;
mod glm_moe;
mod gpt2;
mod gpt_big_code;
mod gpt_neo;
mod gpt_neox;
mod gpt_oss;
mod gptj;
mod granite;
mod granite_hybrid;
mod granite_moe;
mod helium;
mod hrm_text;
mod hunyuan;
mod hunyuan_4;
mod internlm;
mod jais2;
mod jamba;
mod jetmoe;
mod jina_bert;
mod jina_embeddings_v5;
mod kimi_linear;
mod kolibri;
mod laguna;
mod lara_mini;
mod lfm2;
mod lfm3;
mod llama;
mod llama4;
mod llama_bidirectional;
mod longcat_flash;
mod mamba;
mod mamba2;
mod megatron_bert;
mod mimo_v2;
mod minicpm;
mod minicpm3;
mod minicpmv;
mod minimax;
mod minimax_m2;
mod minimax_m3;
mod mistral;
mod mistral4;
mod mixtral;
mod mllama;
mod modern_bert;
mod modern_bert_decoder;
mod mpt;
mod muse_glimmer;
mod nanochat;
mod nemotron;
mod nemotron_h;
mod olmo;
mod olmoe;
mod openai_gpt;
mod opt;
mod orion;
mod persimmon;
mod phi;
mod phi3;
mod phimoe;
mod qwen;
mod qwen2;
mod qwen3;
mod qwen3_next;
mod qwen_moe;
mod qwen_vl;
mod recurrent_gemma;
mod roformer;
mod rope_bert;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod step;
mod vision_language;
mod xglm;
mod xlm_roberta_xl;
mod xlstm;
mod zamba;
mod zamba2;
mod zaya;

/// The classes of every file; refusals and the guide list them in this order.
pub(super) const ALL: &[&[Architecture]] = &[
    afmoe::CLASSES,
    apertus::CLASSES,
    arcee::CLASSES,
    aria::CLASSES,
    audio_language::CLASSES,
    bailing::CLASSES,
    bamba::CLASSES,
    bart::CLASSES,
    beam::CLASSES,
    bert_decoder::CLASSES,
    biogpt::CLASSES,
    bitnet::CLASSES,
    bloom::CLASSES,
    chatglm::CLASSES,
    codegen::CLASSES,
    cohere::CLASSES,
    ctrl::CLASSES,
    cwm::CLASSES,
    dbrx::CLASSES,
    deci::CLASSES,
    deepseek::CLASSES,
    deepseek_moe::CLASSES,
    diffllama::CLASSES,
    doge::CLASSES,
    dory::CLASSES,
    dots3::CLASSES,
    ernie4_5::CLASSES,
    exaone::CLASSES,
    falcon::CLASSES,
    falcon_h1::CLASSES,
    flint::CLASSES,
    gemma::CLASSES,
    gemma3n::CLASSES,
    gemma4::CLASSES,
    glm::CLASSES,
    glm5_next::CLASSES,
    glm_moe::CLASSES,
    gpt2::CLASSES,
    gpt_big_code::CLASSES,
    gpt_neo::CLASSES,
    gpt_neox::CLASSES,
    gpt_oss::CLASSES,
    gptj::CLASSES,
    granite::CLASSES,
    granite_hybrid::CLASSES,
    granite_moe::CLASSES,
    helium::CLASSES,
    hrm_text::CLASSES,
    hunyuan::CLASSES,
    hunyuan_4::CLASSES,
    internlm::CLASSES,
    jais2::CLASSES,
    jamba::CLASSES,
    jetmoe::CLASSES,
    kimi_linear::CLASSES,
    kolibri::CLASSES,
    laguna::CLASSES,
    lara_mini::CLASSES,
    lfm2::CLASSES,
    lfm3::CLASSES,
    llama::CLASSES,
    llama4::CLASSES,
    longcat_flash::CLASSES,
    mamba::CLASSES,
    mamba2::CLASSES,
    mimo_v2::CLASSES,
    minicpm::CLASSES,
    minicpm3::CLASSES,
    minicpmv::CLASSES,
    minimax::CLASSES,
    minimax_m2::CLASSES,
    minimax_m3::CLASSES,
    mistral::CLASSES,
    mistral4::CLASSES,
    mixtral::CLASSES,
    mllama::CLASSES,
    modern_bert_decoder::CLASSES,
    mpt::CLASSES,
    muse_glimmer::CLASSES,
    nanochat::CLASSES,
    nemotron::CLASSES,
    nemotron_h::CLASSES,
    olmo::CLASSES,
    olmoe::CLASSES,
    openai_gpt::CLASSES,
    opt::CLASSES,
    orion::CLASSES,
    persimmon::CLASSES,
    phi::CLASSES,
    phi3::CLASSES,
    phimoe::CLASSES,
    qwen::CLASSES,
    qwen2::CLASSES,
    qwen3::CLASSES,
    qwen3_next::CLASSES,
    qwen_moe::CLASSES,
    qwen_vl::CLASSES,
    recurrent_gemma::CLASSES,
    seed_oss::CLASSES,
    smollm3::CLASSES,
    stablelm::CLASSES,
    starcoder2::CLASSES,
    step::CLASSES,
    vision_language::CLASSES,
    xglm::CLASSES,
    xlstm::CLASSES,
    zamba::CLASSES,
    zamba2::CLASSES,
    zaya::CLASSES,
];

/// Classes that only embed: they have no head, and no other class has their layers under another name.
pub(super) const EMBEDDERS: &[&[Architecture]] = &[jina_embeddings_v5::CLASSES];

/// The families of encoders that are computed as decoders.
pub(super) const ENCODERS: &[&[EncoderArchitecture]] = &[
    modern_bert::FAMILIES,
    rope_bert::FAMILIES,
    euro_bert::FAMILIES,
    llama_bidirectional::FAMILIES,
    jina_bert::FAMILIES,
    megatron_bert::FAMILIES,
    roformer::FAMILIES,
    xlm_roberta_xl::FAMILIES,
];
