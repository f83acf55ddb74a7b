//! What a sequence must say: a grammar for the answer, behind its reasoning.

use super::error::SamplingError;
use super::params::SamplingParams;
use super::reasoning::Reasoning;
use crate::structured::cursor::Cursor;
use crate::structured::error::GrammarError;
use crate::structured::grammar::Grammar;

/// Tokens that a grammar may add at a time without asking the model.
const MOST_FORCED: usize = 32;

/// The state of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    cursor: Option<Cursor>,
    reasoning: Option<Reasoning>,
}

impl Constraint {
    /// `None` where anything may be said.
    pub(super) fn new(params: &SamplingParams) -> Option<Self> {
        let cursor = params.grammar.as_ref().map(Grammar::cursor);
        let reasoning = params.reasoning.clone().map(Reasoning::new);
        (cursor.is_some() || reasoning.is_some()).then_some(Self { cursor, reasoning })
    }

    /// Computes the next mask, which [`apply`](Self::apply) then finds.
    pub(super) fn prepare(&mut self) {
        if !self.thinks()
            && let Some(cursor) = &mut self.cursor
        {
            // The failure is told when the mask is used.
            let _ = cursor.mask();
        }
    }

    /// Whether the answer may only end now.
    pub(super) fn is_complete(&self) -> bool {
        !self.thinks() && self.cursor.as_ref().is_some_and(Cursor::is_complete)
    }

    /// Whether [`apply`](Self::apply) would change anything now.
    pub(super) fn binds(&self) -> bool {
        let due = self.reasoning.as_ref().is_some_and(|reasoning| reasoning.due().is_some());
        due || (self.cursor.is_some() && !self.thinks())
    }

    /// Excludes what may not come next.
    pub(super) fn apply(&mut self, logits: &mut [f32]) -> Result<(), SamplingError> {
        if let Some(due) = self.reasoning.as_ref().and_then(Reasoning::due) {
            keep_only(logits, due);
            return Ok(());
        }
        let opens = self.reasoning.as_ref().and_then(Reasoning::may_open);
        let thinks = self.thinks();
        let Some(cursor) = self.cursor.as_mut().filter(|_| !thinks) else { return Ok(()) };
        let kept = opens.and_then(|id| Some((id, *logits.get(id as usize)?)));
        let mask = cursor.mask()?;
        for (index, chunk) in logits.chunks_mut(32).enumerate() {
            let allowed = mask.get(index).copied().unwrap_or(0);
            if allowed != u32::MAX {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if allowed >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
        if let Some((id, logit)) = kept {
            logits[id as usize] = logit;
        }
        Ok(())
    }

    /// What may come next: the only token, or a bit for each that is allowed, in words of 32.
    pub(super) fn allowed(&mut self) -> Result<(Option<u32>, Option<Vec<u32>>), SamplingError> {
        if let Some(due) = self.reasoning.as_ref().and_then(Reasoning::due) {
            return Ok((Some(due), None));
        }
        let opens = self.reasoning.as_ref().and_then(Reasoning::may_open);
        let thinks = self.thinks();
        let Some(cursor) = self.cursor.as_mut().filter(|_| !thinks) else {
            return Ok((None, None));
        };
        let mut mask = cursor.mask()?.to_vec();
        if let Some(id) = opens {
            let (index, bit) = (id as usize / 32, id % 32);
            mask.resize(mask.len().max(index + 1), 0);
            mask[index] |= 1 << bit;
        }
        Ok((None, Some(mask)))
    }

    /// Takes the token that was drawn.
    pub(super) fn push(&mut self, token: u32) -> Result<(), SamplingError> {
        let reasons = self.reasoning.as_mut().is_some_and(|reasoning| reasoning.push(token));
        match &mut self.cursor {
            Some(cursor) if !reasons => Ok(cursor.accept(token)?),
            _ => Ok(()),
        }
    }

    /// Takes the tokens that can only come next, and gives them.
    pub(super) fn force(&mut self) -> Result<Vec<u32>, SamplingError> {
        let Some(cursor) = self.answering() else { return Ok(Vec::new()) };
        let mut forced = cursor.forced()?;
        forced.truncate(MOST_FORCED);
        for token in &forced {
            cursor.accept(*token)?;
        }
        Ok(forced)
    }

    /// The tokens that can only come next, none of them taken; a failure is told when the next is drawn.
    pub(super) fn required(&mut self) -> Vec<u32> {
        self.answering().and_then(|cursor| cursor.forced().ok()).unwrap_or_default()
    }

    /// The grammar's state, where the next token is one of the answer.
    fn answering(&mut self) -> Option<&mut Cursor> {
        let may_think = self
            .reasoning
            .as_ref()
            .is_some_and(|reasoning| reasoning.inside() || reasoning.may_open().is_some());
        self.cursor.as_mut().filter(|_| !may_think)
    }

    fn thinks(&self) -> bool {
        self.reasoning.as_ref().is_some_and(Reasoning::inside)
    }
}

impl From<GrammarError> for SamplingError {
    fn from(error: GrammarError) -> Self {
        Self::Grammar(error.to_string())
    }
}

fn keep_only(logits: &mut [f32], token: u32) {
    for (id, logit) in (0..).zip(logits.iter_mut()) {
        if id != token {
            *logit = f32::NEG_INFINITY;
        } else if *logit == f32::NEG_INFINITY {
            *logit = 0.0;
        }
    }
}
