//! The compiled code of CUDA sources.

/// The code of one `.cu` file; [`source!`] makes one.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file's path under `src/kernels`, without its extension.
    pub(crate) path: &'static str,
    /// What the build compiled the file to: for one GPU generation, and in a form for newer ones.
    #[cfg(feature = "cuda")]
    pub(crate) code: &'static [u8],
}

/// The [`Source`] with this path under `src/kernels`.
macro_rules! source {
    ($path:literal) => {
        $crate::cuda::source::Source {
            path: $path,
            #[cfg(feature = "cuda")]
            code: include_bytes!(concat!(env!("OUT_DIR"), "/", $path, ".fatbin")),
        }
    };
}
pub(crate) use source;
