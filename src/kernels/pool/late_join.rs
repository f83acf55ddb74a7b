//! The late-join protocol: how threads share the chunks of a region, whoever of them shows up.
//!
//! A barrier waits for every thread, and a thread that lost its core to another process holds
//! everybody up. Here a region ends when its *chunks* are done: threads that come in time take
//! some, a thread that comes late finds the region closed and touches nothing of it.
//!
//! One word counts the chunks that nobody claimed yet. A chunk is claimed by lowering it with a
//! compare-and-swap, and whoever claimed one keeps the region open until that chunk is counted as
//! finished. The region's description is read only after the claim: so it can't change meanwhile,
//! and it doesn't matter whether the claim was meant for this region or for one that ended since.
//!
//! It knows threads by their seats only; `team` starts them, the model check in `model` replaces
//! them. It refuses to know what a chunk computes, which must not unwind.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use super::atomics::{AtomicBool, AtomicUsize, Condvar, Mutex, Spin, UnsafeCell, fence};

/// Sleepers that one thread wakes: the woken wake others, so that a large team is up soon and
/// nobody spends long on waking.
const WAKES: usize = 2;

/// Keeps what one thread writes off the cache lines that others spin on; two lines, since they are
/// fetched in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

/// What a region runs.
#[derive(Clone, Copy, Debug)]
struct Region {
    // On the stack of the caller, valid until the region's last chunk is finished.
    work: *const (dyn Fn(usize) + Sync),
    num_chunks: usize,
}

/// Where one thread sleeps.
#[derive(Debug)]
struct Seat {
    // Written by the sleeper alone.
    asleep: AtomicBool,
    woken: Mutex<bool>,
    bell: Condvar,
}

/// The meeting place of one caller at a time and the workers.
#[derive(Debug)]
pub(super) struct LateJoin {
    // Chunks of the open region that nobody claimed yet.
    unclaimed: Apart<AtomicUsize>,
    // Chunks of the open region that are unclaimed or running.
    unfinished: Apart<AtomicUsize>,
    // Written by the caller while no region is open; read by those who hold a claimed chunk.
    region: Apart<UnsafeCell<Region>>,
    // Whether a caller is in.
    busy: AtomicBool,
    stopping: AtomicBool,
    workers: Box<[Apart<Seat>]>,
    caller: Apart<Seat>,
}

// SAFETY: `region` is the only part that isn't Sync by itself. It is written by the holder of
// `busy` while no chunk is unfinished, and read only between claiming a chunk and counting it as
// finished; `unclaimed` and `unfinished` order the two (release by the writer, acquire by the reader,
// and the other way round). The closure it points to is Sync.
unsafe impl Sync for LateJoin {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for LateJoin {}

impl LateJoin {
    /// A place for a caller and `num_workers` workers.
    pub(super) fn new(num_workers: usize) -> Self {
        let nothing: &'static (dyn Fn(usize) + Sync) = &|_| ();
        Self {
            unclaimed: Apart(AtomicUsize::new(0)),
            unfinished: Apart(AtomicUsize::new(0)),
            region: Apart(UnsafeCell::new(Region { work: nothing, num_chunks: 0 })),
            busy: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            workers: (0..num_workers).map(|_| Apart(Seat::new())).collect(),
            caller: Apart(Seat::new()),
        }
    }

