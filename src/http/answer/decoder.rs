//! Tokens of one choice to deltas.
//!
//! A token's record (id, logprobs) travels with the delta that releases its text, which may be later
//! than the token came: a stop string may be beginning, or a character be incomplete. Knows tokens
//! and text, nothing of JSON or of the engine's threads.

use std::collections::VecDeque;
use std::sync::Arc;

use super::delta::{Delta, Finish, FinishKind, StopCause, TokenRecord};
use super::reader::{Reader, ReadingPlan};
use crate::sampling::logprobs::TokenLogprobs;
use crate::scheduler::stop::{FinishReason, StopConditions};
use crate::text::detokenizer::Detokenizer;
use crate::text::stop_strings::{StopOutcome, StopStrings};
use crate::text::tokenizer::Tokenizer;

/// How a choice's tokens become text.
#[derive(Clone, Debug)]
pub struct DecodingOptions {
    /// Texts that end the answer.
    pub stop_strings: Vec<String>,
    /// Keep what ended the answer, text or token, at its end.
    pub include_stop_str_in_output: bool,
    /// Leave special tokens out of the text, but for those that the reading needs.
    pub skip_special_tokens: bool,
    /// How the text is read.
    pub reading: ReadingPlan,
}

/// Turns the tokens of one choice into deltas.
#[derive(Debug)]
pub struct ChoiceDecoder {
    detokenizer: Detokenizer,
    stop_strings: StopStrings,
    stop: StopConditions,
    include_stop: bool,
    reader: Reader,
    num_tokens: usize,
    num_reasoning_tokens: usize,
    /// Bytes of text that came from tokens, and that passed the stop strings.
    decoded: usize,
    released: usize,
    /// Tokens not released yet, with where their text ends, once that is certain.
    pending: VecDeque<(TokenRecord, Option<usize>)>,
    /// What the next delta will carry.
    next: Delta,
    stopped_by: Option<String>,
}

impl ChoiceDecoder {
    /// Begins an empty answer. `stop` is what the engine ends the sequence by.
    pub fn new(tokenizer: Arc<Tokenizer>, options: &DecodingOptions, stop: StopConditions) -> Self {
        let include_stop = options.include_stop_str_in_output;
        let shown = options.reading.markers().filter_map(|marker| tokenizer.token_id(marker));
        let shown = shown.collect();
        Self {
            detokenizer: Detokenizer::new(tokenizer, options.skip_special_tokens).showing(shown),
            stop_strings: StopStrings::new(options.stop_strings.iter().cloned(), include_stop),
            stop,
            include_stop,
            reader: Reader::new(&options.reading),
            num_tokens: 0,
            num_reasoning_tokens: 0,
            decoded: 0,
            released: 0,
            pending: VecDeque::new(),
            next: Delta::default(),
            stopped_by: None,
        }
    }

    /// Appends a token. `None` while there is nothing to tell. A delta with `finish` means that a
    /// stop string was found: the rest of the sequence is not wanted.
    pub fn push(&mut self, id: u32, logprobs: Option<TokenLogprobs>) -> Option<Delta> {
        self.num_tokens += 1;
        self.pending.push_back((TokenRecord { id, logprobs }, None));
        if !self.ends_silently(id) {
            let text = self.detokenizer.push(id);
            self.advance(&text);
        }
        if let Some(stop_string) = self.stopped_by.take() {
            return Some(self.end(FinishKind::Stop, Some(StopCause::Text(stop_string))));
        }
        self.next.tells_anything().then(|| std::mem::take(&mut self.next))
    }

    /// Takes logprobs of the prompt, which go with the first delta.
    pub fn push_prompt_logprobs(&mut self, logprobs: Vec<TokenLogprobs>) {
        self.next.prompt_logprobs.extend(logprobs);
    }

    /// Ends the answer as the engine said, with what was held back.
    pub fn finish(&mut self, reason: FinishReason) -> Delta {
        self.flush();
        match (self.stopped_by.take(), reason) {
            (Some(stop_string), _) => {
                self.end(FinishKind::Stop, Some(StopCause::Text(stop_string)))
            }
            (None, FinishReason::Eos) => self.end(FinishKind::Stop, None),
            (None, FinishReason::StopToken(id)) => {
                self.end(FinishKind::Stop, Some(StopCause::Token(id)))
            }
            (None, FinishReason::Length) => self.end(FinishKind::Length, None),
        }
    }

    /// Ends the answer because there is no more time.
    pub fn finish_at_deadline(&mut self) -> Delta {
        self.flush();
        self.stopped_by = None;
        self.end(FinishKind::Length, Some(StopCause::Deadline))
    }

    /// Tokens so far.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Tokens so far that were reasoning.
    pub fn num_reasoning_tokens(&self) -> usize {
        self.num_reasoning_tokens
    }

    /// Whether the token ends the sequence and is not part of the text.
    fn ends_silently(&self, id: u32) -> bool {
        let ended = self.stop.check(id, self.num_tokens);
        let by_token = matches!(ended, Some(FinishReason::Eos | FinishReason::StopToken(_)));
        by_token && !self.include_stop
    }

    fn advance(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.decoded += text.len();
        for (_, end) in &mut self.pending {
            end.get_or_insert(self.decoded);
        }
        match self.stop_strings.push(text) {
            StopOutcome::Continue(text) => self.release(&text),
            StopOutcome::Stopped { text, stop_string } => {
                self.release(&text);
                self.stopped_by = Some(stop_string);
            }
        }
    }

    fn release(&mut self, text: &str) {
        self.released += text.len();
        let mut released = 0;
        while let Some((_, Some(end))) = self.pending.front()
            && *end <= self.released
        {
            self.next.tokens.extend(self.pending.pop_front().map(|(record, _)| record));
            released += 1;
        }
        // A token belongs to where its text ends; the text that ends reasoning is part of it.
        let reasoned = self.reader.reasons();
        self.reader.push(text, &mut self.next);
        if reasoned || self.reader.reasons() {
            self.num_reasoning_tokens += released;
        }
    }

    /// Gives out what detokenizer and stop strings held back.
    fn flush(&mut self) {
        let rest = self.detokenizer.finish();
        self.advance(&rest);
        if self.stopped_by.is_none() {
            let held = self.stop_strings.finish();
            self.release(&held);
        }
    }

    fn end(&mut self, reason: FinishKind, cause: Option<StopCause>) -> Delta {
        self.reader.finish(&mut self.next);
        let reason = match reason {
            FinishKind::Stop if self.reader.called_tools() => FinishKind::ToolCalls,
            reason => reason,
        };
        let mut delta = std::mem::take(&mut self.next);
        delta.tokens.extend(self.pending.drain(..).map(|(record, _)| record));
        delta.finish = Some(Finish { reason, cause });
        delta
    }
}
