//! The estimate alone, and with the scheduler on a simulated clock.

use std::collections::HashMap;
use std::sync::Arc;

use super::*;
use crate::kv_cache::KvCacheManager;
use crate::scheduler::sequence::{Sequence, SequenceId, YIELDS};
use crate::scheduler::stop::StopConditions;
use crate::scheduler::{Scheduler, SchedulerConfig};

const TARGET: Duration = Duration::from_millis(200);

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(u64::from(number))
}

fn ran(num_tokens: usize, num_sequences: usize, took: Duration) -> Ran {
    Ran { num_tokens, num_sequences, num_yielding: 0, took }
}

/// What a step costs: the part that every step has, and the part of each token.
#[derive(Clone, Copy)]
struct Cost {
    step: Duration,
    token: Duration,
}

/// Some 730 tokens of prompt a second, beside a step's reading of all weights.
const COST: Cost = Cost { step: Duration::from_millis(20), token: Duration::from_micros(1333) };

impl Cost {
    fn of(self, num_tokens: usize) -> Duration {
        self.step + self.token * u32::try_from(num_tokens).unwrap()
    }
}

#[test]
fn closes_in_on_the_target_whatever_the_fixed_part_is() {
    for step in [0, 20, 100, 150] {
        let cost = Cost { step: milliseconds(step), ..COST };
        let mut pace = Pace::new(Some(TARGET));
        pace.observe(ran(512, 2, cost.of(512)));
        for _ in 0..20 {
            let num_tokens = pace.num_tokens().max(LEAST_MEASURED);
            pace.observe(ran(num_tokens, 2, cost.of(num_tokens)));
        }
        let took = cost.of(pace.num_tokens());
        assert!(took > TARGET * 9 / 10 && took < TARGET * 11 / 10, "{took:?} with {step} ms fixed");
    }
}

#[test]
fn starts_small_and_learns_from_one_step() {
    let mut pace = Pace::new(Some(TARGET));
    assert_eq!(pace.num_tokens(), UNMEASURED);
    pace.observe(ran(100, 1, milliseconds(100)));
    assert_eq!(pace.num_tokens(), 200);
}

#[test]
fn decodes_and_small_steps_teach_nothing() {
    let mut pace = Pace::new(Some(TARGET));
    pace.observe(ran(64, 64, milliseconds(1000)));
    pace.observe(ran(10, 1, milliseconds(1000)));
    assert_eq!(pace.num_tokens(), UNMEASURED);
}

#[test]
fn one_step_that_was_held_up_costs_a_third_and_is_forgotten() {
    let mut pace = Pace::new(Some(TARGET));
    pace.observe(ran(100, 1, milliseconds(100)));
    pace.observe(ran(100, 1, milliseconds(5000)));
    assert_eq!(pace.num_tokens(), 133);
    for _ in 0..4 {
        pace.observe(ran(100, 1, milliseconds(100)));
    }
    assert!(pace.num_tokens() > 190);
}

#[test]
fn extreme_times_are_numbers_too() {
    for took in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let mut pace = Pace::new(Some(TARGET));
        for _ in 0..3 {
            pace.observe(ran(100, 1, took));
            pace.num_tokens();
        }
    }
}

#[test]
fn without_a_target_steps_are_as_large_as_they_may_be() {
    let mut pace = Pace::new(None);
    pace.observe(ran(100, 1, milliseconds(5000)));
    assert_eq!(pace.num_tokens(), usize::MAX);
}

/// An engine whose steps take simulated time.
struct Simulation {
    scheduler: Scheduler,
    pace: Pace,
    now: Duration,
    last_token: HashMap<SequenceId, Duration>,
    longest_gap: Duration,
    sequences: u64,
}

impl Simulation {
    fn new(target: Option<Duration>) -> Self {
        let config = SchedulerConfig {
            max_num_seqs: 64,
            num_slots: 64,
            max_num_batched_tokens: 512,
            max_model_len: 4096,
            fixed_rope_length: None,
            keeps_state: false,
            lookahead: false,
        };
        Self {
            scheduler: Scheduler::new(config, KvCacheManager::new(1024, true)),
            pace: Pace::new(target),
            now: Duration::ZERO,
            last_token: HashMap::new(),
            longest_gap: Duration::ZERO,
            sequences: 0,
        }
    }

    fn add(&mut self, prompt_len: u32, max_tokens: usize) {
        self.add_with_priority(prompt_len, max_tokens, 0);
    }

    fn add_with_priority(&mut self, prompt_len: u32, max_tokens: usize, priority: i32) {
        let id = self.sequences;
        self.sequences += 1;
        let first = u32::try_from(id).unwrap() * 10_000;
        let stop = StopConditions {
            max_tokens,
            min_tokens: 0,
            eos_token_ids: Arc::from([]),
            stop_token_ids: Vec::new(),
            ignore_eos: true,
        };
        let prompt = (first..first + prompt_len).collect();
        self.scheduler.add(Sequence::new(SequenceId(id), prompt, stop, priority, None));
    }

