//! How a tokenizer turns tokens into text, as a chain of streaming stages.
//!
//! The `tokenizers` crate decodes a whole list at once; its decoders are functions of the list.
//! This file runs the same decoders one token at a time and hands out text as soon as no later
//! token can change it, so that the pieces joined are the text of the whole list, in linear time.
//! A decoder that needs the end of the list (none of the usual ones) keeps its tokens until then.

use std::borrow::Cow;

use tokenizers::Decoder as _;
use tokenizers::decoders::DecoderWrapper;

/// A chain of decoding stages; the plan of which is made once per tokenizer and cloned per stream.
#[derive(Debug, Clone)]
pub(crate) struct DecoderChain {
    stages: Vec<Stage>,
}

#[derive(Debug, Clone)]
enum Stage {
    /// Maps every token by itself.
    EachToken(DecoderWrapper),
    /// Maps every token by itself, the first one differently.
    FirstDiffers { decoder: DecoderWrapper, started: bool },
    /// Treats the last token differently, so it runs one token behind.
    LastDiffers { decoder: DecoderWrapper, held: Option<String> },
    /// No decoder: tokens joined by spaces.
    Spaces { started: bool },
    /// Tokens `<0xNN>` are bytes; a run of them is a string or, where invalid, one U+FFFD each.
    ByteFallback { run: Vec<u8> },
    /// Byte-level alphabet; `pending` is the beginning of a character.
    ByteLevel { pending: Vec<u8> },
    /// Cuts up to `start` and `stop` characters `content` off the ends of the whole text.
    StripWhole { content: char, start: usize, stop: usize, started: bool, held: String },
    /// A decoder that needs the whole text before it says anything.
    Whole { decoder: DecoderWrapper, text: String },
    /// A decoder that needs all tokens before it says anything.
    AllTokens { decoder: DecoderWrapper, tokens: Vec<String> },
}

impl DecoderChain {
    /// Plans the chain of a tokenizer's decoder; `None` joins tokens by spaces.
    pub(crate) fn new(decoder: Option<&DecoderWrapper>) -> Self {
        let mut stages = Vec::new();
        match decoder {
            None => stages.push(Stage::Spaces { started: false }),
            Some(decoder) => plan(decoder, &mut false, &mut stages),
        }
        Self { stages }
    }

    /// Appends a token; the text that became certain goes to `out`.
    pub(crate) fn push(&mut self, token: String, out: &mut String) {
        feed(&mut self.stages, token, out);
    }

    /// Ends the stream; all text still held back goes to `out`.
    pub(crate) fn finish(&mut self, out: &mut String) {
        for index in 0..self.stages.len() {
            let (stage, rest) = self.stages[index..].split_first_mut().expect("index is in range");
            for token in stage.finish() {
                feed(rest, token, out);
            }
        }
    }

    /// The bytes of one token in the middle of a text.
    pub(crate) fn token_bytes(&self, token: &str) -> Vec<u8> {
        let mut token = Cow::Borrowed(token);
        for stage in &self.stages {
            match stage {
                Stage::EachToken(decoder) => token = decode_one(decoder, token.into_owned()).into(),
                Stage::FirstDiffers { decoder, .. } => {
                    token = decode_second(decoder, token.into_owned()).into();
                }
                Stage::LastDiffers { decoder, .. } => {
                    token = decode_followed(decoder, token.into_owned()).into();
                }
                Stage::ByteFallback { .. } => {
                    if let Some(byte) = fallback_byte(&token) {
                        return vec![byte];
                    }
                }
                Stage::ByteLevel { .. } => return byte_level_bytes(&token),
                Stage::Spaces { .. }
                | Stage::StripWhole { .. }
                | Stage::Whole { .. }
                | Stage::AllTokens { .. } => {}
            }
        }
        token.into_owned().into_bytes()
    }
}

