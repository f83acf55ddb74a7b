//! Adapter folders that tests write: any configuration, any tensors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use tempfile::TempDir;

/// An adapter's folder, gone when dropped.
pub(crate) struct WrittenAdapter {
    folder: TempDir,
    config: Value,
    tensors: HashMap<String, Tensor>,
}

impl WrittenAdapter {
    /// Of rank 2 with the factor 2, for modules as `(path, inputs, outputs)`.
    pub(crate) fn new(modules: &[(&str, usize, usize)], seed: u32) -> Self {
        let config = json!({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none",
            "target_modules": modules.iter().map(|module| module.0).collect::<Vec<_>>()});
        let mut tensors = HashMap::new();
        for (path, inputs, outputs) in modules {
            let name = format!("base_model.model.{path}");
            tensors.insert(format!("{name}.lora_A.weight"), matrix(2, *inputs, seed));
            tensors.insert(format!("{name}.lora_B.weight"), matrix(*outputs, 2, seed + 1));
        }
        let written = Self { folder: tempfile::tempdir().unwrap(), config, tensors };
        written.write();
        written
    }

    /// The same with other fields in its configuration.
    pub(crate) fn with_config(mut self, fields: &Value) -> Self {
        let fields = fields.as_object().unwrap().clone();
        self.config.as_object_mut().unwrap().extend(fields);
        self.write();
        self
    }

    /// The same after a change of its tensors.
    pub(crate) fn with_tensors(
        mut self,
        change: impl FnOnce(&mut HashMap<String, Tensor>),
    ) -> Self {
        change(&mut self.tensors);
        self.write();
        self
    }

    pub(crate) fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        Path::new(self.path()).join(name)
    }

    fn write(&self) {
        std::fs::write(self.file("adapter_config.json"), self.config.to_string()).unwrap();
        let file = self.file("adapter_model.safetensors");
        candle_core::safetensors::save(&self.tensors, file).unwrap();
    }
}

/// Fixed numbers between -0.5 and 0.5.
fn matrix(rows: usize, columns: usize, seed: u32) -> Tensor {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let values = (0..rows * columns).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    });
    Tensor::from_iter(values, &Device::Cpu).unwrap().reshape((rows, columns)).unwrap()
}

/// A matrix of one number.
pub(crate) fn filled(value: f32, rows: usize, columns: usize) -> Tensor {
    Tensor::full(value, (rows, columns), &Device::Cpu).unwrap().to_dtype(DType::F32).unwrap()
}
