//! Reading and writing the cache's element types, one head of one block at a time.
//!
//! What is read back is exact in f32 for every type, so attention over a quantized cache equals
//! attention over the same numbers stored as f32, to the bit.

use candle_core::WithDType;
use float8::F8E4M3;
use half::{bf16, f16};

use super::KV_BLOCK;
use super::kv_format::{GROUP, GROUP_BYTES};
use crate::cpu::{Element, LANES, Lanes, load_tail};
use crate::storage::Mutable;

/// Sixteen floats, as one vector register holds them.
pub(crate) type Vector = [f32; LANES];
/// One number per position of a KV block.
pub(crate) type PerPosition = [Vector; KV_BLOCK / LANES];

/// A type that the cache's tensors are made of.
///
/// `keys` and `values` are those of one head in one block, as [`super::kv_format`] describes them.
pub(crate) trait Stored: WithDType + Mutable {
    /// The type of single elements, where those are stored one by one.
    type Plain: Element;

    /// The elements themselves, if they are stored one by one.
    fn plain(stored: &[Self]) -> Option<&[Self::Plain]>;

    /// Reads all keys as f32: `[head_dim]`.
    fn read_keys<L: Lanes>(l: L, keys: &[Self], to: &mut [PerPosition]);

    /// Reads one position's value as f32, `[head_dim]` rounded up to whole vectors.
    fn read_value<L: Lanes>(
        l: L,
        values: &[Self],
        head_dim: usize,
        offset: usize,
        to: &mut [Vector],
    );

    /// Stores a key for the position at `offset`; `head` is padded to whole vectors.
    fn write_key<L: Lanes>(
        l: L,
        head: &[Vector],
        head_dim: usize,
        offset: usize,
        keys: &mut [Self],
    );

    /// Stores a value for the position at `offset`; `head` is padded to whole vectors.
    fn write_value<L: Lanes>(
        l: L,
        head: &[Vector],
        head_dim: usize,
        offset: usize,
        values: &mut [Self],
    );

    /// Copies the key of the position at `offset` of one block to that at `to_offset` of another.
    fn copy_key(keys: &[Self], offset: usize, to: &mut [Self], to_offset: usize);
}

macro_rules! stored_plainly {
    ($type:ty) => {
        impl Stored for $type {
            type Plain = Self;

            #[inline(always)]
            fn plain(stored: &[Self]) -> Option<&[Self]> {
                Some(stored)
            }
            #[inline(always)]
            fn read_keys<L: Lanes>(l: L, keys: &[Self], to: &mut [PerPosition]) {
                let (from, _) = keys.as_chunks::<LANES>();
                for (to, from) in to.as_flattened_mut().iter_mut().zip(from) {
                    l.store(Self::load(l, from), to);
                }
            }
            #[inline(always)]
            fn read_value<L: Lanes>(
                l: L,
                values: &[Self],
                head_dim: usize,
                offset: usize,
                to: &mut [Vector],
            ) {
                let (whole, tail) =
                    values[offset * head_dim..(offset + 1) * head_dim].as_chunks::<LANES>();
                for (to, from) in to.iter_mut().zip(whole) {
                    l.store(Self::load(l, from), to);
                }
                if !tail.is_empty() {
                    l.store(load_tail(l, tail), &mut to[whole.len()]);
                }
            }
            #[inline(always)]
            fn write_key<L: Lanes>(
                l: L,
                head: &[Vector],
                head_dim: usize,
                offset: usize,
                keys: &mut [Self],
            ) {
                let columns = keys[..head_dim * KV_BLOCK].chunks_mut(LANES * KV_BLOCK);
                for (vector, columns) in head.iter().zip(columns) {
                    let narrow = Self::narrow(l, l.load(vector));
                    for (x, column) in narrow.iter().zip(columns.chunks_exact_mut(KV_BLOCK)) {
                        column[offset] = *x;
                    }
                }
            }
            #[inline(always)]
            fn write_value<L: Lanes>(
                l: L,
                head: &[Vector],
                head_dim: usize,
                offset: usize,
                values: &mut [Self],
            ) {
                let row = &mut values[offset * head_dim..(offset + 1) * head_dim];
                for (vector, to) in head.iter().zip(row.chunks_mut(LANES)) {
                    let narrow = Self::narrow(l, l.load(vector));
                    match to.first_chunk_mut::<LANES>() {
                        Some(whole) => *whole = narrow,
                        None => to.copy_from_slice(&narrow[..to.len()]),
                    }
                }
            }
            #[inline(always)]
            fn copy_key(keys: &[Self], offset: usize, to: &mut [Self], to_offset: usize) {
                for (from, to) in keys.chunks_exact(KV_BLOCK).zip(to.chunks_exact_mut(KV_BLOCK)) {
                    to[to_offset] = from[offset];
                }
            }
        }
    };
}

stored_plainly!(f32);
stored_plainly!(bf16);
stored_plainly!(f16);
stored_plainly!(F8E4M3);

/// Bytes of the scales of one group of keys.
const KEY_SCALES: usize = 2 * KV_BLOCK;

/// The `q8_0` form: integers of 8 bits. Keys: for each group the scales of 32 positions, then a row of
/// 32 positions per element. Values: for each position its groups, scale first.
impl Stored for u8 {
    type Plain = f32;

