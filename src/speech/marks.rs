//! The tokens of a model that stand for no text, and which of them may come when, as its files say it.

use serde_json::Value;

use super::error::LoadError;
use super::languages;
use super::model::config::Config;
use crate::text::tokenizer::Tokenizer;

/// Time that one timestamp stands after the one before, in seconds: two feature vectors.
pub const SECONDS_OF_MARK: f64 = 0.02;

/// What to do with what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Write it down.
    Transcribe,
    /// Write it down in English.
    Translate,
}

/// The special tokens of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Begins what the decoder writes.
    pub start: u32,
    /// Ends it; all tokens of text are below.
    pub end: u32,
    /// Stands before the text of earlier windows, or a request's prompt.
    pub previous: Option<u32>,
    /// Would ask for text without timestamps.
    pub no_timestamps: u32,
    /// `<|0.00|>`; all later times follow.
    pub first_time: u32,
    /// Its probability in the place of a language is that of no speech.
    pub no_speech: u32,
    /// The tasks' tokens, where the model has several.
    pub tasks: Option<[u32; 2]>,
    /// Codes of languages and their tokens, where the model has several.
    pub languages: Vec<(String, u32)>,
    /// Tokens that never come.
    pub suppressed: Vec<u32>,
    /// Tokens that never come first.
    pub suppressed_first: Vec<u32>,
    /// The latest time, in steps, that a window may begin with.
    pub latest_first: Option<u32>,
    /// Pairs of a layer and a head of cross attention that follow words, layers in order.
    pub alignment_heads: Vec<(usize, usize)>,
}

impl Marks {
    /// Reads the files of a model.
    ///
    /// # Errors
    /// A token that the algorithm needs is missing, or a value makes no sense.
    pub fn read(
        config: &Config,
        files: [&Value; 2],
        tokenizer: &Tokenizer,
    ) -> Result<Self, LoadError> {
        let size = config.shape.vocab_size;
        let files = Files { files, size };
        let named = |name: &str| tokenizer.token_id(name);
        let need = |id: Option<u32>, what: &str| {
            let missing = || LoadError::Config(format!("neither its files name {what}"));
            id.ok_or_else(missing)
        };
        let start = files.id("decoder_start_token_id")?.or_else(|| named("<|startoftranscript|>"));
        let end = files.id("eos_token_id")?.or_else(|| named("<|endoftext|>"));
        let plain = files.id("no_timestamps_token_id")?.or_else(|| named("<|notimestamps|>"));
        let plain = need(plain, "no_timestamps_token_id nor its tokenizer <|notimestamps|>")?;
        let languages = files.languages(tokenizer)?;
        let tasks = [
            files.member("task_to_id", "transcribe")?.or_else(|| named("<|transcribe|>")),
            files.member("task_to_id", "translate")?.or_else(|| named("<|translate|>")),
        ];
        // A model of one language may have the tokens all the same.
        let several = files.flag("is_multilingual").unwrap_or(!languages.is_empty());
        let tasks = match tasks {
            [Some(transcribe), Some(translate)] => Some([transcribe, translate]),
            _ => None,
        };
        let marks = Self {
            start: need(start, "decoder_start_token_id nor its tokenizer <|startoftranscript|>")?,
            end: need(end, "eos_token_id nor its tokenizer <|endoftext|>")?,
            previous: files.id("prev_sot_token_id")?.or_else(|| named("<|startofprev|>")),
            no_timestamps: plain,
            first_time: plain + 1,
            no_speech: plain.saturating_sub(1),
            tasks: tasks.filter(|_| several),
            languages: if several { languages } else { Vec::new() },
            suppressed: files.ids("suppress_tokens")?,
            suppressed_first: files.ids("begin_suppress_tokens")?,
            latest_first: files.number("max_initial_timestamp_index")?,
            alignment_heads: files.alignment_heads(config)?,
        };
        marks.checked(size)
    }

    /// Whether the model knows several languages.
    pub fn is_multilingual(&self) -> bool {
        !self.languages.is_empty()
    }

    /// The token of a language's code.
    pub fn language(&self, code: &str) -> Option<u32> {
        self.languages.iter().find(|(known, _)| known == code).map(|(_, id)| *id)
    }

