//! A folder with blocks of the KV cache and snapshots of recurrent states, which outlives the pool and
//! the process.
//!
//! Every file holds one block or one snapshot and is named by its content: the hash of all tokens up to
//! there, in a subfolder for everything else that its bits depend on (the [`namespace`]). So a file is
//! never changed, several processes can share the folder, and nothing has to be told between them.
//!
//! ```text
//! PATH/<namespace>/about.json           what the namespace stands for, for people
//! PATH/<namespace>/<hash>.block         a block; <hash>.state is the snapshot behind it
//! PATH/<namespace>/<name>.<writer>.tmp  a file that is being written
//! ```
//!
//! [`Store`] is the engine's end. Two threads do what waits for a disk: `writer` stores, evicts what
//! was not used for longest and looks for what other processes did, `reader` loads. The engine thread
//! asks the `index` in memory, and exchanges bytes by queues that are bounded.
//!
//! A file is written under another name and renamed when it is complete, so a process that is killed
//! leaves nothing but a temporary file. A file with the wrong size, checksum or name is removed and told
//! in the log; for those who asked it was never there. A disk that is full, slow or gone costs the tier,
//! never an answer.
//!
//! [`HostMemory`] has the same folder in host memory, for what leaves the memory of a GPU. A [`Store`] over
//! it and one over a disk can stand behind each other.

mod file;
pub mod files;
mod folder;
#[cfg(test)]
pub(crate) mod gate;
mod index;
pub mod inventory;
mod memory;
pub mod namespace;
mod reader;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use file::Payload;
pub use folder::FileKey;
pub use memory::HostMemory;
pub use shared::{ChangeSink, LoadHandle, LoadId, Loaded, QUEUED_BYTES, StoreConfig};
pub use store::Store;
