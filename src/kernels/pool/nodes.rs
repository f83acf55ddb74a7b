//! Memory of a machine with several nodes (sockets, most of all): pages in turn on all of them.
//!
//! Memory lies on the node of the thread that touches it first. Weights that one thread reads from
//! a file would all lie beside that thread, and the threads of other nodes would share the link to
//! it. In turn on all nodes, every thread reads at the speed of all memories together.

use std::ffi::{c_int, c_long, c_ulong};
use std::path::Path;
use std::{fs, io};

use super::cpus;

/// Nodes that a mask has bits for.
const MAX_NODES: usize = 1024;
const BITS: usize = c_ulong::BITS as usize;

/// Puts memory that this thread, and those that it starts from now on, touch first in turn on all
/// nodes whose CPUs the process may run on. Does nothing where there is one node, and no more than
/// say so where the system forbids it (a container may).
pub(super) fn interleave() {
    let Some(allowed) = cpus::allowed() else { return };
    let nodes = nodes(Path::new("/sys/devices/system/node"), &allowed);
    if nodes.len() < 2 {
        return;
    }
    match set_policy(&nodes) {
        Ok(()) => tracing::info!(?nodes, "memory lies in turn on the nodes of this machine"),
        Err(error) => {
            tracing::warn!(?nodes, %error, "memory can't be spread over the machine's nodes");
        }
    }
}

/// The nodes in `folder` that have one of the CPUs, ascending.
fn nodes(folder: &Path, allowed: &[usize]) -> Vec<usize> {
    let number = |entry: fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
        cpus::numbers(&list).iter().any(|cpu| allowed.contains(cpu)).then_some(number)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut nodes: Vec<usize> = entries.filter_map(number).collect();
    nodes.sort_unstable();
    nodes
}

/// Asks for pages in turn on `nodes`, each below `MAX_NODES`.
fn set_policy(nodes: &[usize]) -> io::Result<()> {
    const INTERLEAVE: c_int = 3;
    #[cfg(target_arch = "x86_64")]
    const SET_MEMPOLICY: c_long = 238;
    #[cfg(not(target_arch = "x86_64"))]
    const SET_MEMPOLICY: c_long = 237;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    let mut mask: [c_ulong; MAX_NODES / BITS] = [0; MAX_NODES / BITS];
    for node in nodes {
        mask[node / BITS] |= 1 << (node % BITS);
    }
    // SAFETY: the call reads `MAX_NODES` bits of the mask and changes where pages will lie only.
    let failed = unsafe { syscall(SET_MEMPOLICY, INTERLEAVE, mask.as_ptr(), MAX_NODES) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{nodes, set_policy};

    #[test]
    fn nodes_with_cpus_that_may_be_used_count() {
        let root = std::env::temp_dir().join(format!("sconce-nodes-{}", std::process::id()));
        for (node, cpus) in [("node0", "0-3,8-11\n"), ("node1", "4-7\n"), ("node2", "\n")] {
            fs::create_dir_all(root.join(node)).unwrap();
            fs::write(root.join(node).join("cpulist"), cpus).unwrap();
        }
        fs::write(root.join("online"), "0-2\n").unwrap();
        assert_eq!(nodes(&root, &[0, 1, 4, 9]), [0, 1]);
        assert_eq!(nodes(&root, &[5]), [1]);
        assert!(nodes(&root, &[12]).is_empty());
        assert!(nodes(&root.join("nowhere"), &[0]).is_empty());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn the_system_takes_the_policy_or_says_why_not() {
        // On a thread of its own: the wish is the thread's.
        let result = std::thread::spawn(|| set_policy(&[0])).join().unwrap();
        if let Err(error) = result {
            // Containers may forbid it, and emulators don't know it.
            assert!(error.raw_os_error().is_some(), "{error}");
        }
        assert!(std::thread::spawn(|| set_policy(&[1000])).join().unwrap().is_err());
    }
}
