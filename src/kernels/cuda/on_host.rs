//! The same kernels on the CPU, from a library that a C++ compiler made of their sources: for
//! tests, on machines without a GPU. `SCONCE_KERNELS=cuda-on-host:PATH` names the library.
//!
//! It is slow, and right: blocks run one after the other, and a block's threads take turns.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use candle_core::{CpuStorage, Error, Result, bail};

use super::layout::{KernelStruct, check};
use crate::backend::cuda_library;

/// The address of a storage's first element, by `as_ptr` or `as_mut_ptr`.
macro_rules! first_element {
    ($storage:expr, $pointer:ident) => {
        match $storage {
            CpuStorage::U8(all) => all.$pointer() as u64,
            CpuStorage::U32(all) => all.$pointer() as u64,
            CpuStorage::I64(all) => all.$pointer() as u64,
            CpuStorage::BF16(all) => all.$pointer() as u64,
            CpuStorage::F16(all) => all.$pointer() as u64,
            CpuStorage::F32(all) => all.$pointer() as u64,
            CpuStorage::F8E4M3(all) => all.$pointer() as u64,
            CpuStorage::F64(all) => all.$pointer() as u64,
            _ => bail!("kernels don't know this element type"),
        }
    };
}

/// The address of a storage that is only read.
pub(super) fn start(storage: &CpuStorage) -> Result<u64> {
    Ok(first_element!(storage, as_ptr))
}

/// The address of a storage that is written to.
pub(super) fn start_to_write(storage: &mut CpuStorage) -> Result<u64> {
    Ok(first_element!(storage, as_mut_ptr))
}

/// A kernel's function on the host: addresses of arguments, the grid, threads of a block, bytes of
/// shared memory.
type OnHost = unsafe extern "C" fn(*const *const c_void, *const u32, u32, u32);

/// Runs a kernel to its end, in a grid of blocks of some threads and bytes of shared memory.
///
/// # Safety
///
/// As for [`super::launch::Launch::run`].
pub(super) unsafe fn run<A: KernelStruct>(
    kernel: &str,
    (grid, threads, shared): ([u32; 3], u32, u32),
    arguments: A,
) -> Result<()> {
    // SAFETY: at such a symbol lies a hash, which nobody changes.
    check::<A>(|symbol, kind| find(symbol).is_ok_and(|at| unsafe { *at.cast::<u32>() } == kind))?;
    let function = find(&format!("{kernel}_on_host"))?;
    // SAFETY: functions of this kind of name have this signature.
    let function = unsafe { std::mem::transmute::<*mut c_void, OnHost>(function) };
    let arguments = [(&raw const arguments).cast::<c_void>()];
    // SAFETY: for the arguments as the caller says; their layout was compared.
    unsafe { function(arguments.as_ptr(), grid.as_ptr(), threads, shared) };
    Ok(())
}

/// The address of a function or of a layout's hash.
fn find(name: &str) -> Result<*mut c_void> {
    static LIBRARY: OnceLock<Option<Handle>> = OnceLock::new();
    let Some(path) = cuda_library() else { bail!("no library of kernels was named") };
    let Some(library) = LIBRARY.get_or_init(|| Handle::open(path)) else {
        bail!("{path} is no library of kernels")
    };
    let symbol = CString::new(name).map_err(Error::wrap)?;
    // SAFETY: the library is open and the name ends with a zero.
    let address = unsafe { dlsym(library.0, symbol.as_ptr()) };
    if address.is_null() {
        bail!("{path} has no {name}");
    }
    Ok(address)
}

/// An open library; it stays open.
struct Handle(*mut c_void);

// SAFETY: a handle is a number to look names up with, from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn open(path: &str) -> Option<Self> {
        const NOW: c_int = 2;
        let path = CString::new(path).ok()?;
        // SAFETY: the path ends with a zero; what the library does when it is opened is up to
        // whoever named it.
        let handle = unsafe { dlopen(path.as_ptr(), NOW) };
        (!handle.is_null()).then_some(Self(handle))
    }
}

#[cfg(unix)]
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[cfg(not(unix))]
unsafe fn dlopen(_: *const c_char, _: c_int) -> *mut c_void {
    std::ptr::null_mut()
}

#[cfg(not(unix))]
unsafe fn dlsym(_: *mut c_void, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}
