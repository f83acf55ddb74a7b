//! bf16 in twelve bits each, to the bit.
//!
//! The upper byte of a bf16 is its sign and all bits of the exponent but the last. A matrix has weights of few sizes:
//! nearly all of these bytes are a sign and one of eight neighbouring exponents, which is a code of four bits. What has
//! another upper byte is kept beside, and put over what was decoded: M. Zukowski and others, "Super-Scalar RAM-CPU Cache
//! Compression", ICDE 2006 (patched frame of reference). Memory is read by a quarter less, and what products meet are
//! the same bits as without.
//!
//! A row of a panel, two elements of K of 64 columns, is 192 bytes: 64 bytes of two codes each, those of columns 0 to 31
//! in the lower halves and those of columns 32 to 63 in the upper ones, then the lower bytes of the first columns and
//! those of the others. Of each 64 bytes those that a CPU interleaves in one instruction lie together, see [`place`].

use std::ops::Range;

use half::bf16;

use super::formats::PANEL;
use crate::cpu::{Kernel, LANES, Products};

/// What products read at a step: two elements of K of each column.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Row(pub(super) [[bf16; 2]; PANEL]);

/// Bytes of a row in twelve bits each.
pub(crate) const ROW_BYTES: usize = 192;
/// Weights of half a row.
const HALF: usize = PANEL;
/// Exponents, each without its last bit, that have codes.
const EXPONENTS: usize = 8;
/// The largest code without a sign, which is the bit above it.
const MOST: u8 = 7;
/// One weight of so many may be an exception; a matrix with more is better left as it is.
const EXCEPTION_OF: usize = 128;

/// A weight whose upper byte has no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exception {
    row: u32,
    /// Which of the row's 128 weights it is.
    weight: u8,
    upper: u8,
}

/// What a matrix in twelve bits has beside its panels.
pub(super) struct TwelveBits {
    /// The least exponent that has a code, without its last bit.
    least: u8,
    /// Of each panel, in the order of its rows.
    exceptions: Vec<Vec<Exception>>,
}

impl TwelveBits {
    /// Fits codes to a sample of a matrix, little-endian bf16; none if too many weights would have no code.
    pub(super) fn least_of(sample: &[u8]) -> Option<u8> {
        let mut counts = [0usize; 128];
        for [_, upper] in sample.as_chunks::<2>().0 {
            counts[usize::from(upper & 127)] += 1;
        }
        let with_code = |least: &usize| counts[*least..least + EXPONENTS].iter().sum::<usize>();
        let least = (0..=128 - EXPONENTS).max_by_key(with_code)?;
        let without = sample.len() / 2 - with_code(&least);
        (without * EXCEPTION_OF <= sample.len() / 2)
            .then(|| u8::try_from(least).expect("below 128"))
    }

    /// Of a matrix whose panels were encoded from `least` on; none if it has too many exceptions among `weights`.
    pub(super) fn new(least: u8, exceptions: Vec<Vec<Exception>>, weights: usize) -> Option<Self> {
        let all: usize = exceptions.iter().map(Vec::len).sum();
        (all * EXCEPTION_OF <= weights).then_some(Self { least, exceptions })
    }

    /// Bytes beside the panels.
    pub(super) fn size_in_bytes(&self) -> usize {
        self.exceptions.iter().map(|each| size_of_val(each.as_slice())).sum()
    }

    /// The panel `panel`, whose rows are `bytes`.
    pub(super) fn panel<'a>(&'a self, panel: usize, bytes: &'a [u8]) -> TwelveBitPanel<'a> {
        let mut uppers = [0; 2 * EXPONENTS];
        for (code, upper) in (0..).zip(&mut uppers) {
            *upper = (code & 8) << 4 | (self.least + (code & MOST));
        }
        TwelveBitPanel { rows: bytes.as_chunks().0, uppers, exceptions: &self.exceptions[panel] }
    }
}

/// Where weight `weight` of half a row has its code and its lower byte.
const fn place(weight: usize) -> usize {
    weight % 32 / 8 * 16 + weight / 32 * 8 + weight % 8
}

/// A panel as it lies in memory.
#[derive(Clone, Copy)]
pub(crate) struct TwelveBitPanel<'a> {
    rows: &'a [[u8; ROW_BYTES]],
    /// The upper byte that each code stands for.
    uppers: [u8; 16],
    exceptions: &'a [Exception],
}

