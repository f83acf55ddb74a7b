//! The sequence breakers of the DRY penalty as tokens, for the lists that the last requests had.

use std::sync::{Arc, Mutex, PoisonError};

use crate::sampling::params::Breakers;
use crate::text::sequence_breakers::sequence_breakers;
use crate::text::tokenizer::Tokenizer;

/// Lists of texts whose tokens are remembered.
const CAPACITY: usize = 8;

/// Lists of texts and their tokens, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct BreakerCache(Mutex<Vec<(Vec<String>, Arc<Breakers>)>>);

impl BreakerCache {
    /// The tokens that contain one of these texts. Walks the whole vocabulary unless one of the
    /// last requests had the same texts.
    pub(crate) fn tokens(&self, texts: &[String], tokenizer: &Tokenizer) -> Arc<Breakers> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, breakers)) = lock().iter().find(|(known, _)| known == texts) {
            return Arc::clone(breakers);
        }
        let breakers = Arc::new(sequence_breakers(tokenizer, texts));
        let mut cache = lock();
        cache.push((texts.to_vec(), Arc::clone(&breakers)));
        if cache.len() > CAPACITY {
            cache.remove(0);
        }
        breakers
    }
}
