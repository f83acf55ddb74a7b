//! The vocabulary of a SentencePiece `tokenizer.model`, where a checkpoint has nothing else.
//!
//! The file is a protocol buffer (`sentencepiece_model.proto` of the SentencePiece project), of
//! which the few fields that matter are read. Models of words and of characters are refused.

use super::contents::Vocabulary;
use super::error::{VocabularyError, malformed};

/// `TrainerSpec.model_type` of unigram models, which is the default, and of BPE.
const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

/// A field of a message: its number and its value.
enum Field<'a> {
    Number(u64, u64),
    Float(u64, f32),
    Bytes(u64, &'a [u8]),
}

/// What a unigram or BPE model says.
///
/// # Errors
/// When the file is none, or describes what is not supported.
pub fn vocabulary(file: &[u8]) -> Result<Vocabulary, VocabularyError> {
    let mut vocabulary = Vocabulary {
        kind: "llama".to_owned(),
        unk_id: Some(0),
        bos_id: Some(1),
        eos_id: Some(2),
        sentence_pieces: true,
        ..Vocabulary::default()
    };
    let (mut has_trainer, mut kind) = (false, UNIGRAM);
    for field in fields(file)? {
        match field {
            Field::Bytes(1, piece) => add_piece(&mut vocabulary, piece)?,
            Field::Bytes(2, trainer) => {
                has_trainer = true;
                kind = read_trainer(&mut vocabulary, trainer)?;
            }
            Field::Bytes(3, normalizer) => read_normalizer(&mut vocabulary, normalizer)?,
            _ => {}
        }
    }
    let kind = match kind {
        _ if !has_trainer => return Err(malformed("tokenizer.model doesn't say what it is")),
        UNIGRAM => "t5",
        BPE => "llama",
        other => {
            return Err(malformed(format!(
                "tokenizer.model is of kind {other}, supported are 1 (unigram) and 2 (BPE)"
            )));
        }
    };
    kind.clone_into(&mut vocabulary.kind);
    Ok(vocabulary)
}

fn add_piece(vocabulary: &mut Vocabulary, message: &[u8]) -> Result<(), VocabularyError> {
    let (mut text, mut score, mut kind) = (String::new(), 0.0, 1);
    for field in fields(message)? {
        match field {
            Field::Bytes(1, bytes) => {
                text = String::from_utf8(bytes.to_vec())
                    .map_err(|_| malformed("a piece of tokenizer.model is no UTF-8"))?;
            }
            Field::Float(2, value) => score = value,
            Field::Number(3, value) => kind = i32::try_from(value).unwrap_or(0),
            _ => {}
        }
    }
    vocabulary.tokens.push(text);
    vocabulary.scores.push(score);
    vocabulary.token_types.push(kind);
    Ok(())
}

/// Whether the model is BPE.
fn read_trainer(vocabulary: &mut Vocabulary, message: &[u8]) -> Result<u64, VocabularyError> {
    // A model that doesn't say is a unigram model. Ids below 0 mean that there is none.
    let id = |value: u64| u32::try_from(value).ok();
    let mut kind = UNIGRAM;
    for field in fields(message)? {
        match field {
            Field::Number(3, value) => kind = value,
            Field::Number(40, value) => vocabulary.unk_id = id(value),
            Field::Number(41, value) => vocabulary.bos_id = id(value),
            Field::Number(42, value) => vocabulary.eos_id = id(value),
            Field::Number(43, value) => vocabulary.pad_id = id(value),
            _ => {}
        }
    }
    Ok(kind)
}

fn read_normalizer(vocabulary: &mut Vocabulary, message: &[u8]) -> Result<(), VocabularyError> {
    // What a model doesn't say is on.
    vocabulary.remove_extra_whitespaces = Some(true);
    for field in fields(message)? {
        match field {
            Field::Bytes(2, charsmap) => vocabulary.precompiled_charsmap = charsmap.to_vec(),
            Field::Number(3, value) => vocabulary.add_space_prefix = Some(value != 0),
            Field::Number(4, value) => vocabulary.remove_extra_whitespaces = Some(value != 0),
            Field::Number(5, 0) => {
                return Err(malformed(
                    "tokenizer.model keeps spaces as they are, which is not supported",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// All fields of a message.
fn fields(mut message: &[u8]) -> Result<Vec<Field<'_>>, VocabularyError> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = number(&mut message)?;
        let field = tag >> 3;
        fields.push(match tag & 7 {
            0 => Field::Number(field, number(&mut message)?),
            1 => {
                take(&mut message, 8)?;
                continue;
            }
            2 => {
                let length = number(&mut message)?;
                Field::Bytes(field, take(&mut message, length)?)
            }
            5 => {
                let bytes = take(&mut message, 4)?.try_into().expect("four bytes were taken");
                Field::Float(field, f32::from_le_bytes(bytes))
            }
            other => return Err(malformed(format!("tokenizer.model has a field of type {other}"))),
        });
    }
    Ok(fields)
}

/// A number in groups of seven bits, lowest first.
fn number(message: &mut &[u8]) -> Result<u64, VocabularyError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(malformed("tokenizer.model has a number of more than ten bytes"))
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Result<&'a [u8], VocabularyError> {
    let length = usize::try_from(length).ok();
    let split = length.and_then(|length| message.split_at_checked(length));
    let (taken, rest) = split.ok_or_else(|| malformed("tokenizer.model is truncated"))?;
    *message = rest;
    Ok(taken)
}
