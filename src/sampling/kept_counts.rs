//! A sequence's token counts as a device keeps them: what changed since the draw before is all that goes
//! there.

use std::collections::HashMap;

use crate::kernels::sample::{CountChange, Counts, DeviceLogits, KeptCounts};

/// Least entries that a device has room for.
const LEAST_ROOM: usize = 256;

/// Which entry on a device stands for which token. What follows is lost when it is cloned, for two
/// sequences have no entries in common.
#[derive(Debug, Default)]
pub(super) struct Entries {
    room: Option<KeptCounts>,
    /// The token of each entry; freed ones have none.
    tokens: Vec<Option<u32>>,
    /// The entry of each token.
    places: HashMap<u32, u32>,
    free: Vec<u32>,
    /// Entries that are others than the device has.
    changed: Vec<u32>,
}

impl Clone for Entries {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Entries {
    /// Whether no draw was asked for yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.room.is_none() && self.tokens.is_empty()
    }

    /// Notes that a token's count is another, or that there is one now.
    pub(super) fn set(&mut self, token: u32) {
        let next = u32::try_from(self.tokens.len()).expect("vocabularies are below 2^32");
        let index = *self.places.entry(token).or_insert_with(|| self.free.pop().unwrap_or(next));
        if index == next {
            self.tokens.push(None);
        }
        self.tokens[index as usize] = Some(token);
        self.changed.push(index);
    }

    /// Notes that a token has no count any more.
    pub(super) fn remove(&mut self, token: u32) {
        let Some(index) = self.places.remove(&token) else { return };
        self.tokens[index as usize] = None;
        self.free.push(index);
        self.changed.push(index);
    }

    /// What is asked with a draw; `output` gives a token's count.
    pub(super) fn ask(
        &mut self,
        logits: &DeviceLogits,
        output: impl Fn(u32) -> f32,
    ) -> candle_core::Result<Counts> {
        let needed = self.tokens.len();
        if needed > self.room.as_ref().map_or(0, KeptCounts::capacity) {
            let room = needed.next_power_of_two().max(LEAST_ROOM);
            self.room = Some(logits.room_for_counts(room)?);
            self.change_all();
        }
        let changes = self.changes(output);
        let len = u32::try_from(needed).map_err(candle_core::Error::wrap)?;
        Ok(Counts { kept: self.room.clone(), len, changes })
    }

    fn change_all(&mut self) {
        self.changed = (0u32..).zip(&self.tokens).map(|(index, _)| index).collect();
    }

    /// The changes since the last call, each entry once.
    fn changes(&mut self, output: impl Fn(u32) -> f32) -> Vec<CountChange> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        let change = |index: u32| {
            let token = self.tokens[index as usize];
            CountChange { index, token, output: token.map_or(0.0, &output) }
        };
        changed.into_iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_told_and_places_are_used_again() {
        let mut entries = Entries::default();
        let change = |index, token, output| CountChange { index, token, output };
        for token in [7, 9, 7] {
            entries.set(token);
        }
        let told = entries.changes(|token| if token == 7 { 2.0 } else { 1.0 });
        assert_eq!(told, [change(0, Some(7), 2.0), change(1, Some(9), 1.0)]);
        assert_eq!(entries.changes(|_| 0.0), []);

        entries.set(9);
        assert_eq!(entries.changes(|_| 2.0), [change(1, Some(9), 2.0)]);

        // The oldest leaves a window as another comes.
        entries.remove(7);
        assert_eq!(entries.changes(|_| 9.0), [change(0, None, 0.0)]);
        entries.set(4);
        entries.set(5);
        entries.remove(8);
        let told = entries.changes(|_| 1.0);
        assert_eq!(told, [change(0, Some(4), 1.0), change(2, Some(5), 1.0)]);
        assert!(entries.clone().is_unknown() && !entries.is_unknown());
    }
}
