//! Memory for weights: carved from large mappings on huge pages, where the system has them.
//!
//! Two threads read a third faster from 2 MiB pages than from 4 KiB pages, and a matrix of a small
//! model is often less than one such page: so matrices share mappings that begin at its boundary.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::Result;
use memmap2::MmapRaw;

use super::super::huge_pages;

/// Smaller buffers share a mapping of this size.
const SHARED_BYTES: usize = 64 << 20;
/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Where a buffer may begin: two cache lines apart from its neighbour.
const ALIGNMENT: usize = 128;

/// Bytes with one owner; zero at first.
pub(crate) struct Buffer {
    mapping: Arc<MmapRaw>,
    range: Range<usize>,
}

/// The mapping that small buffers are carved from, and where its free part begins.
static SHARED: Mutex<Option<(Arc<MmapRaw>, usize)>> = Mutex::new(None);

impl Buffer {
    /// `len` zeros. Memory is taken as pages are first touched.
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        if len >= SHARED_BYTES / 2 {
            let (mapping, start) = map(len)?;
            return Ok(Self { mapping: Arc::new(mapping), range: start..start + len });
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        // A mapping that nothing else holds belonged to a model that is gone.
        let fits = |(mapping, free): &(Arc<MmapRaw>, usize)| {
            Arc::strong_count(mapping) > 1 && free + len <= mapping.len()
        };
        let (mapping, start) = if let Some(current) = shared.take().filter(fits) {
            current
        } else {
            let (mapping, start) = map(SHARED_BYTES)?;
            (Arc::new(mapping), start)
        };
        *shared = Some((mapping.clone(), (start + len).next_multiple_of(ALIGNMENT)));
        Ok(Self { mapping, range: start..start + len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; it was handed
        // to this buffer alone, and writing needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.first(), self.range.len()) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.range.len()) }
    }

    fn first(&self) -> *mut u8 {
        self.mapping.as_mut_ptr().wrapping_add(self.range.start)
    }
}

/// A mapping with room for `len` bytes, and the first huge page boundary in it.
fn map(len: usize) -> Result<(MmapRaw, usize)> {
    let mapping = memmap2::MmapOptions::new().len(len + HUGE_PAGE).map_anon()?;
    // Before the first touch.
    huge_pages::ask_for(&mapping);
    let mapping = MmapRaw::from(mapping);
    let start = mapping.as_mut_ptr().align_offset(HUGE_PAGE);
    Ok((mapping, start.min(HUGE_PAGE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_at_zero_and_never_overlap() {
        let mut buffers: Vec<Buffer> =
            [0, 1, 100, 4096, SHARED_BYTES / 2 - 1, SHARED_BYTES / 2 - 1, SHARED_BYTES]
                .into_iter()
                .map(|len| Buffer::zeroed(len).unwrap())
                .collect();
        for (i, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.bytes().iter().step_by(1000).all(|byte| *byte == 0));
            assert_eq!(buffer.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            buffer.bytes_mut().fill(u8::try_from(i).unwrap() + 1);
        }
        for (i, buffer) in buffers.iter().enumerate() {
            let own = u8::try_from(i).unwrap() + 1;
            assert!(buffer.bytes().iter().step_by(97).all(|byte| *byte == own), "buffer {i}");
        }
    }
}