    /// Whether a token is a time.
    pub fn is_time(&self, token: u32) -> bool {
        token >= self.first_time
    }

    /// Whether a token is text.
    pub fn is_text(&self, token: u32) -> bool {
        token < self.end
    }

    fn checked(self, vocab_size: usize) -> Result<Self, LoadError> {
        let bad = |reason: String| Err(LoadError::Config(reason));
        let (end, first) = (self.end, self.first_time);
        if self.end >= self.first_time {
            return bad(format!(
                "eos_token_id is {end}, it must be below the times from {first} on"
            ));
        }
        if self.first_time as usize >= vocab_size {
            return bad(format!("there are no times: they would begin at {first} of {vocab_size}"));
        }
        Ok(self)
    }
}

/// `generation_config.json`, then `config.json`.
struct Files<'a> {
    files: [&'a Value; 2],
    size: usize,
}

impl<'a> Files<'a> {
    fn find(&self, name: &str) -> Option<&'a Value> {
        self.files.iter().filter_map(|file| file.get(name)).find(|value| !value.is_null())
    }

    fn token(&self, name: &str, value: &Value) -> Result<u32, LoadError> {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.filter(|id| (*id as usize) < self.size).ok_or_else(|| {
            let size = self.size;
            LoadError::Config(format!("{name} is {value}, it must be a token below {size}"))
        })
    }

    fn id(&self, name: &str) -> Result<Option<u32>, LoadError> {
        self.find(name).map(|value| self.token(name, value)).transpose()
    }

    fn ids(&self, name: &str) -> Result<Vec<u32>, LoadError> {
        let values = self.find(name).and_then(Value::as_array).into_iter().flatten();
        values.map(|value| self.token(name, value)).collect()
    }

    fn member(&self, name: &str, key: &str) -> Result<Option<u32>, LoadError> {
        let value = self.find(name).and_then(|table| table.get(key));
        value.map(|value| self.token(name, value)).transpose()
    }

    fn number(&self, name: &str) -> Result<Option<u32>, LoadError> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let bad = || LoadError::Config(format!("{name} is {value}, it must be a whole number"));
        number.map(Some).ok_or_else(bad)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.find(name).and_then(Value::as_bool)
    }

    /// The table of languages, or those whose tokens the tokenizer has.
    fn languages(&self, tokenizer: &Tokenizer) -> Result<Vec<(String, u32)>, LoadError> {
        let code = |name: &str| {
            let code = name.strip_prefix("<|").and_then(|name| name.strip_suffix("|>"));
            code.unwrap_or(name).to_owned()
        };
        if let Some(table) = self.find("lang_to_id").and_then(Value::as_object) {
            let rows = table.iter();
            return rows
                .map(|(name, id)| Ok((code(name), self.token("lang_to_id", id)?)))
                .collect();
        }
        let token = |code: &str| tokenizer.token_id(&format!("<|{code}|>"));
        Ok(languages::codes().filter_map(|code| Some((code.to_owned(), token(code)?))).collect())
    }

    /// The heads that the model's author found to follow words, or all of the upper layers.
    fn alignment_heads(&self, config: &Config) -> Result<Vec<(usize, usize)>, LoadError> {
        let (layers, heads) = (config.shape.decoder_layers, config.shape.decoder_attention_heads);
        let Some(listed) = self.find("alignment_heads") else {
            let upper = layers / 2..layers;
            return Ok(upper.flat_map(|layer| (0..heads).map(move |head| (layer, head))).collect());
        };
        let pairs: Vec<(usize, usize)> =
            serde_json::from_value(listed.clone()).map_err(|error| {
                LoadError::Config(format!("alignment_heads are no pairs of numbers: {error}"))
            })?;
        if let Some((layer, head)) =
            pairs.iter().find(|(layer, head)| *layer >= layers || *head >= heads)
        {
            let reason = format!(
                "alignment_heads has [{layer}, {head}], there are {layers} layers of {heads} heads"
            );
            return Err(LoadError::Config(reason));
        }
        let mut pairs = pairs;
        pairs.sort_unstable();
        Ok(pairs)
    }
}
