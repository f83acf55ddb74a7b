//! How much each key was served, so that waiting sequences of different keys take turns by tokens and not
//! by how many there are: the virtual token counter of Sheng et al., "Fairness in Serving Large Language
//! Models" (OSDI 2024).
//!
//! A key's counter grows by the tokens that are computed and sampled for it; whose is lowest is served
//! next. A key that comes back after a while begins no lower than those that are there, so nobody saves
//! up by being idle, and no higher than it was, so nobody gains by going and coming.

use std::collections::HashMap;

/// Tells the keys apart that have a share each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShareId(pub u64);

/// What was served of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    served: u64,
    /// What of that the last prompt was, which may not be computed yet.
    last: u64,
    /// Its sequences that wait or run.
    present: usize,
}

/// What was served of all keys.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    of: HashMap<ShareId, Share>,
    /// Keys with sequences.
    present: usize,
    /// The counter at which a key begins that is alone.
    floor: u64,
}

impl Shares {
    /// A sequence of a key comes.
    pub fn enter(&mut self, key: ShareId) {
        self.raise_floor();
        let share = self.of.entry(key).or_default();
        if share.present == 0 {
            share.served = share.served.max(self.floor);
            self.present += 1;
        }
        share.present += 1;
    }

    /// A sequence of a key is gone.
    pub fn leave(&mut self, key: ShareId) {
        self.raise_floor();
        let Some(share) = self.of.get_mut(&key) else { return };
        share.present = share.present.saturating_sub(1);
        if share.present > 0 {
            return;
        }
        self.present -= 1;
        if self.present == 0 {
            self.floor = self.floor.max(share.served);
        }
        // What a key that comes back begins with anyway needs not be remembered.
        let floor = self.floor;
        self.of.retain(|_, share| share.present > 0 || share.served > floor);
    }

    /// A prompt of a key is admitted, of which so many tokens are to be computed.
    pub fn admit(&mut self, key: ShareId, tokens: usize) {
        self.serve(key, tokens);
        if let Some(share) = self.of.get_mut(&key) {
            share.last = tokens as u64;
        }
    }

    /// Tokens of a key were sampled.
    pub fn serve(&mut self, key: ShareId, tokens: usize) {
        if let Some(share) = self.of.get_mut(&key) {
            share.served += tokens as u64;
        }
    }

    /// What was served of a key.
    pub fn served(&self, key: ShareId) -> u64 {
        self.of.get(&key).map_or(self.floor, |share| share.served)
    }

    /// Whether keys have to take turns.
    pub fn are_several(&self) -> bool {
        self.present > 1
    }

    /// Nobody who comes begins below those that are there. A prompt that is being computed hasn't been
    /// served yet: whoever comes meanwhile stands beside it, not behind it, as in start-time fair queueing
    /// (Goyal, Vin, Cheng: SIGCOMM 1996).
    fn raise_floor(&mut self) {
        let there = self.of.values().filter(|share| share.present > 0);
        if let Some(lowest) = there.map(|share| share.served - share.last).min() {
            self.floor = self.floor.max(lowest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ShareId = ShareId(1);
    const B: ShareId = ShareId(2);

    #[test]
    fn who_comes_begins_where_the_others_are() {
        let mut shares = Shares::default();
        shares.enter(A);
        shares.serve(A, 100);
        assert!(!shares.are_several());
        shares.enter(B);
        assert!(shares.are_several());
        assert_eq!((shares.served(A), shares.served(B)), (100, 100));
        shares.serve(B, 50);
        shares.leave(B);
        shares.enter(B);
        assert_eq!(shares.served(B), 150, "going and coming gains nothing");
        shares.leave(B);
        shares.serve(A, 400);
        shares.enter(B);
        assert_eq!(shares.served(B), 500, "nor does being away");
    }

    #[test]
    fn who_is_alone_owes_nothing_to_nobody() {
        let mut shares = Shares::default();
        shares.enter(A);
        shares.serve(A, 1000);
        shares.leave(A);
        shares.enter(B);
        assert_eq!(shares.served(B), 1000);
        assert_eq!(shares.of.len(), 1, "idle keys are forgotten");
        shares.leave(B);
        assert!(shares.of.is_empty());
    }
}
