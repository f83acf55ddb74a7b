//! One file per architecture: the classes of `config.json` it reads, and the decoder each of them
//! stands for. A new architecture is a file, and two lines here.

use super::common::{Architecture, EncoderArchitecture};

mod afmoe;
mod apertus;
mod arcee;
mod bailing;
mod bamba;
mod bloom;
mod chatglm;
mod cohere;
mod cwm;
mod deci;
mod deepseek;
mod deepseek_moe;
mod ernie4_5;
mod euro_bert;
mod exaone;
mod falcon;
mod falcon_h1;
mod flint;
mod gemma;
mod gemma4;
mod glm;
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
mod hunyuan;
mod internlm;
mod jais2;
mod jamba;
mod kolibri;
mod laguna;
mod lfm2;
mod lfm3;
mod llama;
mod llama4;
mod mamba;
mod mamba2;
mod minicpm;
mod minicpm3;
mod minimax_m2;
mod mistral;
mod mistral4;
mod mixtral;
mod modern_bert;
mod mpt;
mod nemotron;
mod nemotron_h;
mod olmo;
mod olmoe;
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
mod rope_bert;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod vision_language;

/// The classes of every file; refusals and the guide list them in this order.
pub(super) const ALL: &[&[Architecture]] = &[
    afmoe::CLASSES,
    apertus::CLASSES,
    arcee::CLASSES,
    bailing::CLASSES,
    bamba::CLASSES,
    bloom::CLASSES,
    chatglm::CLASSES,
    cohere::CLASSES,
    cwm::CLASSES,
    deci::CLASSES,
    deepseek::CLASSES,
    deepseek_moe::CLASSES,
    ernie4_5::CLASSES,
    exaone::CLASSES,
    falcon::CLASSES,
    falcon_h1::CLASSES,
    flint::CLASSES,
    gemma::CLASSES,
    gemma4::CLASSES,
    glm::CLASSES,
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
    hunyuan::CLASSES,
    internlm::CLASSES,
    jais2::CLASSES,
    jamba::CLASSES,
    kolibri::CLASSES,
    laguna::CLASSES,
    lfm2::CLASSES,
    lfm3::CLASSES,
    llama::CLASSES,
    llama4::CLASSES,
    mamba::CLASSES,
    mamba2::CLASSES,
    minicpm::CLASSES,
    minicpm3::CLASSES,
    minimax_m2::CLASSES,
    mistral::CLASSES,
    mistral4::CLASSES,
    mixtral::CLASSES,
    mpt::CLASSES,
    nemotron::CLASSES,
    nemotron_h::CLASSES,
    olmo::CLASSES,
    olmoe::CLASSES,
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
    seed_oss::CLASSES,
    smollm3::CLASSES,
    stablelm::CLASSES,
    starcoder2::CLASSES,
    vision_language::CLASSES,
];

/// The families of encoders that are computed as decoders.
pub(super) const ENCODERS: &[&[EncoderArchitecture]] =
    &[modern_bert::FAMILIES, rope_bert::FAMILIES, euro_bert::FAMILIES];