    /// Runs the chunks `0..num_chunks` of `work` (at least one) together with whichever
    /// workers come, and returns when all are done. Does nothing and returns false if another
    /// caller is in, or this call comes from inside a chunk.
    ///
    /// `work` must not unwind.
    pub(super) fn run(&self, num_chunks: usize, work: &(dyn Fn(usize) + Sync)) -> bool {
        if self.busy.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return false;
        }
        // SAFETY: only the lifetime changes, and holders of a claimed chunk alone use the reference:
        // this function returns after the last of them is finished.
        let work = unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(work)
        };
        // SAFETY: `busy` keeps other callers out, and with no chunk unfinished nobody holds one.
        self.region.0.with_mut(|region| unsafe { *region = Region { work, num_chunks } });
        self.unfinished.0.store(num_chunks, Relaxed);
        self.unclaimed.0.store(num_chunks, Release);
        self.wake_workers(num_chunks - 1);
        self.work_off();
        self.await_last_chunks();
        self.busy.store(false, Release);
        true
    }

    /// The life of the worker in `seat`: returns after [`Self::stop`].
    pub(super) fn serve(&self, seat: usize) {
        let seat = &self.workers[seat].0;
        while !self.stopping.load(Relaxed) {
            self.work_off();
            let mut spin = Spin::for_region();
            while self.unclaimed.0.load(Relaxed) == 0 {
                if !spin.again() {
                    seat.sleep_while(|| {
                        self.unclaimed.0.load(Relaxed) == 0 && !self.stopping.load(Relaxed)
                    });
                    let unclaimed = self.unclaimed.0.load(Relaxed);
                    self.wake_workers(unclaimed.saturating_sub(1));
                    break;
                }
            }
        }
    }

    /// Sends all workers home.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        fence(SeqCst);
        for seat in &self.workers {
            seat.0.wake();
        }
    }

    /// Claims and runs chunks until none is left.
    fn work_off(&self) {
        let mut unclaimed = self.unclaimed.0.load(Relaxed);
        while unclaimed > 0 {
            // Acquire: what the caller wrote before it opened the region is visible.
            let claim =
                self.unclaimed.0.compare_exchange_weak(unclaimed, unclaimed - 1, Acquire, Relaxed);
            unclaimed = match claim {
                Ok(_) => {
                    // SAFETY: this thread holds a claimed chunk, so the caller waits, and neither
                    // writes the region nor ends the closure's life.
                    unsafe { self.run_chunk(unclaimed) };
                    self.unclaimed.0.load(Relaxed)
                }
                Err(now) => now,
            };
        }
    }

    /// Runs the chunk that was claimed when `unclaimed` were left.
    ///
    /// # Safety
    ///
    /// The calling thread claimed that chunk and has not counted it as finished.
    unsafe fn run_chunk(&self, unclaimed: usize) {
        // SAFETY: the region isn't written while a chunk is unfinished.
        let Region { work, num_chunks } = self.region.0.with(|region| unsafe { *region });
        // SAFETY: the closure lives until the last chunk is finished.
        let work = unsafe { &*work };
        work(num_chunks - unclaimed);
        // Release: what the chunk wrote is visible to the caller. From here on nothing of the
        // region may be touched.
        if self.unfinished.0.fetch_sub(1, Release) == 1 {
            fence(SeqCst);
            self.caller.0.wake();
        }
    }

    fn await_last_chunks(&self) {
        let mut spin = Spin::for_last_chunks();
        while self.unfinished.0.load(Acquire) > 0 {
            if !spin.again() {
                self.caller.0.sleep_while(|| self.unfinished.0.load(Relaxed) > 0);
            }
        }
    }

    /// Wakes sleeping workers for `num_chunks` chunks, some of them here and the others by those.
    fn wake_workers(&self, num_chunks: usize) {
        let wanted = num_chunks.min(WAKES);
        if wanted == 0 {
            return;
        }
        // Beside the fence in `Seat::sleep_while`: either that worker sees the open region, or
        // this thread sees that worker asleep.
        fence(SeqCst);
        let woken = self.workers.iter().filter(|seat| seat.0.wake());
        woken.take(wanted).for_each(drop);
    }
}

impl Seat {
    fn new() -> Self {
        Self { asleep: AtomicBool::new(false), woken: Mutex::new(false), bell: Condvar::new() }
    }

    /// Sleeps until woken, unless `idle` turns false before. May return early.
    fn sleep_while(&self, idle: impl FnOnce() -> bool) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
        if idle() {
            let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
            while !*woken {
                woken = self.bell.wait(woken).unwrap_or_else(PoisonError::into_inner);
            }
            *woken = false;
        }
        self.asleep.store(false, Relaxed);
    }

    /// Wakes who sleeps here; false if nobody does, or is being woken already. Between changing what
    /// the sleeper waits for and this call the thread issued a fence.
    fn wake(&self) -> bool {
        if !self.asleep.load(Relaxed) {
            return false;
        }
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *woken, true) {
            return false;
        }
        drop(woken);
        self.bell.notify_one();
        true
    }
}
