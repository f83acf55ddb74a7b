//! How many threads a team has where nobody says: one for each fast core.
//!
//! Two hardware threads of one core share its vector units and its way to memory, so a second
//! thread there adds a reader and no speed. A core that is much slower than the others ends each
//! region late, however small its share. The system's own bounds hold as well: the CPUs that the
//! process may run on, and a container's CPU quota.

use std::num::NonZeroUsize;
#[cfg(any(target_os = "linux", test))]
use std::{collections::BTreeMap, fs, path::Path};

#[cfg(any(target_os = "linux", test))]
use super::cpus;

/// A core with less than this part of the fastest one's capacity is left out.
#[cfg(any(target_os = "linux", test))]
const FAST: (u64, u64) = (1, 2);

/// Threads for computation on this machine.
pub(super) fn threads() -> NonZeroUsize {
    let allowed = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let fast = of_this_machine().and_then(NonZeroUsize::new);
    fast.map_or(allowed, |fast| fast.min(allowed))
}

#[cfg(target_os = "linux")]
fn of_this_machine() -> Option<usize> {
    fast_cores(Path::new("/sys/devices"), &cpus::allowed()?)
}

#[cfg(target_os = "macos")]
fn of_this_machine() -> Option<usize> {
    use std::ffi::{CStr, c_char, c_int, c_void};

    const NAME: &CStr = c"hw.perflevel0.physicalcpu";
    unsafe extern "C" {
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_len: *mut usize,
            new: *mut c_void,
            new_len: usize,
        ) -> c_int;
    }
    let (mut cores, mut len): (c_int, usize) = (0, size_of::<c_int>());
    let (old, none) = ((&raw mut cores).cast(), std::ptr::null_mut());
    // SAFETY: the name ends with zero, and `cores` has room for the `len` bytes it is said to.
    let failed = unsafe { sysctlbyname(NAME.as_ptr(), old, &raw mut len, none, 0) };
    if failed == 0 { usize::try_from(cores).ok() } else { None }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn of_this_machine() -> Option<usize> {
    None
}

/// Cores of the CPUs in `allowed` that are not much slower than the fastest of them, by the files
/// that Linux has in `/sys/devices`; `None` where they don't say.
#[cfg(any(target_os = "linux", test))]
fn fast_cores(devices: &Path, allowed: &[usize]) -> Option<usize> {
    let slow = read(&devices.join("cpu_atom/cpus")).map(|list| cpus::numbers(&list));
    let mut cores: BTreeMap<Vec<usize>, u64> = BTreeMap::new();
    for cpu in allowed {
        let folder = devices.join(format!("system/cpu/cpu{cpu}"));
        let siblings = read(&folder.join("topology/thread_siblings_list"))?;
        let capacity = ["cpu_capacity", "cpufreq/cpuinfo_max_freq"]
            .iter()
            .find_map(|file| read(&folder.join(file))?.parse().ok());
        // Intel's efficient cores run at most of the others' frequency, with half their units.
        let is_slow = slow.as_ref().is_some_and(|slow| slow.contains(cpu));
        let capacity = if is_slow { 0 } else { capacity.unwrap_or(1) };
        cores.insert(cpus::numbers(&siblings), capacity);
    }
    let fastest = cores.values().copied().max()?;
    let (part, whole) = FAST;
    Some(cores.values().filter(|capacity| *capacity * whole >= fastest * part).count())
}

#[cfg(any(target_os = "linux", test))]
fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::fast_cores;

    /// A folder as Linux has it, removed at the end.
    struct Devices(PathBuf);

    impl Devices {
        /// CPUs by the hardware threads of their core, and what `file` says of them.
        fn new(name: &str, file: &str, cpus: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("sconce-{name}-{}", std::process::id()));
            for (cpu, (siblings, capacity)) in cpus.iter().enumerate() {
                let folder = root.join(format!("system/cpu/cpu{cpu}"));
                fs::create_dir_all(folder.join("topology")).unwrap();
                fs::create_dir_all(folder.join("cpufreq")).unwrap();
                fs::write(folder.join("topology/thread_siblings_list"), siblings).unwrap();
                fs::write(folder.join(file), capacity).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Devices {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn hardware_threads_of_one_core_are_one() {
        let cpus = [("0,2\n", "3000000\n"), ("1,3\n", "3000000\n")];
        let devices = Devices::new("smt", "cpufreq/cpuinfo_max_freq", &[cpus, cpus].concat());
        assert_eq!(fast_cores(&devices.0, &[0, 1, 2, 3]), Some(2));
        assert_eq!(fast_cores(&devices.0, &[0, 2]), Some(1));
        assert_eq!(fast_cores(&devices.0, &[3]), Some(1));
        assert_eq!(fast_cores(&devices.0, &[9]), None);
        assert_eq!(fast_cores(&devices.0, &[]), None);
    }

    #[test]
    fn small_cores_are_left_out() {
        let cpus = [("0", "1024"), ("1", "1024"), ("2", "640"), ("3", "250")];
        let devices = Devices::new("little", "cpu_capacity", &cpus);
        assert_eq!(fast_cores(&devices.0, &[0, 1, 2, 3]), Some(3));
        // Where there are no others they are the fastest.
        assert_eq!(fast_cores(&devices.0, &[3]), Some(1));
    }

    #[test]
    fn efficient_cores_are_left_out() {
        let cpus = [("0-1", "5600000"), ("0-1", "5600000"), ("2", "4300000"), ("3", "4300000")];
        let devices = Devices::new("hybrid", "cpufreq/cpuinfo_max_freq", &cpus);
        fs::create_dir_all(devices.0.join("cpu_atom")).unwrap();
        fs::write(devices.0.join("cpu_atom/cpus"), "2-3\n").unwrap();
        assert_eq!(fast_cores(&devices.0, &[0, 1, 2, 3]), Some(1));
        assert_eq!(fast_cores(&devices.0, &[2, 3]), Some(2));
    }

    #[test]
    fn there_are_no_more_threads_than_the_process_may_have() {
        assert!(super::threads() <= std::thread::available_parallelism().unwrap());
    }
}
