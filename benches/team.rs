//! How long a region of 16 chunks takes on the thread team, alone and beside busy threads that
//! compete for the same cores, against rayon's in-place scope and one thread.
//!
//! With `busy` competitors on `cores` cores, `threads` threads of ours keep `cores / (threads +
//! busy)` of what they had. A team whose regions wait for a thread without a core loses far more;
//! this one is to lose at most 1.3 times its share. The last column says by how much it did.

#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark prints its figures")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small counts, and times that are rounded anyway"
)]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sconce::kernels::pool;

const CHUNKS: usize = 16;
/// What a region may lose beyond its share of the cores.
const ALLOWED: f64 = 1.3;
/// Every way is measured this often, in turn, so that the machine's moods hit all of them.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(200);

fn burn(iterations: usize) {
    let mut value = 1_u64;
    for i in 0..iterations {
        value = black_box(value.wrapping_mul(31).wrapping_add(i as u64));
    }
}

/// Iterations of `burn` in a microsecond.
fn iterations_per_us() -> f64 {
    let measure = || {
        let began = Instant::now();
        burn(1_000_000);
        1.0 / began.elapsed().as_secs_f64()
    };
    (0..20).map(|_| measure()).fold(0.0, f64::max)
}

/// Waits for the scope's threads, as a barrier does.
fn on_rayon(helpers: &rayon::ThreadPool, work: impl Fn() + Sync) {
    let next = AtomicUsize::new(0);
    let claim = || {
        while next.fetch_add(1, Ordering::Relaxed) < CHUNKS {
            work();
        }
    };
    helpers.in_place_scope(|scope| {
        for _ in 1..pool::threads() {
            scope.spawn(|_| claim());
        }
        claim();
    });
}

/// Microseconds a region takes, for the ways team, rayon and serial.
fn measure(helpers: &rayon::ThreadPool, chunk: usize) -> [f64; 3] {
    let ways: [&dyn Fn(); 3] = [
        &|| pool::for_each_chunk(CHUNKS, |_| burn(chunk)),
        &|| on_rayon(helpers, || burn(chunk)),
        &|| (0..CHUNKS).for_each(|_| burn(chunk)),
    ];
    let mut regions = [0_u32; 3];
    let mut time = [Duration::ZERO; 3];
    for _ in 0..ROUNDS {
        for (way, run) in ways.iter().enumerate() {
            let began = Instant::now();
            while began.elapsed() < ROUND {
                run();
                regions[way] += 1;
            }
            time[way] += began.elapsed();
        }
    }
    [0, 1, 2].map(|way| time[way].as_secs_f64() * 1e6 / f64::from(regions[way]))
}

fn with_competitors<T>(busy: usize, run: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..busy {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    burn(1000);
                }
            });
        }
        let result = run();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = pool::threads();
    let helpers = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.saturating_sub(1).max(1))
        .build()
        .expect("threads can be started");
    let per_us = iterations_per_us();
    println!("{threads} threads on {cores} cores, regions of {CHUNKS} chunks, microseconds each");
    println!("  work a thread  competitors     team    rayon   serial   team slower by  allowed");
    for us in [20.0, 200.0] {
        let chunk = (us * per_us * threads as f64 / CHUNKS as f64) as usize;
        let mut alone = f64::NAN;
        for busy in 0..3 {
            let [team, rayon, serial] = with_competitors(busy, || measure(&helpers, chunk));
            if busy == 0 {
                alone = team;
            }
            let slower = team / alone;
            let allowed = ALLOWED * ((threads + busy) as f64 / cores as f64).max(1.0);
            let verdict = if slower <= allowed { "kept" } else { "missed" };
            println!(
                "{us:15.0} {busy:12} {team:8.1} {rayon:8.1} {serial:8.1} {slower:16.2} \
                 {allowed:8.2} {verdict}"
            );
        }
    }
    let began = Instant::now();
    let empty = 100_000;
    (0..empty).for_each(|_| pool::for_each_chunk(2, |_| ()));
    println!(
        "a region of two empty chunks: {:.3} us",
        began.elapsed().as_secs_f64() * 1e6 / f64::from(empty)
    );
}
