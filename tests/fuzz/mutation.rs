//! Damages inputs: lengths, counts, offsets and types as numbers of every width, text as text, and
//! parts of one input in another.

/// A reproducible source of damage.
pub(super) struct Mutator {
    state: u64,
}

/// Numbers at which something ends.
const EDGES: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    16,
    31,
    32,
    64,
    127,
    128,
    255,
    256,
    32_767,
    65_535,
    65_536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// What stands in headers in text.
const TEXTS: [&str; 22] = [
    "0",
    "-1",
    "1e308",
    "4294967295",
    "18446744073709551615",
    "1.5",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[",
    "\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "(?:(?:a*)*)*",
    "[^",
    "F32",
    "I64",
    "BOOL",
    "U8",
    "▁",
    "\u{10ffff}",
];

impl Mutator {
    pub(super) fn new(case: u64) -> Self {
        Self { state: case.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d }
    }

    fn draw(&mut self) -> u64 {
        // xorshift64*
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, or 0.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.draw() >> 11) as usize % bound }
    }

    /// One of the inputs, damaged once or a few times.
    pub(super) fn input(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(6) {
            let other = &inputs[self.below(inputs.len())];
            self.damage(&mut input, other);
        }
        input
    }

    /// A place, in the header more often than elsewhere.
    fn place(&mut self, length: usize) -> usize {
        match self.below(8) {
            0 => self.below(length),
            1..=4 => self.below(length.min(4096)),
            _ => self.below(length.min(600)),
        }
    }

    fn damage(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.place(input.len());
        match self.below(12) {
            0 => input.truncate(at),
            1 => {
                let end = (at + 1 + self.below(64)).min(input.len());
                input.drain(at..end);
            }
            2 => {
                let length = self.below(64).min(input.len() - at);
                let copy = input[at..at + length].to_vec();
                let target = self.place(input.len());
                input.splice(target..target, copy);
            }
            3 => {
                let start = self.place(other.len());
                let length = self.below(200).min(other.len() - start);
                input.splice(at..at, other[start..start + length].iter().copied());
            }
            4 => {
                let text = TEXTS[self.below(TEXTS.len())];
                input.splice(at..at, text.bytes());
            }
            5 => self.replace_digits(input, at),
            6 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << (at % 8);
                }
            }
            _ => self.replace_number(input, at),
        }
    }

    /// A number of 1, 2, 4 or 8 bytes becomes an edge, or nearly what it was.
    fn replace_number(&mut self, input: &mut [u8], at: usize) {
        let width = 1 << self.below(4);
        let Some(bytes) = input.get_mut(at..at + width) else { return };
        let mut whole = [0; 8];
        whole[..width].copy_from_slice(bytes);
        let number = u64::from_le_bytes(whole);
        let number = match self.below(4) {
            0 => number.wrapping_add(1),
            1 => number.wrapping_sub(1),
            2 => number.wrapping_mul(1 << self.below(33)),
            _ => EDGES[self.below(EDGES.len())],
        };
        bytes.copy_from_slice(&number.to_le_bytes()[..width]);
    }

    /// The next number in text becomes another text.
    fn replace_digits(&mut self, input: &mut Vec<u8>, at: usize) {
        let digits = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = input[at..].iter().position(digits).map(|start| start + at) else {
            return;
        };
        let length = input[start..].iter().position(|byte| !digits(byte));
        let end = length.map_or(input.len(), |length| start + length);
        let text = TEXTS[self.below(TEXTS.len())];
        input.splice(start..end, text.bytes());
    }
}
