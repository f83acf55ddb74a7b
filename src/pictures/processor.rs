//! How a checkpoint's image processor prepares pictures. `families` reads what its files say.

use super::decode::decode;
use super::error::PictureError;
use super::picture::{Normalization, Rgb};
use super::resize::Kernel;
pub use super::views::Detail;
use super::views::Rule;
use super::wording::{Looks, Prepared, Word, Wording};

/// An image processor, as plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// The token that stands for a token of a picture.
    pub image_token: Word,
    /// The token that a template leaves for a picture.
    pub placeholder: Word,
    /// Pixels of a side of a patch.
    pub patch: usize,
    /// Patches of a side of a token.
    pub merge: usize,
    /// Tokens of each view, whatever its size, where a resampler makes them of all patches.
    pub resampled: Option<usize>,
    /// How pictures are resized and cut.
    pub rule: Rule,
    /// The text around the tokens.
    pub wording: Wording,
    /// Whether a picture's tokens see all of it, also what stands behind them.
    pub two_way: bool,
    /// What is done to pixels before the tower.
    pub normalization: Normalization,
    /// The kernel of the resize.
    pub kernel: Kernel,
}

/// Why a checkpoint's processor can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("preprocessor_config.json: `{field}` is {value}, {bound}")]
pub struct ProcessorError {
    pub(super) field: &'static str,
    pub(super) value: String,
    pub(super) bound: &'static str,
}

impl Processor {
    /// How the token is written that a template leaves for a picture; `token` spells tokens.
    pub fn placeholder(&self, token: impl Fn(u32) -> String) -> String {
        spelled(self.placeholder, token)
    }

    /// How the token is written that stands for a token of a picture; `token` spells tokens.
    pub fn image_token(&self, token: impl Fn(u32) -> String) -> String {
        spelled(self.image_token, token)
    }

    /// The token that stands for a token of a picture; `id` finds a token by its text.
    pub fn image_token_id(&self, id: impl Fn(&str) -> Option<u32>) -> Option<u32> {
        match self.image_token {
            Word::Token(id) => Some(id),
            Word::Text(text) => id(text),
            _ => None,
        }
    }

    /// Decodes and prepares a file.
    ///
    /// # Errors
    ///
    /// See [`decode`]; sides whose ratio is too large.
    pub fn read(&self, bytes: &[u8], detail: Detail) -> Result<Prepared, PictureError> {
        self.prepare(&decode(bytes)?, detail)
    }

    /// Prepares a picture.
    ///
    /// # Errors
    ///
    /// Sides whose ratio is too large.
    pub fn prepare(&self, rgb: &Rgb, detail: Detail) -> Result<Prepared, PictureError> {
        let side = self.patch * self.merge;
        let views = self.rule.views(rgb, side, self.kernel, detail)?;
        let (tokens, two_way) = (self.resampled, self.two_way);
        let looks = Looks { side, tokens, normalization: &self.normalization, two_way };
        Ok(self.wording.say(views, looks))
    }
}

fn spelled(word: Word, token: impl Fn(u32) -> String) -> String {
    match word {
        Word::Token(id) => token(id),
        Word::Text(text) => text.to_owned(),
        _ => String::new(),
    }
}
