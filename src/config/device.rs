//! Where a model is to run.

use std::fmt;
use std::str::FromStr;

/// The device that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The first GPU that this build can use, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU, by its index.
    Cuda(usize),
    /// An Apple GPU.
    Metal,
}

impl DeviceChoice {
    /// Whether a GPU is asked for, or is taken by this build where there is one.
    pub fn prefers_gpu(self) -> bool {
        match self {
            Self::Auto => cfg!(any(feature = "cuda", feature = "metal")),
            Self::Cpu => false,
            Self::Cuda(_) | Self::Metal => true,
        }
    }
}

/// A name that is none of theirs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no device; there are auto, cpu, cuda, cuda:N (0 to 255) and metal")]
pub struct UnknownDevice(String);

impl FromStr for DeviceChoice {
    type Err = UnknownDevice;

    fn from_str(name: &str) -> Result<Self, UnknownDevice> {
        match name {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            "metal" => Ok(Self::Metal),
            _ => match name.strip_prefix("cuda:").map(str::parse::<u8>) {
                Some(Ok(index)) => Ok(Self::Cuda(usize::from(index))),
                _ => Err(UnknownDevice(name.to_owned())),
            },
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Metal => f.write_str("metal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_are_refused_by_name() {
        for name in ["auto", "cpu", "cuda:0", "cuda:7", "metal"] {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:256", "CPU"] {
            let error = name.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is no device")), "{error}");
        }
    }
}
