//! What each key has used of each model, by the hour: counted here, kept in the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{Store, StoreError, UsageCounts, UsageRow, now_ms};

/// Milliseconds of an hour.
const HOUR: i64 = 3_600_000;

/// A key's name, a model's name, and the hour since 1970.
type Place = (i64, Arc<str>, Arc<str>);

/// What was used and isn't in the store yet.
#[derive(Debug, Default)]
pub(crate) struct UsageBook {
    unwritten: Mutex<HashMap<Place, UsageCounts>>,
    /// One writes at a time: who reads the store after a write finds what was counted before it.
    writing: tokio::sync::Mutex<()>,
}

impl UsageBook {
    fn unwritten(&self) -> MutexGuard<'_, HashMap<Place, UsageCounts>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something for now.
    pub(crate) fn add(&self, key: &Arc<str>, model: &Arc<str>, counts: UsageCounts) {
        let place = (now_ms() / HOUR, Arc::clone(key), Arc::clone(model));
        self.unwritten().entry(place).or_default().add(counts);
    }

    /// Writes what was counted so far. What can't be written now is kept for the next time.
    ///
    /// # Errors
    /// When the store is down or full.
    pub(crate) async fn write(&self, store: &Store) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        let taken: Vec<_> =
            self.unwritten().iter().map(|(at, counts)| (at.clone(), *counts)).collect();
        if taken.is_empty() {
            return Ok(());
        }
        let row = |((hour, key, model), counts): &(Place, UsageCounts)| UsageRow {
            hour: *hour,
            key: key.to_string(),
            model: model.to_string(),
            counts: *counts,
        };
        store.add_usage(taken.iter().map(row).collect()).await?;
        let mut unwritten = self.unwritten();
        for (place, counts) in taken {
            if let Some(left) = unwritten.get_mut(&place) {
                left.subtract(counts);
                if left.is_zero() {
                    unwritten.remove(&place);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StorePlace;

    #[tokio::test]
    async fn what_was_counted_is_written_once() {
        let store = Store::open(&StorePlace::Memory, 16 << 20).unwrap();
        let book = UsageBook::default();
        let [key, model] = ["k", "m"].map(Arc::<str>::from);
        let counts = UsageCounts { requests: 1, input: 5, cached: 2, output: 3 };
        for _ in 0..3 {
            book.add(&key, &model, counts);
            book.write(&store).await.unwrap();
        }
        book.write(&store).await.unwrap();
        let rows = store.usage(0, i64::MAX, None, 24, 10).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].counts, UsageCounts { requests: 3, input: 15, cached: 6, output: 9 });
    }
}
