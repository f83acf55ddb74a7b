//! Kernels on a GPU: their code, which the build compiled, and where tensors lie.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use candle_core::cuda_backend::CudaStorageSlice as Slice;
use candle_core::cuda_backend::cudarc::driver::result::{device, mem_pool};
use candle_core::cuda_backend::cudarc::driver::sys::CUdevice_attribute_enum as DeviceAttribute;
use candle_core::cuda_backend::cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use candle_core::cuda_backend::cudarc::driver::sys::CUgraphInstantiate_flags as Flags;
use candle_core::cuda_backend::cudarc::driver::sys::CUmemPool_attribute_enum as PoolAttribute;
use candle_core::cuda_backend::cudarc::driver::sys::CUstreamCaptureMode as Mode;
use candle_core::cuda_backend::cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
    LaunchConfig, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::{CudaDevice, CudaStorage, Error, Result, bail};

use super::layout::{KernelStruct, check};
pub(crate) use super::pinned::Reading;
pub(super) use super::pinned::{start_reading, write};
use super::source::Source;

/// Shared memory that a block may have without asking.
const SHARED_UNASKED: u32 = 48 << 10;

/// The argument of a kernel.
#[repr(transparent)]
struct Argument<A>(A);

// SAFETY: a kernel's argument is copied as it lies in memory.
unsafe impl<A: KernelStruct> DeviceRepr for Argument<A> {}

/// The address of a storage's first element.
pub(super) fn start(storage: &CudaStorage) -> Result<u64> {
    fn of<T>(slice: &CudaSlice<T>) -> u64 {
        // All work of a device is in one stream, so nobody has to be waited for.
        slice.device_ptr(slice.stream()).0
    }
    Ok(match &storage.slice {
        Slice::U8(slice) => of(slice),
        Slice::U32(slice) => of(slice),
        Slice::I64(slice) => of(slice),
        Slice::BF16(slice) => of(slice),
        Slice::F16(slice) => of(slice),
        Slice::F32(slice) => of(slice),
        Slice::F8E4M3(slice) => of(slice),
        Slice::F64(slice) => of(slice),
        _ => bail!("kernels don't know this element type"),
    })
}

/// Loaded code by device and source, and functions by device and name.
#[derive(Default)]
struct Loaded {
    modules: HashMap<(usize, &'static str), Arc<CudaModule>>,
    functions: HashMap<(usize, String), CudaFunction>,
}

/// A kernel that takes `A`, whose layout is compared when the kernel is loaded.
fn find<A: KernelStruct>(
    context: &Arc<CudaContext>,
    source: &'static Source,
    kernel: &str,
) -> Result<CudaFunction> {
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(Mutex::default);
    let Loaded { modules, functions } = &mut *loaded.lock().unwrap_or_else(PoisonError::into_inner);
    let device = context.ordinal();
    let key = (device, kernel.to_owned());
    if let Some(function) = functions.get(&key) {
        return Ok(function.clone());
    }
    let module = match modules.get(&(device, source.path)) {
        Some(module) => module.clone(),
        None => {
            let module = context.load_module(Ptx::from_binary(source.code.to_vec()));
            let module = module.map_err(Error::wrap)?;
            modules.insert((device, source.path), module.clone());
            module
        }
    };
    // A kernel that does nothing has the number in its name, as compilers spell templates.
    check::<A>(|symbol, kind| {
        module.load_function(&format!("_Z{}{symbol}ILj{kind}EEvv", symbol.len())).is_ok()
    })?;
    let function = module.load_function(kernel).map_err(Error::wrap)?;
    functions.insert(key, function.clone());
    Ok(function)
}

/// Starts a kernel on the device's stream.
///
/// # Safety
///
/// As for [`super::launch::Launch::run`].
pub(super) unsafe fn run<A: KernelStruct>(
    device: &CudaDevice,
    source: &'static Source,
    kernel: &str,
    ([x, y, z], threads, shared): ([u32; 3], u32, u32),
    arguments: A,
) -> Result<()> {
    let stream = device.cuda_stream();
    let function = find::<A>(stream.context(), source, kernel)?;
    if shared > SHARED_UNASKED {
        let bytes = i32::try_from(shared).map_err(Error::wrap)?;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        function.set_attribute(attribute, bytes).map_err(Error::wrap)?;
    }
    let shape =
        LaunchConfig { grid_dim: (x, y, z), block_dim: (threads, 1, 1), shared_mem_bytes: shared };
    let argument = Argument(arguments);
    let mut builder = stream.launch_builder(&function);
    builder.arg(&argument);
    // SAFETY: as the caller says.
    unsafe { builder.launch(shape) }
        .map_err(|error| Error::wrap(error).context(kernel.to_owned()))?;
    Ok(())
}

/// A captured part of a stream.
pub(super) struct Graph(CudaGraph);

// SAFETY: a graph may be used from any thread, by one at a time; the engine's thread has it.
unsafe impl Send for Graph {}

impl Graph {
    /// Launches the graph.
    pub(super) fn launch(&self) -> Result<()> {
        self.0.launch().map_err(Error::wrap)
    }
}

/// A capture under way, which ends in any case: a stream that went on capturing would never execute
/// anything again.
struct Capturing<'a>(Option<&'a Arc<CudaStream>>);

