//! Sequences with recurrent states, driven with slots and snapshots that hold the tokens which they
//! stand for.

use super::*;
use crate::scheduler::output::num_accepted;

/// A scheduler and what a runner would hold: of each slot and each snapshot, the tokens it has seen.
struct Simulation {
    scheduler: Scheduler,
    slots: Vec<Vec<u32>>,
    rows: Vec<Vec<u32>>,
    /// Some steps give several tokens.
    forced: bool,
    /// Drafts that are offered before each step, and how many of them are right.
    drafts: (usize, usize),
}

impl Simulation {
    fn new(num_blocks: usize, num_snapshots: usize, max_num_seqs: usize, chunk: usize) -> Self {
        let mut config = scheduler(num_blocks, max_num_seqs, chunk).config;
        config.keeps_state = true;
        config.num_slots = max_num_seqs + 1;
        let cache = KvCacheManager::new(num_blocks, true).with_snapshots(num_snapshots);
        Self {
            scheduler: Scheduler::new(config, cache),
            slots: vec![vec![u32::MAX]; max_num_seqs + 1],
            rows: vec![vec![u32::MAX]; num_snapshots],
            forced: false,
            drafts: (0, 0),
        }
    }

    /// Runs one step, in which every sequence finds the state that it needs.
    fn step(&mut self, tokens_beside_decodes: usize) -> (SchedulerOutput, Vec<Sequence>) {
        offer_drafts(&mut self.scheduler, self.drafts.0, self.drafts.1);
        let output = self.scheduler.schedule(beside_decodes(tokens_beside_decodes));
        check_step(&self.scheduler, &output);
        for (from, to) in output.copied.iter().filter_map(|copies| copies.state) {
            self.slots[to as usize] = self.slots[from as usize].clone();
        }
        for (from, to) in &output.restored {
            self.slots[*to as usize].clone_from(&self.rows[*from as usize]);
        }
        let mut sampled = Vec::new();
        for planned in self.scheduler.plan(&output) {
            let state = &mut self.slots[planned.slot as usize];
            if planned.first_position == 0 {
                state.clear();
            }
            let tokens = &self.scheduler.sequences[&planned.id].tokens;
            assert_eq!(state[..], tokens[..planned.first_position], "the state of its tokens");
            state.extend(planned.token_ids.iter().chain(planned.drafts));
            if planned.samples && !self.scheduler.sequences[&planned.id].is_beam() {
                let tokens = next_tokens(&planned);
                let right = num_accepted(planned.drafts, &tokens);
                let most = if self.forced { tokens.len() } else { right + 1 };
                sampled.push((planned.id, tokens[..most].to_vec()));
            }
        }
        let finished = self.scheduler.update(&output, &sampled);
        for (from, to) in self.scheduler.take_snapshots() {
            self.rows[to as usize].clone_from(&self.slots[from as usize]);
        }
        (output, finished.into_iter().map(|(_, sequence)| sequence).collect())
    }

    /// Runs one sequence to its end. Returns the tokens that it found in the cache, the lengths of its
    /// chunks and all of its tokens.
    fn run(&mut self, sequence: Sequence) -> (usize, Vec<usize>, Vec<u32>) {
        self.scheduler.add(sequence);
        let (mut cached, mut chunks) = (0, Vec::new());
        loop {
            let (output, mut finished) = self.step(usize::MAX);
            cached += output.admitted.iter().map(|(_, cached)| cached).sum::<usize>();
            chunks.extend(output.scheduled.iter().map(|(_, tokens)| *tokens));
            if let Some(sequence) = finished.pop() {
                return (cached, chunks, sequence.tokens);
            }
        }
    }

    /// As [`Self::run`], of a sequence that samples one token.
    fn cached(&mut self, id: u64, prompt: Vec<u32>) -> usize {
        self.run(sequence(id, prompt, 1)).0
    }

    fn num_unfinished(&self) -> usize {
        self.scheduler.num_running() + self.scheduler.num_waiting()
    }
}

/// `prompt(0, ..)` up to `shared` tokens, then tokens of its own.
fn sibling(id: u64, shared: usize, length: usize) -> Vec<u32> {
    let own = prompt(id, length).split_off(shared);
    [prompt(0, shared), own].concat()
}

