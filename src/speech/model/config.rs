//! The shape of a model, from its `config.json`.

use candle_transformers::models::whisper;
use serde::Deserialize;
use serde_json::Value;

use crate::speech::error::LoadError;

/// The class of models that are served here.
pub const ARCHITECTURE: &str = "WhisperForConditionalGeneration";

/// What `config.json` says of the network.
#[derive(Clone, Debug)]
pub struct Config {
    /// What candle-transformers reads, too.
    pub shape: whisper::Config,
    /// Width of the encoder's feed-forward networks.
    pub encoder_ffn: usize,
    /// Width of the decoder's feed-forward networks.
    pub decoder_ffn: usize,
    /// Vectors over which the weights of cross attention are smoothed for timestamps of words; odd.
    pub median_filter_width: usize,
}

/// The fields that candle-transformers doesn't read.
#[derive(Debug, Deserialize)]
struct Further {
    encoder_ffn_dim: usize,
    decoder_ffn_dim: usize,
    #[serde(default = "gelu")]
    activation_function: String,
    #[serde(default)]
    scale_embedding: bool,
    #[serde(default = "seven")]
    median_filter_width: usize,
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn seven() -> usize {
    7
}

/// Whether a `config.json` is that of a model which this room serves.
pub fn is_speech(config: &Value) -> bool {
    let classes = config["architectures"].as_array().into_iter().flatten();
    let mut classes = classes.filter_map(Value::as_str);
    classes.any(|class| class == ARCHITECTURE) || config["model_type"] == "whisper"
}

impl Config {
    /// Reads and checks `config.json`.
    ///
    /// # Errors
    /// The model is no Whisper, or one that is computed in another way.
    pub fn from_json(config: &Value) -> Result<Self, LoadError> {
        let bad = |reason: String| LoadError::Config(reason);
        if !is_speech(config) {
            return Err(bad(format!(
                "architectures is {}, speech is served with {ARCHITECTURE}",
                config["architectures"]
            )));
        }
        let read = |error: serde_json::Error| bad(error.to_string());
        let shape: whisper::Config = serde_json::from_value(shape_of(config)).map_err(read)?;
        let further: Further = serde_json::from_value(config.clone()).map_err(read)?;
        if further.activation_function != "gelu" {
            let name = further.activation_function;
            return Err(bad(format!("activation_function is {name:?}, it must be \"gelu\"")));
        }
        if further.scale_embedding {
            return Err(bad("scale_embedding is true, which is not computed here".to_owned()));
        }
        let width = further.median_filter_width;
        if width.is_multiple_of(2) {
            return Err(bad(format!("median_filter_width is {width}, it must be odd")));
        }
        for (name, heads) in [
            ("encoder_attention_heads", shape.encoder_attention_heads),
            ("decoder_attention_heads", shape.decoder_attention_heads),
        ] {
            if heads == 0 || !shape.d_model.is_multiple_of(heads) {
                let size = shape.d_model;
                return Err(bad(format!("{name} is {heads}, it must divide d_model, {size}")));
            }
        }
        if shape.max_source_positions == 0 || shape.max_target_positions < 16 {
            return Err(
                bad("max_source_positions or max_target_positions is too small".to_owned()),
            );
        }
        Ok(Self {
            encoder_ffn: further.encoder_ffn_dim,
            decoder_ffn: further.decoder_ffn_dim,
            median_filter_width: width,
            shape,
        })
    }

    /// Feature vectors of one window: two for every state of the encoder.
    pub fn window(&self) -> usize {
        self.shape.max_source_positions * 2
    }
}

/// The fields that candle-transformers reads. `suppress_tokens` may be null, and is read elsewhere.
fn shape_of(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(fields) = config.as_object_mut() {
        fields.remove("suppress_tokens");
    }
    config
}
