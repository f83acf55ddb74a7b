//! Every architecture against what transformers computes with the same tiny checkpoint, and
//! against itself: alone, in company, chunked, and on scattered blocks.
//!
//! The fixtures are made by `tests/fixtures/make_parity.py`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use candle_core::Device;
use candle_core::quantized::GgmlDType;
use sconce::engine::startup::device::OpenDevice;
use sconce::kernels::cuda::settings::GpuSettings;
use sconce::models::CausalLm;
use sconce::models::config::HfConfig;
use sconce::weights::hub::HubOptions;
use sconce::weights::model_ref::ModelRef;
use sconce::weights::source::ModelSource;
use sconce::weights::{TensorSource, Weights};

mod beams;
mod candle;
mod compressed;
mod draft_heads;
mod drafts;
mod driver;
mod gguf;
pub(crate) mod gguf_files;
pub(crate) use gguf_files::converted;
mod decode_graphs;
mod engine;
mod gguf_written;
mod hidden;
mod invariance;
mod kv_disk;
mod levels;
mod lora;
mod media;
mod parts;
pub(crate) mod pictures;
pub(crate) mod pictures_gguf;
mod ranks;
mod reference;
mod rehearsal;
mod snapshots;
pub(crate) mod sounds;
mod stages;

/// Models that a GPU computes up to a length only.
const ON_CPU_ALONE: [&str; 8] = [
    "axk2",
    "deepseek_v32_sparse",
    "dots3_note",
    "glm5_next_sparse",
    "glm_moe_dsa_sparse",
    "hy_v4",
    "minimax_m3_conditional",
    "minimax_m3_sparse",
];

/// Folders below `tests/fixtures/parity`: at least one per architecture.
pub(crate) const MODELS: &[&str] = &[
    "afmoe",
    "apertus",
    "apertus1p5",
    "arcee",
    "aria",
    "axk1",
    "axk2",
    "bailing",
    "bailing_2",
    "bailing_hybrid",
    "bailing_hybrid_groups",
    "bamba",
    "beam",
    "bert",
    "biogpt",
    "bitnet",
    "bloom",
    "chatglm",
    "codegen",
    "cohere",
    "cohere2",
    "cohere2_moe",
    "cohere2_moe_sigmoid",
    "cohere_compass",
    "cohere_compass_conditional",
    "cohere_norms",
    "ctrl",
    "cwm",
    "dbrx",
    "deci",
    "deepseek_moe",
    "deepseek_v2",
    "deepseek_v2_groups",
    "deepseek_v3",
    "deepseek_v32",
    "deepseek_v32_sparse",
    "diffllama",
    "doge",
    "dory",
    "dots3_note",
    "dots1",
    "electra",
    "emu3",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone",
    "exaone4",
    "exaone4_5",
    "exaone_moe",
    "falcon",
    "falcon_grouped",
    "falcon_h1",
    "falcon_h1_norm",
    "falcon_mamba",
    "falcon_serial",
    "flex_olmo",
    "flint",
    "fuyu",
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_conditional",
    "gemma3n",
    "gemma4_conditional",
    "gemma4_experts",
    "gemma4_shared",
    "gemma4_unified",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "glm5_next_sparse",
    "glm_moe_dsa",
    "glm_moe_dsa_sparse",
    "gpt2",
    "gpt_big_code",
    "gpt_big_code_heads",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox_japanese",
    "gpt_neox_serial",
    "gpt_oss",
    "gptj",
    "granite",
    "granite_hybrid",
    "granite_hybrid_moe",
    "granite_moe",
    "granite_moe_shared",
    "granite_moe_swa",
    "granite_swa",
    "helium",
    "hrm_text",
    "hunyuan",
    "hunyuan_3",
    "hunyuan_moe",
    "hy_v4",
    "hyperclovax",
    "internlm",
    "internlm2",
    "internlm3",
    "iquest_coder",
    "jais2",
    "jamba",
    "jetmoe",
    "kimi_k2_5",
    "kimi_linear",
    "kolibri1",
    "laguna",
    "laguna_elements",
    "lara_mini",
    "lfm2",
    "lfm2_moe",
    "lfm3",
    "lfm3_vl",
    "llama2",
    "llama3",
    "llama4",
    "llama4_conditional",
    "llama_bias",
    "longcat_flash",
    "mamba",
    "mamba2",
    "mellum",
    "mimo",
    "mimo_v2",
    "minicpm",
    "minicpm3",
    "minimax",
    "minimax_m2",
    "minimax_m3",
    "minimax_m3_conditional",
    "minimax_m3_sparse",
    "ministral",
    "ministral3",
    "mistral",
    "mistral3_conditional",
    "mistral4",
    "mixtral",
    "mllama",
    "modern_bert_decoder",
    "mpt",
    "muse_glimmer",
    "nanochat",
    "nemotron",
    "nemotron_h",
    "nemotron_h_moe",
    "nemotron_h_omni",
    "olmo",
    "olmo2",
    "olmo3",
    "olmo_hybrid",
    "olmo_hybrid_rope",
    "olmoe",
    "openai_gpt",
    "opt",
    "orion",
    "persimmon",
    "phi",
    "phi3",
    "phi3_crossing",
    "phi3_long",
    "phi4_multimodal",
    "phi_norms",
    "phimoe",
    "qwen",
    "qwen2",
    "qwen2_5_omni",
    "qwen2_5_omni_thinker",
    "qwen2_moe",
    "qwen3",
    "qwen3_5",
    "qwen3_5_conditional",
    "qwen3_5_moe",
    "qwen3_5_moe_conditional",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_omni",
    "qwen3_omni_thinker",
    "qwen3_sharded",
    "recurrent_gemma",
    "roberta",
    "roformer",
    "sarvam_mla",
    "sarvam_moe",
    "seed_oss",
    "smollm3",
    "solar_open",
    "stablelm",
    "stablelm_parallel",
    "starcoder2",
    "step3p7",
    "vault_gemma",
    "xglm",
    "youtu",
    "zamba",
    "zamba2",
    "zamba2_tied",
    "zaya",
];

pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity").join(name)
}

fn open(name: &str) -> ModelSource {
    open_folder(&folder(name))
}

fn open_folder(at: &Path) -> ModelSource {
    ModelSource::open(&ModelRef::Folder(at.to_owned()), &HubOptions::offline(at)).unwrap()
}

/// The fixtures, or those of them that `SCONCE_TEST_MODELS` names, with commas between them.
fn models() -> Vec<&'static str> {
    chosen(MODELS)
}

/// Those of some fixtures that `SCONCE_TEST_MODELS` names; by default all that the device computes.
fn chosen(all: &[&'static str]) -> Vec<&'static str> {
    let Ok(names) = std::env::var("SCONCE_TEST_MODELS") else {
        let computed = |name: &&str| device().is_cpu() || !ON_CPU_ALONE.contains(name);
        return all.iter().copied().filter(computed).collect();
    };
    let known = |name: &str| all.iter().copied().find(|known| *known == name);
    names
        .split(',')
        .map(|name| known(name).unwrap_or_else(|| panic!("no fixture {name}")))
        .collect()
}

/// Where models run: the CPU, or what `SCONCE_TEST_DEVICE` names, such as `cuda:0`.
pub(crate) fn device() -> &'static Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let name = std::env::var("SCONCE_TEST_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
        // Without it a GPU, and its kernels compiled for the CPU, give their own bits for each number of tokens.
        GpuSettings { deterministic: true, eager: false }.apply();
        OpenDevice::open(name.parse().unwrap(), 0, 1).unwrap().device
    })
}

/// The model of a fixture, its weights as stored: bf16.
fn load(name: &str) -> Box<dyn CausalLm> {
    load_as(name, None)
}

/// The model of a fixture, its weights (and so its products) in `kind`.
fn load_as(name: &str, kind: Option<GgmlDType>) -> Box<dyn CausalLm> {
    let source = open(name);
    let config = HfConfig::from_value(&source.config).unwrap();
    sconce::models::load(&config, &source.weights(device()).rounded_to(kind)).unwrap()
}

/// The model of a fixture on other tensors.
fn load_with(name: &str, tensors: impl TensorSource + 'static) -> Box<dyn CausalLm> {
    let config = HfConfig::from_value(&open(name).config).unwrap();
    let weights = Weights::new(std::sync::Arc::new(tensors), device().clone());
    sconce::models::load(&config, &weights).unwrap()
}

/// The fixed prompt of this length, as the fixture script computes it.
pub(crate) fn prompt(length: u32, vocab: u32) -> Vec<u32> {
    (0..length).map(|i| (length * 31 + i * i * 7 + i * 3) % (vocab - 4) + 4).collect()
}