#[test]
fn a_prompt_sent_again_is_a_hit_the_first_time() {
    let mut simulation = Simulation::new(2048, 16, 4, 512);
    let sent = prompt(0, 20_000);
    assert_eq!(simulation.cached(0, sent.clone()), 0);
    assert_eq!(simulation.cached(1, sent.clone()), 19_968);
    assert_eq!(simulation.cached(2, sent), 19_968);
    for length in [300, 301, 319, 320, 321, 328, 329] {
        let mut simulation = Simulation::new(64, 16, 4, 512);
        let full = length / BLOCK_SIZE;
        for id in 0..3 {
            let cached = simulation.cached(id, prompt(0, length));
            assert!(id == 0 || cached >= (full - 1) * BLOCK_SIZE, "{cached} of {length}");
        }
    }
}

#[test]
fn the_third_of_three_prompts_hits_where_they_part() {
    let mut simulation = Simulation::new(512, 8, 4, 512);
    assert_eq!(simulation.cached(0, prompt(0, 1000)), 0);
    // Between the states of the first one, each 1024 tokens, there is none.
    let (cached, chunks, _) = simulation.run(sequence(1, sibling(1, 700, 1200), 1));
    assert_eq!((cached, chunks), (0, vec![512, 160, 512, 16]));
    assert_eq!(simulation.cached(2, sibling(2, 700, 1300)), 672);
    assert_eq!(simulation.cached(3, sibling(3, 690, 900)), 672);
    // What saves little is not worth a step.
    let (cached, chunks, _) = simulation.run(sequence(4, sibling(4, 40, 72), 1));
    assert_eq!((cached, chunks), (0, vec![72]));
}

#[test]
fn a_long_prompt_has_states_to_part_from() {
    let mut simulation = Simulation::new(512, 64, 4, 512);
    assert_eq!(simulation.scheduler.snapshot_spacing, 1024);
    simulation.cached(0, prompt(0, 5000));
    assert_eq!(simulation.cached(1, sibling(1, 3500, 5000)), 3072);
    // With few rows they are far apart.
    let simulation = Simulation::new(512, 4, 4, 512);
    assert_eq!(simulation.scheduler.snapshot_spacing, 512 * BLOCK_SIZE);
}

#[test]
fn a_conversation_goes_on_behind_its_answer() {
    let mut simulation = Simulation::new(64, 4, 4, 512);
    let (_, _, said) =
        simulation.run(Sequence::new(SequenceId(0), prompt(0, 100), stop_after(150), 0, None));
    // The last token is not computed.
    assert_eq!(said.len(), 250);
    let next = [said.clone(), prompt(1, 50)].concat();
    assert_eq!(simulation.cached(1, next), 224);
    // Without the answer it resumes in the prompt, some tokens before its end.
    let other = [&said[..97], &prompt(2, 60)].concat();
    assert_eq!(simulation.cached(2, other), 64);
}

#[test]
fn prompts_that_arrive_together_are_computed_once() {
    let mut simulation = Simulation::new(512, 8, 8, 256);
    for id in 0..4 {
        simulation.scheduler.add(sequence(id, prompt(0, 1000), 3));
    }
    simulation.scheduler.add(sequence(4, sibling(4, 500, 900), 3));
    simulation.scheduler.add(sequence(5, sibling(5, 500, 900), 3));
    let mut computed = 0;
    while simulation.num_unfinished() > 0 {
        let (output, _) = simulation.step(usize::MAX);
        computed += output.num_tokens();
    }
    // One whole prompt, three tails behind 960 tokens, two behind the 480 that all share; two tokens
    // of each answer.
    assert_eq!(computed, 1000 + 3 * 40 + 2 * 420 + 6 * 2);
}

#[test]
fn a_step_is_cut_where_one_that_arrives_parts() {
    let mut simulation = Simulation::new(512, 8, 8, 512);
    simulation.scheduler.add(sequence(0, prompt(0, 2000), 1));
    simulation.step(usize::MAX);
    simulation.scheduler.add(sequence(1, sibling(1, 700, 800), 1));
    let (output, _) = simulation.step(usize::MAX);
    assert_eq!(output.scheduled, [(SequenceId(0), 160)], "up to 672 tokens");
    // The older one has the steps first.
    while simulation.scheduler.num_waiting() > 0 {
        let (output, _) = simulation.step(usize::MAX);
        assert!(output.admitted.iter().all(|admitted| *admitted == (SequenceId(1), 672)));
    }
}

