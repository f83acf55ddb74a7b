//! The kinds of stored elements: their sizes and names.

use std::fmt;

use candle_core::quantized::GgmlDType;

/// How elements are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A kind that the tensor library has.
    Ggml(GgmlDType),
    /// A kind that only files and our own products have.
    Coded(Coded),
    /// Signed bytes with one scale for a row, to be multiplied with activations that are signed bytes with one
    /// scale for a token. The bytes are those of Q8_0: every block has its row's scale.
    W8A8,
}

/// Most columns of a matrix of [`Kind::W8A8`]: sums of as many products fit in 32 bits.
pub const W8A8_COLUMNS: usize = 1 << 17;

/// Kinds of blocks whose numbers stand for others: indices into codebooks, trits, 4-bit floats. Named as
/// in GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coded {
    /// 2.06 bits: 256 points of eight numbers, signs of which every eighth is implied.
    Iq2Xxs,
    /// 2.31 bits: 512 points of eight numbers, signs of which every eighth is implied.
    Iq2Xs,
    /// 2.56 bits: 1024 points of eight numbers, and signs.
    Iq2S,
    /// 3.06 bits: 256 points of four numbers, signs of which every eighth is implied.
    Iq3Xxs,
    /// 3.44 bits: 512 points of four numbers, and signs.
    Iq3S,
    /// 1.56 bits: 2048 points of eight trits, and a shift of 32 of them.
    Iq1S,
    /// 1.75 bits: 2048 points of eight trits, and a shift of each eight.
    Iq1M,
    /// 4.5 bits: sixteen unevenly spaced numbers.
    Iq4Nl,
    /// 4.25 bits: the same with scales of scales.
    Iq4Xs,
    /// 1.69 bits: trits, five of which share a byte.
    Tq1_0,
    /// 2.06 bits: trits of two bits.
    Tq2_0,
    /// 4.5 bits: 4-bit floats of which sixteen share an 8-bit float.
    Nvfp4,
    /// 4.25 bits: 4-bit floats of which 32 share a power of two.
    Mxfp4,
}

impl Coded {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Iq2Xxs,
        Self::Iq2Xs,
        Self::Iq2S,
        Self::Iq3Xxs,
        Self::Iq3S,
        Self::Iq1S,
        Self::Iq1M,
        Self::Iq4Nl,
        Self::Iq4Xs,
        Self::Tq1_0,
        Self::Tq2_0,
        Self::Nvfp4,
        Self::Mxfp4,
    ];

    /// GGUF's name, its number in files, and the elements and bytes of a block.
    const fn facts(self) -> (&'static str, u32, usize, usize) {
        match self {
            Self::Iq2Xxs => ("IQ2_XXS", 16, 256, 66),
            Self::Iq2Xs => ("IQ2_XS", 17, 256, 74),
            Self::Iq3Xxs => ("IQ3_XXS", 18, 256, 98),
            Self::Iq1S => ("IQ1_S", 19, 256, 50),
            Self::Iq4Nl => ("IQ4_NL", 20, 32, 18),
            Self::Iq3S => ("IQ3_S", 21, 256, 110),
            Self::Iq2S => ("IQ2_S", 22, 256, 82),
            Self::Iq4Xs => ("IQ4_XS", 23, 256, 136),
            Self::Iq1M => ("IQ1_M", 29, 256, 56),
            Self::Tq1_0 => ("TQ1_0", 34, 256, 54),
            Self::Tq2_0 => ("TQ2_0", 35, 256, 66),
            Self::Mxfp4 => ("MXFP4", 39, 32, 17),
            Self::Nvfp4 => ("NVFP4", 40, 64, 36),
        }
    }

    /// GGUF's name.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// The kind's number in GGUF files.
    pub const fn number(self) -> u32 {
        self.facts().1
    }

    /// Elements of a block.
    pub const fn block_size(self) -> usize {
        self.facts().2
    }

    /// Bytes of a block.
    pub const fn type_size(self) -> usize {
        self.facts().3
    }
}

impl Kind {
    /// Elements of a block; 1 where elements are stored one by one.
    pub fn block_size(self) -> usize {
        match self {
            Self::Ggml(kind) => kind.block_size(),
            Self::Coded(kind) => kind.block_size(),
            Self::W8A8 => GgmlDType::Q8_0.block_size(),
        }
    }

    /// Bytes of a block.
    pub fn type_size(self) -> usize {
        match self {
            Self::Ggml(kind) => kind.type_size(),
            Self::Coded(kind) => kind.type_size(),
            Self::W8A8 => GgmlDType::Q8_0.type_size(),
        }
    }

    /// The tensor library's kind of the bytes, if it has it.
    pub fn ggml(self) -> Option<GgmlDType> {
        match self {
            Self::Ggml(kind) => Some(kind),
            Self::Coded(_) => None,
            Self::W8A8 => Some(GgmlDType::Q8_0),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ggml(kind) => write!(f, "{kind:?}"),
            Self::Coded(kind) => f.write_str(kind.name()),
            Self::W8A8 => f.write_str("W8A8"),
        }
    }
}

impl From<GgmlDType> for Kind {
    fn from(kind: GgmlDType) -> Self {
        Self::Ggml(kind)
    }
}

impl From<Coded> for Kind {
    fn from(kind: Coded) -> Self {
        Self::Coded(kind)
    }
}

impl PartialEq<GgmlDType> for Kind {
    fn eq(&self, other: &GgmlDType) -> bool {
        self.ggml() == Some(*other)
    }
}
