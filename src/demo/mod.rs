//! The embedded demo model: its files. Refuses to know how a model is loaded and served, and how this one
//! was trained (`benches/demo_trainer`).

/// Name and bytes of each file of the demo model's folder, in Hugging Face's layout.
pub fn files() -> &'static [(&'static str, &'static [u8])] {
    &[
        ("config.json", include_bytes!("model/config.json")),
        ("generation_config.json", include_bytes!("model/generation_config.json")),
        ("tokenizer.json", include_bytes!("model/tokenizer.json")),
        ("tokenizer_config.json", include_bytes!("model/tokenizer_config.json")),
        ("model.safetensors", include_bytes!("model/model.safetensors")),
    ]
}