    #[inline(always)]
    fn plain(_: &[Self]) -> Option<&[f32]> {
        None
    }
    #[inline(always)]
    fn read_keys<L: Lanes>(l: L, keys: &[Self], to: &mut [PerPosition]) {
        let groups = keys.chunks_exact(GROUP_BYTES * KV_BLOCK);
        for (group, to) in groups.zip(to.chunks_exact_mut(GROUP)) {
            let (scales, numbers) = group.split_at(KEY_SCALES);
            let (scales, _) = scales.as_chunks::<{ 2 * LANES }>();
            let scales = [load_scales(l, &scales[0]), load_scales(l, &scales[1])];
            let (numbers, _) = numbers.as_chunks::<LANES>();
            let (numbers, _) = numbers.as_chunks::<{ KV_BLOCK / LANES }>();
            for (numbers, to) in numbers.iter().zip(to) {
                for half in 0..KV_BLOCK / LANES {
                    let x = l.load_i8(&numbers[half].map(u8::cast_signed));
                    l.store(l.mul(x, scales[half]), &mut to[half]);
                }
            }
        }
    }
    #[inline(always)]
    fn read_value<L: Lanes>(
        l: L,
        values: &[Self],
        head_dim: usize,
        offset: usize,
        to: &mut [Vector],
    ) {
        let width = head_dim / GROUP * GROUP_BYTES;
        let row = &values[offset * width..(offset + 1) * width];
        for (group, to) in row.chunks_exact(GROUP_BYTES).zip(to.chunks_exact_mut(GROUP / LANES)) {
            let scale = l.splat(f16::from_le_bytes([group[0], group[1]]).to_f32());
            let (numbers, _) = group[2..].as_chunks::<LANES>();
            for (numbers, to) in numbers.iter().zip(to) {
                l.store(l.mul(l.load_i8(&numbers.map(u8::cast_signed)), scale), to);
            }
        }
    }
    #[inline(always)]
    fn write_key<L: Lanes>(l: L, head: &[Vector], _: usize, offset: usize, keys: &mut [Self]) {
        let groups = keys.chunks_exact_mut(GROUP_BYTES * KV_BLOCK);
        for (from, group) in head.chunks_exact(GROUP / LANES).zip(groups) {
            let (scale, numbers) = quantize(l, from);
            let (scales, rows) = group.split_at_mut(KEY_SCALES);
            scales[2 * offset..2 * offset + 2].copy_from_slice(&scale.to_le_bytes());
            for (x, row) in numbers.as_flattened().iter().zip(rows.chunks_exact_mut(KV_BLOCK)) {
                row[offset] = x.cast_unsigned();
            }
        }
    }
    #[inline(always)]
    fn write_value<L: Lanes>(
        l: L,
        head: &[Vector],
        head_dim: usize,
        offset: usize,
        values: &mut [Self],
    ) {
        let width = head_dim / GROUP * GROUP_BYTES;
        let row = &mut values[offset * width..(offset + 1) * width];
        let groups = row.chunks_exact_mut(GROUP_BYTES);
        for (from, group) in head.chunks_exact(GROUP / LANES).zip(groups) {
            let (scale, numbers) = quantize(l, from);
            group[..2].copy_from_slice(&scale.to_le_bytes());
            for (x, to) in numbers.as_flattened().iter().zip(&mut group[2..]) {
                *to = x.cast_unsigned();
            }
        }
    }
    #[inline(always)]
    fn copy_key(keys: &[Self], offset: usize, to: &mut [Self], to_offset: usize) {
        let groups = keys.chunks_exact(GROUP_BYTES * KV_BLOCK);
        for (from, to) in groups.zip(to.chunks_exact_mut(GROUP_BYTES * KV_BLOCK)) {
            let ((scales, rows), (to_scales, to_rows)) =
                (from.split_at(KEY_SCALES), to.split_at_mut(KEY_SCALES));
            to_scales[2 * to_offset..2 * to_offset + 2]
                .copy_from_slice(&scales[2 * offset..2 * offset + 2]);
            let rows = rows.chunks_exact(KV_BLOCK).zip(to_rows.chunks_exact_mut(KV_BLOCK));
            rows.for_each(|(from, to)| to[to_offset] = from[offset]);
        }
    }
}

#[inline(always)]
fn load_scales<L: Lanes>(l: L, bytes: &[u8; 2 * LANES]) -> L::V {
    let (pairs, _) = bytes.as_chunks::<2>();
    let mut scales = [f16::ZERO; LANES];
    for (scale, pair) in scales.iter_mut().zip(pairs) {
        *scale = f16::from_le_bytes(*pair);
    }
    l.load_f16(&scales)
}

/// A group as a scale and integers of 8 bits: `x` is about `scale * integer`. A group with an element
/// that is not finite becomes NaN as a whole.
#[inline(always)]
fn quantize<L: Lanes>(l: L, group: &[Vector]) -> (f16, [[i8; LANES]; GROUP / LANES]) {
    let halves = [l.load(&group[0]), l.load(&group[1])];
    let zero = l.splat(0.0);
    let sizes =
        [l.max(halves[0], l.sub(zero, halves[0])), l.max(halves[1], l.sub(zero, halves[1]))];
    let differences = l.add(l.sub(halves[0], halves[0]), l.sub(halves[1], halves[1]));
    if l.sum(differences).is_nan() {
        return (f16::NAN, [[0; LANES]; GROUP / LANES]);
    }
    let largest = l.largest(l.max(sizes[0], sizes[1]));
    let scale = f16::from_f32(largest / 127.0).min(f16::MAX);
    if scale == f16::ZERO {
        return (scale, [[0; LANES]; GROUP / LANES]);
    }
    let scales = l.splat(scale.to_f32());
    // A scale that was rounded down can lead past 127, where the conversion saturates; -128 is
    // kept out so that a number and its negative are stored alike.
    let lowest = l.splat(-127.0);
    let low = l.narrow_i8(l.max(lowest, l.div(halves[0], scales)));
    let high = l.narrow_i8(l.max(lowest, l.div(halves[1], scales)));
    (scale, [low, high])
}