impl<'a> TwelveBitPanel<'a> {
    /// Rows of the panel: half as many as there are elements of K.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// What lies in memory from row `row` on.
    pub(crate) fn bytes_from(&self, row: usize) -> &'a [u8] {
        self.rows[row..].as_flattened()
    }

    /// The rows `rows` as they were before, in `room`; zeros beyond the last one.
    #[inline(always)]
    pub(crate) fn decode_to<'r, L: Products>(
        &self,
        l: L,
        rows: Range<usize>,
        room: &'r mut Vec<Row>,
    ) -> &'r [[[bf16; 2]; PANEL]] {
        if room.len() < rows.len() {
            room.resize(rows.len(), Row::ZERO);
        }
        let room = &mut room[..rows.len()];
        let (inside, beyond) = room.split_at_mut(rows.len().min(self.rows() - rows.start));
        beyond.fill(Row::ZERO);
        self.decode(l, rows.start, inside);
        Row::weights(room)
    }

    /// The rows from `first` on, as they were before.
    #[inline(always)]
    fn decode<L: Products>(&self, l: L, first: usize, out: &mut [Row]) {
        for (row, out) in self.rows[first..first + out.len()].iter().zip(&mut *out) {
            let [codes, lower @ ..] = row.as_chunks::<HALF>().0 else { unreachable!() };
            let codes = l.load_bytes(codes);
            let codes = [l.low_nibbles(codes), l.high_nibbles(codes)];
            let halves = out.bytes_mut().as_chunks_mut::<{ 2 * HALF }>().0;
            for i in 0..2 {
                let upper = l.lookup(&self.uppers, codes[i]);
                let words = l.interleave_bytes(l.load_bytes(&lower[i]), upper);
                let out = halves[i].as_chunks_mut::<{ 4 * LANES }>().0;
                out[0] = l.bytes_to_array(words[0]);
                out[1] = l.bytes_to_array(words[1]);
            }
        }
        let begin = self.exceptions.partition_point(|each| (each.row as usize) < first);
        for each in &self.exceptions[begin..] {
            let Some(row) = out.get_mut(each.row as usize - first) else { break };
            row.bytes_mut()[2 * usize::from(each.weight) + 1] = each.upper;
        }
    }

    /// Column `column` to `out`, an element for each of K.
    pub(super) fn column(&self, column: usize, out: &mut [f32]) {
        let weights = [2 * column, 2 * column + 1];
        let own = |each: &&Exception| usize::from(each.weight / 2) == column;
        let mut exceptions = self.exceptions.iter().filter(own).peekable();
        for ((index, row), out) in (0..).zip(self.rows).zip(out.chunks_mut(2)) {
            for (weight, out) in weights.into_iter().zip(out) {
                let (half, at) = (weight / HALF, place(weight % HALF));
                let code = row[at] >> (4 * half) & 15;
                let here =
                    |each: &&Exception| (each.row, usize::from(each.weight)) == (index, weight);
                let upper = exceptions
                    .next_if(here)
                    .map_or(self.uppers[usize::from(code)], |exception| exception.upper);
                *out = bf16::from_le_bytes([row[HALF * (1 + half) + at], upper]).to_f32();
            }
        }
    }
}

impl Row {
    pub(crate) const ZERO: Self = Self([[bf16::ZERO; 2]; PANEL]);

    /// Rows as they lie behind each other.
    fn weights(rows: &[Self]) -> &[[[bf16; 2]; PANEL]] {
        const { assert!(size_of::<Row>() == size_of::<[[bf16; 2]; PANEL]>()) }
        // SAFETY: a row is its weights, without padding.
        unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), rows.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8; 4 * PANEL] {
        // SAFETY: numbers of two bytes without padding, of which every bit pattern is valid.
        unsafe { &mut *(&raw mut self.0).cast() }
    }
}

/// Encodes a panel of bf16 of which `columns` columns are in use: `from [K / 2][64][2]` to as many rows of 192 bytes,
/// and what has no code to `exceptions`.
pub(super) struct Encode<'a> {
    pub(super) least: u8,
    pub(super) columns: usize,
    pub(super) from: &'a [u8],
    pub(super) to: &'a mut [u8],
    pub(super) exceptions: &'a mut Vec<Exception>,
}

impl Kernel for Encode<'_> {
    #[inline(always)]
    fn run<L: Products>(self, _: L) {
        let Self { least, columns, from, to, exceptions } = self;
        let rows = from.as_chunks::<{ 4 * PANEL }>().0.iter();
        for (row, (from, to)) in (0..).zip(rows.zip(to.as_chunks_mut().0)) {
            if encode_row(least, from, to) {
                let weights = &from.as_chunks::<2>().0[..2 * columns];
                for (weight, [_, upper]) in (0..).zip(weights) {
                    if code_of(least, *upper) > MOST {
                        exceptions.push(Exception { row, weight, upper: *upper });
                    }
                }
            }
        }
    }
}

/// The code of an upper byte without its sign; none if it is more than [`MOST`].
#[inline(always)]
fn code_of(least: u8, upper: u8) -> u8 {
    (upper & 127).wrapping_sub(least)
}

/// Encodes a row; whether a weight has no code.
#[inline(always)]
fn encode_row(least: u8, from: &[u8; 4 * PANEL], to: &mut [u8; ROW_BYTES]) -> bool {
    let (codes_to, lower_to) = to.split_at_mut(HALF);
    let mut codes = [[0; HALF]; 2];
    let mut beyond = 0;
    let halves = from.as_chunks::<{ 2 * HALF }>().0.iter().zip(&mut codes);
    for ((from, codes), lower_to) in halves.zip(lower_to.as_chunks_mut().0) {
        let (mut lower, mut upper) = ([0; HALF], [0; HALF]);
        for (i, bytes) in from.as_chunks::<2>().0.iter().enumerate() {
            [lower[i], upper[i]] = *bytes;
        }
        for upper in &mut upper {
            let code = code_of(least, *upper);
            beyond |= code;
            *upper = code & MOST | *upper >> 4 & 8;
        }
        put_in_places(&lower, lower_to);
        put_in_places(&upper, codes);
    }
    for (to, (first, second)) in codes_to.iter_mut().zip(codes[0].iter().zip(&codes[1])) {
        *to = first | second << 4;
    }
    beyond > MOST
}

#[inline(always)]
fn put_in_places(from: &[u8; HALF], to: &mut [u8; HALF]) {
    for (group, eight) in from.as_chunks::<8>().0.iter().enumerate() {
        to[place(8 * group)..][..8].copy_from_slice(eight);
    }
}
