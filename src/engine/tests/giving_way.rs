//! Steps that have only sequences which yield are given up when someone else comes.

use std::time::Instant;

use super::*;
use crate::scheduler::sequence::YIELDS;

/// A model whose first steps that may be given up don't end otherwise.
struct Lingering {
    model: HashModel,
    lingers: AtomicUsize,
    /// How many of them have begun.
    begun: Arc<AtomicUsize>,
}

impl CausalLm for Lingering {
    fn forward(&self, context: &ForwardContext<'_>, batch: &ForwardBatch) -> Result<ForwardOutput> {
        // What was written stays.
        let output = self.model.forward(context, batch)?;
        if context.interruption.is_some() && self.lingers.load(Ordering::Relaxed) > 0 {
            self.lingers.fetch_sub(1, Ordering::Relaxed);
            self.begun.fetch_add(1, Ordering::Relaxed);
            wait_until(|| context.check_interruption().is_err());
            context.check_interruption()?;
        }
        Ok(output)
    }

    fn kv_shape(&self) -> KvShape {
        self.model.kv_shape()
    }

    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn hidden_size(&self) -> usize {
        self.model.hidden_size()
    }

    fn max_position_embeddings(&self) -> usize {
        self.model.max_position_embeddings()
    }
}

fn wait_until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An engine over such a model, and the number of its steps that linger so far.
fn lingering(memory: Memory, lingers: usize) -> (Running, Arc<AtomicUsize>) {
    let (tokens_run, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let model = HashModel {
        tokens_run: tokens_run.clone(),
        step_time: Duration::ZERO,
        memory,
        repeats: true,
        tells: false,
    };
    let model = Lingering { model, lingers: AtomicUsize::new(lingers), begun: begun.clone() };
    let files = Arc::new(Disk);
    (start_any(Box::new(model), (tokens_run, memory), None, &config(64), files).0, begun)
}

fn line(seed: u32) -> EngineRequest {
    EngineRequest { priority: YIELDS, ..request(prompt(seed, 90), 30, u64::from(seed)) }
}

#[test]
fn who_comes_does_not_wait_for_a_step_of_lines_and_the_lines_lose_nothing() {
    let lines = || (0..3).map(line).collect::<Vec<_>>();
    let others = |seed| request(prompt(seed, 40), 3, u64::from(seed));
    let (running, _) = lingering(Memory::Blocks, 0);
    let expected = [answers(&running, lines()), answers(&running, (10..14).map(others).collect())];
    let (running, begun) = lingering(Memory::Blocks, 4);
    let streams: Vec<_> = lines().into_iter().map(|one| running.handle.submit(one)).collect();
    // Each is answered though a step of lines runs that doesn't end by itself.
    let one_by_one = (0..4).map(|at| {
        wait_until(|| begun.load(Ordering::Relaxed) > at);
        answers(&running, vec![others(10 + u32::try_from(at).unwrap())]).remove(0)
    });
    let one_by_one: Vec<Answer> = one_by_one.collect();
    let answered: Vec<Answer> =
        streams.into_iter().map(|stream| block_on(collect(stream)).0).collect();
    assert_eq!([answered, one_by_one], expected);
    running.assert_idle();
}

#[test]
fn steps_that_change_states_run_to_their_end() {
    let requests = || vec![line(1), request(prompt(2, 40), 3, 2)];
    let expected = answers(&lingering(Memory::State, 0).0, requests());
    let (running, begun) = lingering(Memory::State, 1);
    assert_eq!(answers(&running, requests()), expected);
    assert_eq!(begun.load(Ordering::Relaxed), 0, "none could be given up");
    running.assert_idle();
}