/// Appends the stages of `decoder`; `fused` says whether what arrives is one growing text.
fn plan(decoder: &DecoderWrapper, fused: &mut bool, stages: &mut Vec<Stage>) {
    let decoder = decoder.clone();
    match decoder {
        DecoderWrapper::Sequence(sequence) => {
            for inner in sequence.get_decoders() {
                plan(inner, fused, stages);
            }
        }
        DecoderWrapper::Fuse(_) => *fused = true,
        DecoderWrapper::Strip(strip) if *fused => stages.push(Stage::StripWhole {
            content: strip.content,
            start: strip.start,
            stop: strip.stop,
            started: false,
            held: String::new(),
        }),
        _ if *fused => stages.push(Stage::Whole { decoder, text: String::new() }),
        DecoderWrapper::ByteLevel(_) => {
            *fused = true;
            stages.push(Stage::ByteLevel { pending: Vec::new() });
        }
        DecoderWrapper::ByteFallback(_) => stages.push(Stage::ByteFallback { run: Vec::new() }),
        DecoderWrapper::Replace(_) | DecoderWrapper::Strip(_) => {
            stages.push(Stage::EachToken(decoder));
        }
        DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_) => {
            stages.push(Stage::FirstDiffers { decoder, started: false });
        }
        DecoderWrapper::BPE(_) => stages.push(Stage::LastDiffers { decoder, held: None }),
        DecoderWrapper::CTC(_) => stages.push(Stage::AllTokens { decoder, tokens: Vec::new() }),
    }
}

fn feed(stages: &mut [Stage], token: String, out: &mut String) {
    let Some((stage, rest)) = stages.split_first_mut() else {
        out.push_str(&token);
        return;
    };
    let mut produced = Vec::with_capacity(2);
    stage.push(token, &mut produced);
    for token in produced {
        feed(rest, token, out);
    }
}

impl Stage {
    fn push(&mut self, token: String, out: &mut Vec<String>) {
        match self {
            Self::EachToken(decoder) => out.push(decode_one(decoder, token)),
            Self::FirstDiffers { decoder, started } => {
                let first = !std::mem::replace(started, true);
                out.push(if first {
                    decode_one(decoder, token)
                } else {
                    decode_second(decoder, token)
                });
            }
            Self::LastDiffers { decoder, held } => {
                let before = held.replace(token);
                out.extend(before.map(|token| decode_followed(decoder, token)));
            }
            Self::Spaces { started } => {
                let first = !std::mem::replace(started, true);
                out.push(if first { token } else { format!(" {token}") });
            }
            Self::ByteFallback { run } => {
                if let Some(byte) = fallback_byte(&token) {
                    run.push(byte);
                } else {
                    out.extend(take_run(run));
                    out.push(token);
                }
            }
            Self::ByteLevel { pending } => {
                pending.extend_from_slice(&byte_level_bytes(&token));
                out.extend(take_characters(pending));
            }
            Self::StripWhole { content, start, stop, started, held } => {
                held.push_str(&token);
                strip_start(held, *content, start, started);
                out.extend(take_all_but(held, *content, *stop, *started));
            }
            Self::Whole { text, .. } => text.push_str(&token),
            Self::AllTokens { tokens, .. } => tokens.push(token),
        }
    }

    fn finish(&mut self) -> Vec<String> {
        match self {
            Self::EachToken(_) | Self::FirstDiffers { .. } | Self::Spaces { .. } => Vec::new(),
            Self::LastDiffers { decoder, held } => {
                held.take().map(|token| decode_one(decoder, token)).into_iter().collect()
            }
            Self::ByteFallback { run } => take_run(run),
            Self::ByteLevel { pending } if pending.is_empty() => Vec::new(),
            Self::ByteLevel { pending } => {
                vec![String::from_utf8_lossy(&std::mem::take(pending)).into_owned()]
            }
            Self::StripWhole { content, stop, held, .. } => {
                vec![strip_stop(std::mem::take(held), *content, *stop)]
            }
            Self::Whole { decoder, text } => vec![decode_one(decoder, std::mem::take(text))],
            Self::AllTokens { decoder, tokens } => {
                let tokens = std::mem::take(tokens);
                decoder.decode_chain(tokens.clone()).unwrap_or(tokens)
            }
        }
    }
}

