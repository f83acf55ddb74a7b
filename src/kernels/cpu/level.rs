//! The instruction sets of this machine.

use super::lanes::{Kernel, Products};
#[cfg(target_arch = "aarch64")]
use super::neon;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{amx::Amx, avx2, avx512};

/// A CPU instruction set that this machine has.
#[derive(Clone, Copy, Debug)]
pub struct Level(Set);

#[derive(Clone, Copy, Debug)]
enum Set {
    Scalar(scalar::Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2<false>),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(avx2::Avx2<true>),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512<false>),
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(avx512::Avx512<true>),
    #[cfg(target_arch = "x86_64")]
    Amx(Tiled),
    #[cfg(target_arch = "aarch64")]
    Neon(neon::Neon<{ neon::NONE }>),
    #[cfg(target_arch = "aarch64")]
    NeonDot(neon::Neon<{ neon::DOT }>),
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(neon::Neon<{ neon::I8MM }>),
    #[cfg(target_arch = "aarch64")]
    NeonBf16(neon::Neon<{ neon::BF16 }>),
}

/// A level with tile registers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiled {
    lanes: avx512::Avx512<true>,
    pub(crate) amx: Amx,
}

#[cfg(target_arch = "x86_64")]
impl Tiled {
    /// As [`Level::run`], compiled for this level alone.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        self.lanes.run(kernel);
    }
}

impl Level {
    /// Plain Rust, on every machine: what the other levels are tested against.
    pub fn scalar() -> Self {
        Self(Set::Scalar(scalar::Scalar))
    }

    /// All levels of this machine, slowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::scalar()];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(avx2::Avx2::detect().map(|t| Self(Set::Avx2(t))));
            levels.extend(avx2::Avx2::detect().map(|t| Self(Set::AvxVnni(t))));
            levels.extend(avx512::Avx512::detect().map(|t| Self(Set::Avx512(t))));
            levels.extend(avx512::Avx512::detect().map(|t| Self(Set::Avx512Vnni(t))));
            let both = avx512::Avx512::detect().zip(Amx::detect());
            levels.extend(both.map(|(lanes, amx)| Self(Set::Amx(Tiled { lanes, amx }))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            levels.extend(neon::Neon::detect().map(|t| Self(Set::Neon(t))));
            levels.extend(neon::Neon::detect().map(|t| Self(Set::NeonDot(t))));
            levels.extend(neon::Neon::detect().map(|t| Self(Set::NeonI8mm(t))));
            levels.extend(neon::Neon::detect().map(|t| Self(Set::NeonBf16(t))));
        }
        levels
    }

    /// All levels of this machine, and emulated tile registers where it could have some.
    #[cfg(test)]
    pub(crate) fn tested() -> Vec<Self> {
        let mut levels = Self::available();
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        if !levels.iter().any(|level| level.has_tiles()) {
            let emulated = |lanes| Self(Set::Amx(Tiled { lanes, amx: Amx::emulated() }));
            levels.extend(avx512::Avx512::detect().map(emulated));
        }
        levels
    }

    /// The level's name, as the environment variable `SCONCE_KERNELS` spells it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Set::Scalar(_) => "scalar",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni(_) => "avxvnni",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni(_) => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            Set::Amx(_) => "amx",
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Set::NeonDot(_) => "neondot",
            #[cfg(target_arch = "aarch64")]
            Set::NeonI8mm(_) => "neoni8mm",
            #[cfg(target_arch = "aarch64")]
            Set::NeonBf16(_) => "neonbf16",
        }
    }

    /// Whether rows of bf16 are multiplied as pairs, and not as f32.
    pub(crate) fn multiplies_pairs(self) -> bool {
        struct Asked<'a>(&'a mut bool);
        impl Kernel for Asked<'_> {
            #[inline(always)]
            fn run<L: Products>(self, _: L) {
                *self.0 = L::PAIRED;
            }
        }
        let mut paired = false;
        self.run(Asked(&mut paired));
        paired
    }

    /// Whether bf16 in twelve bits each are decoded in less time than it takes to read the bits that they lack. Measured
    /// with 5 to 11 GB/s for a core: with vectors of 512 bits products of one to four rows take 0.83 to 0.87 of the time,
    /// with 256 bits 0.93 to 1.15. On ARM nothing was measured.
    pub(crate) fn decodes_soon(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(_) | Set::Avx512Vnni(_) | Set::Amx(_) => true,
            _ => false,
        }
    }

    /// The level's tile registers, if it has them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(self) -> Option<Tiled> {
        match self.0 {
            Set::Amx(tiled) => Some(tiled),
            _ => None,
        }
    }

    /// Whether the level has tile registers.
    pub(crate) fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.tiles().is_some();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Runs a kernel with this level's instructions.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            Set::Scalar(lanes) => kernel.run(lanes),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni(lanes) | Set::Amx(Tiled { lanes, .. }) => lanes.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Set::NeonDot(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Set::NeonI8mm(lanes) => lanes.run(kernel),
            #[cfg(target_arch = "aarch64")]
            Set::NeonBf16(lanes) => lanes.run(kernel),
        }
    }
}