#[test]
fn without_rows_every_prompt_is_computed_whole() {
    let mut simulation = Simulation::new(64, 0, 4, 512);
    for id in 0..3 {
        let (cached, chunks, _) = simulation.run(sequence(id, prompt(0, 500), 1));
        assert_eq!((cached, chunks), (0, vec![500]));
    }
}

#[test]
fn states_that_could_not_be_copied_are_not_resumed_from() {
    let mut simulation = Simulation::new(64, 4, 4, 512);
    simulation.cached(0, prompt(0, 500));
    simulation.scheduler.forget_snapshots();
    assert_eq!(simulation.cached(1, prompt(0, 500)), 0);
    assert_eq!(simulation.cached(2, prompt(0, 500)), 480);
}

#[test]
fn forks_resume_from_what_their_prompt_left() {
    let mut simulation = Simulation::new(64, 4, 4, 512);
    simulation.scheduler.add(sequence(0, prompt(0, 200), 1).as_beam());
    while !simulation.scheduler.sequences[&SequenceId(0)].held {
        simulation.step(usize::MAX);
    }
    let copies = simulation.scheduler.fork(SequenceId(0), SequenceId(1));
    let (from, to) = copies.state.unwrap();
    simulation.slots[to as usize] = simulation.slots[from as usize].clone();
    for (id, token) in [(0, 70), (1, 71)] {
        simulation.scheduler.extend(SequenceId(id), token);
    }
    simulation.step(usize::MAX);
    // A waiting fork begins anew, with what is cached of its tokens.
    simulation.scheduler.wait_again(SequenceId(1));
    simulation.scheduler.extend(SequenceId(1), 72);
    let (output, _) = simulation.step(usize::MAX);
    assert_eq!(output.scheduled, [(SequenceId(1), 202 - 160)]);
    assert_eq!(output.restored.len(), 1);
}

#[derive(Clone, Debug)]
enum Event {
    Add { shared: usize, own: u64, length: usize, max_tokens: usize, priority: i32 },
    Abort { which: usize },
    Forget,
    Step,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => (0..300usize, 0..4u64, 1..300usize, 1..80usize, 0..2i32).prop_map(
            |(shared, own, length, max_tokens, priority)| {
                Event::Add { shared: shared.min(length), own, length, max_tokens, priority }
            }
        ),
        3 => (0..6usize).prop_map(|which| Event::Abort { which }),
        1 => Just(Event::Forget),
        24 => Just(Event::Step),
    ];
    prop::collection::vec(event, 1..120)
}

proptest! {
    #[test]
    fn every_sequence_finds_the_state_of_its_tokens(
        events in events(),
        (num_blocks, num_snapshots) in (12..24usize, 0..6usize),
        (max_num_seqs, chunk) in (1..5usize, 8..200usize),
        drafts in (0..9usize, 0..9usize),
    ) {
        let mut simulation = Simulation::new(num_blocks, num_snapshots, max_num_seqs, chunk);
        simulation.forced = true;
        simulation.drafts = drafts;
        let mut live = Vec::new();
        let mut next = 0;
        let events = events.into_iter().chain(std::iter::repeat_n(Event::Step, 8000));
        for (index, event) in events.enumerate() {
            match event {
                Event::Add { shared, own, length, max_tokens, priority } => {
                    let id = SequenceId(next);
                    next += 1;
                    let tokens = sibling(own, shared, length);
                    let stop = stop_after(max_tokens);
                    simulation.scheduler.add(Sequence::new(id, tokens, stop, priority, None));
                    live.push(id);
                }
                Event::Abort { which } if which < live.len() => {
                    prop_assert!(simulation.scheduler.remove(live.swap_remove(which)).is_some());
                }
                Event::Abort { .. } => {}
                Event::Forget => simulation.scheduler.forget_snapshots(),
                Event::Step => {
                    let (output, finished) = simulation.step(index * 7 % 64);
                    prop_assert!(!output.scheduled.is_empty() || live.is_empty());
                    live.retain(|id| finished.iter().all(|sequence| sequence.id != *id));
                }
            }
            if live.is_empty() && index > 120 {
                break;
            }
        }
        prop_assert!(live.is_empty(), "left over: {:?}", live);
        prop_assert_eq!(simulation.scheduler.kv_cache().num_used(), 0);
    }
}