/// A decoder that fails (a regular expression that gives up) leaves the token as it is.
fn decode_one(decoder: &DecoderWrapper, token: String) -> String {
    match decoder.decode_chain(vec![token.clone()]) {
        Ok(tokens) => tokens.concat(),
        Err(_) => token,
    }
}

fn decode_second(decoder: &DecoderWrapper, token: String) -> String {
    match decoder.decode_chain(vec![String::new(), token.clone()]) {
        Ok(mut tokens) => tokens.pop().unwrap_or_default(),
        Err(_) => token,
    }
}

fn decode_followed(decoder: &DecoderWrapper, token: String) -> String {
    match decoder.decode_chain(vec![token.clone(), String::new()]) {
        Ok(tokens) => tokens.into_iter().next().unwrap_or_default(),
        Err(_) => token,
    }
}

/// The byte of a token like `<0x0A>`.
pub(crate) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

fn take_run(run: &mut Vec<u8>) -> Vec<String> {
    if run.is_empty() {
        return Vec::new();
    }
    match String::from_utf8(std::mem::take(run)) {
        Ok(text) => vec![text],
        Err(error) => vec!["\u{fffd}".repeat(error.as_bytes().len())],
    }
}

/// The bytes behind a token in the byte-level alphabet; a token outside it stands for itself.
fn byte_level_bytes(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of_char).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte-level alphabet of GPT-2, read backwards: printable bytes are their own character, the
/// others, in order, are the characters from U+0100 on.
pub(super) fn byte_of_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 0x7f).ok(),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The character of the byte-level alphabet that stands for `byte`.
pub(super) fn char_of_byte(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => code,
        0..=0x20 => code + 0x100,
        0x7f..=0xa0 => code - 0x7f + 0x121,
        0xad => 0x143,
    };
    char::from_u32(code).expect("the alphabet ends at U+0143")
}

/// Takes the whole characters off the front; what remains may still become a character.
fn take_characters(pending: &mut Vec<u8>) -> Option<String> {
    let mut text = String::new();
    let mut kept = 0;
    for chunk in pending.utf8_chunks() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid();
        // At the end, the beginning of a character may still be completed.
        if std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none()) {
            let behind = invalid.as_ptr_range().end == pending.as_ptr_range().end;
            if behind {
                kept = invalid.len();
                break;
            }
        }
        if !invalid.is_empty() {
            text.push('\u{fffd}');
        }
    }
    pending.drain(..pending.len() - kept);
    if text.is_empty() { None } else { Some(text) }
}

/// Cuts the first up to `start` characters `content`; `started` is set behind them.
fn strip_start(held: &mut String, content: char, start: &mut usize, started: &mut bool) {
    while !*started {
        match held.chars().next() {
            Some(c) if c == content && *start > 0 => {
                held.drain(..c.len_utf8());
                *start -= 1;
            }
            Some(_) => *started = true,
            None => break,
        }
    }
}

/// Takes what the end of the text cannot cut any more: all but up to `stop` trailing `content`.
fn take_all_but(held: &mut String, content: char, stop: usize, started: bool) -> Option<String> {
    if !started || held.is_empty() {
        return None;
    }
    let kept = trailing(held, content, stop);
    let tail = held.split_off(held.len() - kept);
    let text = std::mem::replace(held, tail);
    if text.is_empty() { None } else { Some(text) }
}

fn strip_stop(mut text: String, content: char, stop: usize) -> String {
    text.truncate(text.len() - trailing(&text, content, stop));
    text
}

/// How many bytes the last up to `limit` characters take while they are `content`.
fn trailing(text: &str, content: char, limit: usize) -> usize {
    let count = text.chars().rev().take(limit).take_while(|&c| c == content).count();
    count * content.len_utf8()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_is_a_bijection() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=255u8 {
            let c = char_of_byte(byte);
            assert!(seen.insert(c));
            assert_eq!(byte_of_char(c), Some(byte));
        }
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
        assert_eq!(byte_of_char('ƀ'), None);
    }

    #[test]
    fn fallback_tokens_are_exact() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0xA>"), None);
        assert_eq!(fallback_byte("0x0A"), None);
    }
}
