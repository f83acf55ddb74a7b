//! Drafts of whole blocks: what the model had at new positions is remembered first, then all blocks are
//! drafted in one pass.

use std::time::{Duration, Instant};

use candle_core::Result;

use super::{DraftModel, ModelDraft, Part};
use crate::runner::DraftedBlock;
use crate::sampling::most_likely::most_likely;
use crate::scheduler::Scheduler;
use crate::scheduler::sequence::SequenceId;

impl DraftModel {
    /// Drafts a block for each of the `parts` behind which the last token follows; `chance` and
    /// `least_chance` as in [`Self::draft`]. Returns the number of blocks and the time that they took.
    pub(super) fn draft_blocks(
        &mut self,
        scheduler: &mut Scheduler,
        block: DraftedBlock,
        parts: Vec<Part>,
        drafts: &mut [ModelDraft],
        least_chance: f32,
        chance: impl Fn(SequenceId, f32) -> f32,
    ) -> Result<Vec<(usize, Duration)>> {
        let began = Instant::now();
        let mut open = Vec::new();
        for part in parts.iter().filter(|part| part.samples) {
            let Some(text) = scheduler.drafted_text(part.id) else { continue };
            let Some(last) = text.tokens.last() else { continue };
            let masks = drafts[part.draft].room - usize::from(block.last_drafts);
            open.push(Part {
                id: part.id,
                draft: part.draft,
                first: text.tokens.len() - 1,
                token_ids: vec![*last],
                masks: vec![block.mask; masks],
                hidden: Vec::new(),
                samples: true,
            });
        }
        let known = parts.into_iter().filter(|part| !part.token_ids.is_empty());
        let known: Vec<_> = known.map(|part| Part { samples: false, ..part }).collect();
        if !known.is_empty() {
            self.compute(scheduler, &known)?;
        }
        if open.is_empty() {
            return Ok(Vec::new());
        }
        let (mut logits, _) = self.compute(scheduler, &open)?;
        let mut rows = logits.rows_mut();
        for part in &open {
            let draft = &mut drafts[part.draft];
            let own = rows.by_ref().take(1 + part.masks.len());
            for row in own.collect::<Vec<_>>().iter().skip(usize::from(!block.last_drafts)) {
                if draft.tokens.len() == draft.depth || draft.chance < least_chance {
                    break;
                }
                let Some((token, probability)) = most_likely(&row[..self.vocab_size]) else {
                    break;
                };
                draft.tokens.push((token, probability));
                draft.chance *= chance(draft.id, probability);
            }
        }
        Ok(vec![(open.len(), began.elapsed())])
    }
}