    fn step(&mut self) {
        let output = self.scheduler.schedule(self.pace.beside());
        let num_tokens = output.scheduled.iter().map(|(_, num_tokens)| num_tokens).sum();
        let took = COST.of(num_tokens);
        self.now += took;
        let (num_sequences, num_yielding) = (output.scheduled.len(), output.num_yielding);
        self.pace.observe(Ran { num_tokens, num_sequences, num_yielding, took });
        let sampled: Vec<_> = self
            .scheduler
            .plan(&output)
            .filter(|planned| planned.samples)
            .map(|planned| (planned.id, vec![7]))
            .collect();
        for (id, _) in &sampled {
            if let Some(last) = self.last_token.insert(*id, self.now) {
                self.longest_gap = self.longest_gap.max(self.now.abs_diff(last));
            }
        }
        for (end, _) in self.scheduler.update(&output, &sampled) {
            self.last_token.remove(&end.id);
        }
    }

    fn wait_for_first_tokens(&mut self) {
        while (self.last_token.len() as u64) < self.sequences {
            self.step();
        }
    }
}

/// Eight streams, beside which four prompts of 1500 tokens arrive. Returns the longest gap and the
/// time until the last of the four has its first token.
fn long_prompts_beside_streams(target: Option<Duration>) -> (Duration, Duration) {
    let mut simulation = Simulation::new(target);
    (0..8).for_each(|_| simulation.add(100, 10_000));
    simulation.wait_for_first_tokens();
    (0..5).for_each(|_| simulation.step());
    let arrival = simulation.now;
    (0..4).for_each(|_| simulation.add(1500, 10_000));
    simulation.wait_for_first_tokens();
    (simulation.longest_gap, simulation.now.abs_diff(arrival))
}

#[test]
fn streams_stay_smooth_beside_long_prompts_which_lose_little_time() {
    let (unbounded_gap, unbounded_time) = long_prompts_beside_streams(None);
    let (gap, time) = long_prompts_beside_streams(Some(TARGET));
    assert!(unbounded_gap > TARGET * 3);
    assert!(gap < TARGET * 11 / 10, "{gap:?}");
    assert!(time < unbounded_time * 115 / 100, "{time:?} instead of {unbounded_time:?}");
}

#[test]
fn sixteen_streams_that_start_together_stay_smooth() {
    let mut simulation = Simulation::new(Some(TARGET));
    (0..16).for_each(|_| simulation.add(256, 10_000));
    simulation.wait_for_first_tokens();
    assert!(simulation.longest_gap < TARGET * 11 / 10, "{:?}", simulation.longest_gap);
}

#[test]
fn a_lone_prompt_runs_in_the_largest_chunks() {
    let mut simulation = Simulation::new(Some(TARGET));
    simulation.add(1500, 1);
    (0..3).for_each(|_| simulation.step());
    assert_eq!(simulation.now, COST.step * 3 + COST.token * 1500);
}

/// Eight streams, beside as many lines of a batch that were there before. Returns the longest gap of the
/// streams, and how many tokens these and the lines got.
fn streams_beside_lines(num_lines: u32) -> (Duration, [usize; 2]) {
    let mut simulation = Simulation::new(Some(TARGET));
    (0..num_lines).for_each(|_| simulation.add_with_priority(100, 3000, YIELDS));
    simulation.wait_for_first_tokens();
    (0..8).for_each(|_| simulation.add(100, 3000));
    simulation.wait_for_first_tokens();
    let got = |simulation: &Simulation, ids: std::ops::Range<u64>| {
        let of = |id| simulation.scheduler.sequence(SequenceId(id)).unwrap().num_output();
        ids.map(of).sum::<usize>()
    };
    let lines = u64::from(num_lines);
    let before = [got(&simulation, lines..lines + 8), got(&simulation, 0..lines)];
    let mut gap = Duration::ZERO;
    for _ in 0..1000 {
        let began = simulation.now;
        simulation.step();
        gap = gap.max(simulation.now.abs_diff(began));
    }
    let after = [got(&simulation, lines..lines + 8), got(&simulation, 0..lines)];
    (gap, std::array::from_fn(|i| after[i] - before[i]))
}

#[test]
fn lines_of_a_batch_take_a_small_part_of_the_time_of_streams() {
    let (alone, [streams, _]) = streams_beside_lines(0);
    let (gap, [streams_beside, lines]) = streams_beside_lines(40);
    assert_eq!([streams, streams_beside], [8000, 8000], "each step has a token of each");
    assert!(gap <= alone * 11 / 10, "{gap:?} for {alone:?}");
    assert!((500..2000).contains(&lines), "{lines}");
}

#[test]
fn where_a_token_costs_much_those_that_yield_wait_for_it() {
    let mut pace = Pace::new(Some(TARGET));
    pace.observe(ran(100, 1, milliseconds(1000)));
    let mut tokens = Vec::new();
    for _ in 0..200 {
        let num_yielding = pace.beside().others;
        tokens.push(num_yielding);
        pace.observe(Ran {
            num_tokens: 1 + num_yielding,
            num_sequences: 1,
            num_yielding,
            took: milliseconds(40),
        });
    }
    // Of 200 steps of 40 ms a twentieth is 40 tokens of 10 ms.
    assert!(tokens.iter().all(|count| *count <= 1), "{tokens:?}");
    assert!((38..=42).contains(&tokens.iter().sum::<usize>()), "{tokens:?}");
}
