//! What the control groups of this process leave of memory (Linux, versions 1 and 2): in a container the bound is
//! often theirs, not the machine's.
//!
//! All groups from the process's own up to the root count, for each may have a bound. Pages of files that were
//! read once and can be dropped at any time are free, although a group counts them: after the weights have been
//! read from disk, most of what it counts may be those.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that the groups leave; none, where there is no bound. Below `root` are `proc` and `sys`.
pub(super) fn free_memory(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = root.join("sys/fs/cgroup");
    let free = |line: &str| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let version = if names.is_empty() {
            VERSION_2
        } else if names.split(',').any(|name| name == "memory") {
            VERSION_1
        } else {
            return None;
        };
        let mount = mounts.join(version.mount);
        folders(&mount, path).filter_map(|folder| version.free(&folder)).min()
    };
    groups.lines().filter_map(free).min()
}

/// The folders of a group and of those that it is in. A container may see its own group as the root, under
/// a path that it knows from outside; then only the root is there.
fn folders(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let own = mount.join(path.trim_start_matches('/'));
    let folders: Vec<PathBuf> = own.ancestors().map(Path::to_owned).collect();
    let mount = mount.to_owned();
    folders.into_iter().filter(move |folder| folder.starts_with(&mount))
}

/// The names that files have.
struct Version {
    /// The folder below that of all groups.
    mount: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
    /// The line of `memory.stat` with the bytes of files that can be dropped.
    droppable: &'static str,
}

const VERSION_1: Version = Version {
    mount: "memory",
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file",
};

const VERSION_2: Version = Version {
    mount: "",
    // Above `high` the group is slowed down until it has less.
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    droppable: "inactive_file",
};

impl Version {
    /// What a group leaves of its bound, if it has one.
    fn free(&self, folder: &Path) -> Option<u64> {
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
        // "max" is no number, and so no bound; that of version 1 is larger than any machine's memory.
        let limit: u64 = self.limits.iter().filter_map(|name| number(name)).min()?;
        let used = number(self.used)?;
        let droppable = fs::read_to_string(folder.join("memory.stat"))
            .ok()
            .and_then(|stat| stat.lines().find_map(|line| self.droppable(line)));
        Some(limit.saturating_sub(used.saturating_sub(droppable.unwrap_or(0))))
    }

    fn droppable(&self, line: &str) -> Option<u64> {
        line.strip_prefix(self.droppable)?.strip_prefix(' ')?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A root with these files.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn free(files: &[(&str, &str)]) -> Option<u64> {
        free_memory(tree(files).path())
    }

    #[test]
    fn a_container_of_version_2_sees_its_group_as_the_root() {
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "536870912\n"),
            ("sys/fs/cgroup/memory.high", "max\n"),
            ("sys/fs/cgroup/memory.current", "104857600\n"),
            ("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 62914560\nactive_file 9\n"),
        ];
        // 100 MiB are counted, of which 60 MiB can be dropped.
        assert_eq!(free(&files), Some((512 - 40) * MIB));
    }

    #[test]
    fn groups_above_have_bounds_too() {
        let files = [
            ("proc/self/cgroup", "0::/system.slice/sconce.service\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "104857600"),
            ("sys/fs/cgroup/system.slice/memory.current", "94371840"),
            ("sys/fs/cgroup/system.slice/sconce.service/memory.max", "max"),
            ("sys/fs/cgroup/system.slice/sconce.service/memory.high", "52428800"),
            ("sys/fs/cgroup/system.slice/sconce.service/memory.current", "1048576"),
        ];
        assert_eq!(free(&files), Some(10 * MIB));
        assert_eq!(free(&files[3..]), None);
        let own = [&files[..1], &files[3..]].concat();
        assert_eq!(free(&own), Some(49 * MIB));
    }

    #[test]
    fn version_1_has_a_folder_and_names_of_its_own() {
        let files = [
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/0123\n1:name=systemd:/x\n"),
            // From inside a container the path from outside is not there.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "268435456"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 5\ntotal_inactive_file 134217728\n",
            ),
        ];
        assert_eq!(free(&files), Some(384 * MIB));
        let outside = [
            files[0],
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096"),
            ("sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "104857600"),
            ("sys/fs/cgroup/memory/docker/0123/memory.usage_in_bytes", "104857601"),
        ];
        assert_eq!(free(&outside), Some(0));
    }

    #[test]
    fn without_a_bound_there_is_none() {
        assert_eq!(free(&[]), None);
        assert_eq!(free(&[("proc/self/cgroup", "0::/\n")]), None);
        let unlimited = [
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.current", "5\n"),
        ];
        assert_eq!(free(&unlimited), None);
    }
}
