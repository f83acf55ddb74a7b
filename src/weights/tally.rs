//! What became of the matrices of a checkpoint: how many are kept in which form, in how many bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number and bytes of the matrices of one form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    matrices: usize,
    bytes: usize,
}

/// A tally that all views of a checkpoint share.
#[derive(Clone, Debug, Default)]
pub struct WeightTally(Arc<Mutex<BTreeMap<String, Count>>>);

impl WeightTally {
    /// Counts one matrix of a form, such as `Q8_0`.
    pub fn add(&self, form: &str, bytes: usize) {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = forms.entry(form.to_owned()).or_default();
        count.matrices += 1;
        count.bytes += bytes;
    }

    /// Bytes of all matrices.
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|c| c.bytes).sum()
    }
}

impl fmt::Display for WeightTally {
    /// As in `24 x Q5_0, 145 x Q8_0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, (form, count)) in forms.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{} x {form}", count.matrices)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_form_over_all_views() {
        let tally = WeightTally::default();
        let view = tally.clone();
        view.add("Q8_0", 10);
        view.add("BF16", 7);
        tally.add("Q8_0", 5);
        assert_eq!(tally.bytes(), 22);
        assert_eq!(tally.to_string(), "1 x BF16, 2 x Q8_0");
    }
}