impl<'a> Capturing<'a> {
    /// What is left over in memory of the graph is freed before it runs again.
    const FLAGS: Flags = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

    fn begin(stream: &'a Arc<CudaStream>) -> Result<Self> {
        let mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(Error::wrap)?;
        Ok(Self(Some(stream)))
    }

    fn end(mut self) -> Result<Option<CudaGraph>> {
        let stream = self.0.take().expect("only this takes it");
        stream.end_capture(Self::FLAGS).map_err(Error::wrap)
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.0 {
            // Whatever was captured is dropped, and so is why it can't be a graph.
            let _ = stream.end_capture(Self::FLAGS);
        }
    }
}

/// Does `work` twice: once as it is, so that code is loaded and constants are moved, which may fail, and
/// once captured only, which gives the inner result.
///
/// The constants belong to the calling thread, and graphs read them: it must live as long as they.
pub(super) fn capture(device: &CudaDevice, work: impl Fn() -> Result<()>) -> Result<Result<Graph>> {
    let _moved_once = device.enable_cuda_graph_htod_cache();
    work()?;
    Ok(captured(device, work))
}

/// What `work` does, captured only.
fn captured(device: &CudaDevice, work: impl Fn() -> Result<()>) -> Result<Graph> {
    let stream = device.cuda_stream();
    stream.synchronize().map_err(Error::wrap)?;
    let capturing = Capturing::begin(&stream)?;
    // The tensor library unwraps results of calls that captures refuse.
    let done = catch_unwind(AssertUnwindSafe(work));
    let graph = capturing.end();
    match done {
        Ok(done) => done?,
        Err(_) => bail!("a call that can't be captured panicked"),
    }
    match graph? {
        Some(graph) => Ok(Graph(graph)),
        None => bail!("nothing was captured"),
    }
}

/// Waits for all work of the device.
///
/// # Errors
///
/// What failed; from an error of a kernel no device recovers, so it is told at every call.
pub(super) fn synchronize(device: &CudaDevice) -> Result<()> {
    let stream = device.cuda_stream();
    let context = stream.context();
    // An error that a destructor left behind is told once, and is no more than its own.
    let _ = context.check_err();
    // Told by its name alone: the message is for requests too.
    context.synchronize().map_err(|error| Error::Msg(format!("{:?}", error.0)))
}

/// Prepares a device that was just opened: freed memory stays in the pool for later tensors, instead
/// of going back to the driver at every synchronization; and no events track which stream uses what,
/// since there is one stream, and captured work may not wait for older events.
pub(super) fn prepare(device: &CudaDevice) -> Result<()> {
    let stream = device.cuda_stream();
    let mut most = u64::MAX;
    // SAFETY: all work is in this one stream; the device is open, so its pool exists, and the
    // attribute is a number of 8 bytes.
    unsafe {
        device.disable_event_tracking();
        let own = stream.context().cu_device();
        let pool = device::get_default_mem_pool(own).map_err(Error::wrap)?;
        let attribute = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        mem_pool::set_attribute(pool, attribute, (&raw mut most).cast()).map_err(Error::wrap)
    }
}

/// Bytes of shared memory that a block can have at most, if the device tells.
pub(super) fn most_shared(device: &CudaDevice) -> Option<usize> {
    static MOST: OnceLock<Option<usize>> = OnceLock::new();
    let attribute = DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    *MOST.get_or_init(|| told(device, attribute))
}

/// Multiprocessors, if the device tells.
pub(super) fn multiprocessors(device: &CudaDevice) -> Option<usize> {
    static COUNT: OnceLock<Option<usize>> = OnceLock::new();
    let attribute = DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    *COUNT.get_or_init(|| told(device, attribute))
}

fn told(device: &CudaDevice, attribute: DeviceAttribute) -> Option<usize> {
    let told = device.cuda_stream().context().attribute(attribute).ok()?;
    usize::try_from(told).ok()
}
