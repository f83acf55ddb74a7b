//! Sequences without recurrent states, driven with blocks that hold, for each position, the tokens up to
//! there: what keys and values depend on.

use super::*;

/// A scheduler and what a runner would hold: of each position in each block, a hash of the tokens that
/// its keys and values depend on.
struct Simulation {
    scheduler: Scheduler,
    blocks: Vec<[u64; BLOCK_SIZE]>,
    /// Some steps give several tokens.
    forced: bool,
}

impl Simulation {
    fn new(num_blocks: usize, max_num_seqs: usize, chunk: usize) -> Self {
        let scheduler = scheduler(num_blocks, max_num_seqs, chunk);
        Self { scheduler, blocks: vec![[0; BLOCK_SIZE]; num_blocks], forced: false }
    }

    /// Schedules a step, copies what is to be copied and computes the tokens, all of which see the
    /// tokens before them.
    fn compute(&mut self, tokens_beside_decodes: usize) -> SchedulerOutput {
        let output = self.scheduler.schedule(beside_decodes(tokens_beside_decodes));
        check_step(&self.scheduler, &output);
        for (from, to) in output.copied.iter().filter_map(|copies| copies.block) {
            self.blocks[to as usize] = self.blocks[from as usize];
        }
        let plans = self.scheduler.plan(&output).map(|planned| {
            let end = planned.first_position + planned.token_ids.len();
            let tokens = &self.scheduler.sequences[&planned.id].tokens[..end];
            (planned.first_position, planned.block_table.to_vec(), prefixes(tokens))
        });
        let plans: Vec<_> = plans.collect();
        for (first, table, prefixes) in &plans {
            for (position, prefix) in prefixes.iter().enumerate().skip(*first) {
                let block = table[position / BLOCK_SIZE] as usize;
                self.blocks[block][position % BLOCK_SIZE] = *prefix;
            }
        }
        for (_, table, prefixes) in plans {
            for (position, prefix) in prefixes.into_iter().enumerate() {
                let block = table[position / BLOCK_SIZE] as usize;
                assert_eq!(self.blocks[block][position % BLOCK_SIZE], prefix, "{position}");
            }
        }
        output
    }

    fn step(&mut self, tokens_beside_decodes: usize) -> (SchedulerOutput, Vec<Sequence>) {
        let output = self.compute(tokens_beside_decodes);
        let sampled = self.scheduler.plan(&output).filter(|planned| planned.samples);
        let most = if self.forced { usize::MAX } else { 1 };
        let tokens = |planned| next_tokens(&planned).into_iter().take(most).collect();
        let sampled: Vec<_> = sampled.map(|planned| (planned.id, tokens(planned))).collect();
        let finished = self.scheduler.update(&output, &sampled);
        (output, finished.into_iter().map(|(_, sequence)| sequence).collect())
    }

    /// Runs one sequence to its end. Returns how many tokens it found in the cache, and all of its own.
    fn run(&mut self, sequence: Sequence) -> (usize, Vec<u32>) {
        self.scheduler.add(sequence);
        loop {
            if let Some(sequence) = self.step(usize::MAX).1.pop() {
                return (sequence.num_cached(), sequence.tokens);
            }
        }
    }

    fn cached(&mut self, id: u64, prompt: Vec<u32>) -> usize {
        self.run(sequence(id, prompt, 1)).0
    }
}

/// At each position a hash of the tokens up to there.
fn prefixes(tokens: &[u32]) -> Vec<u64> {
    let next = |hash: &mut u64, token: &u32| {
        *hash = (*hash ^ u64::from(*token)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        Some(*hash)
    };
    tokens.iter().scan(17, next).collect()
}

/// `prompt(0, ..)` up to `shared` tokens, then tokens of its own.
fn sibling(id: u64, shared: usize, length: usize) -> Vec<u32> {
    let own = prompt(id, length).split_off(shared);
    [prompt(0, shared), own].concat()
}

#[test]
fn a_prompt_resumes_at_the_token_where_it_parts() {
    let mut simulation = Simulation::new(64, 4, 512);
    assert_eq!(simulation.cached(0, prompt(0, 205)), 0);
    assert_eq!(simulation.cached(1, prompt(0, 205)), 204);
    assert_eq!(simulation.cached(2, sibling(2, 111, 150)), 111);
    assert_eq!(simulation.cached(3, sibling(3, 140, 150)), 140);
    // Of its siblings the one that has most in common is copied.
    assert_eq!(simulation.cached(4, [sibling(2, 111, 125), prompt(4, 30)].concat()), 125);
    assert_eq!(simulation.cached(5, sibling(5, 100, 150)), 100);
    assert_eq!(simulation.cached(6, sibling(6, 99, 150)), 96, "three tokens are worth no copy");
    let salted = Sequence::new(SequenceId(7), prompt(0, 200), stop_after(1), 0, Some("other"));
    assert_eq!(simulation.run(salted).0, 0);
}

#[test]
fn a_conversation_goes_on_at_the_last_token_that_was_computed() {
    let mut simulation = Simulation::new(64, 4, 512);
    let mut said = prompt(0, 50);
    for (id, found) in [(1, 0), (2, 79), (3, 128), (4, 179)] {
        let (cached, tokens) = simulation.run(sequence(id, said, 30));
        assert_eq!(cached, found);
        said = [tokens, prompt(id, 20)].concat();
    }
}

#[test]
fn what_no_step_has_written_is_not_copied() {
    let mut simulation = Simulation::new(64, 4, 512);
    simulation.cached(0, prompt(0, 60));
    simulation.scheduler.add(sequence(1, sibling(1, 50, 90), 9));
    // It leaves after it was planned, before its block is copied.
    let planned = simulation.scheduler.schedule(Beside::ANY);
    assert_eq!((planned.copied.len(), planned.admitted[0].1), (1, 50));
    simulation.scheduler.remove(SequenceId(1));
    assert_eq!(simulation.cached(2, sibling(1, 50, 90)), 50);
}

#[test]
fn beams_leave_no_parts() {
    let mut simulation = Simulation::new(64, 4, 512);
    simulation.scheduler.add(sequence(0, prompt(0, 60), 9).as_beam());
    let output = simulation.compute(usize::MAX);
    simulation.scheduler.update(&output, &[]);
    simulation.scheduler.remove(SequenceId(0));
    assert_eq!(simulation.cached(1, prompt(0, 60)), 32);
}

proptest! {
    #[test]
    fn every_sequence_sees_the_tokens_before_its_own(
        arrivals in prop::collection::vec(
            (0..200usize, 0..4u64, 1..250usize, 1..60usize, 0..9usize, any::<bool>()), 1..25),
        (num_blocks, max_num_seqs, chunk) in (10..20usize, 1..5usize, 8..200usize),
    ) {
        let mut simulation = Simulation::new(num_blocks, max_num_seqs, chunk);
        simulation.forced = true;
        let mut live = Vec::new();
        for (index, arrival) in arrivals.into_iter().enumerate() {
            let (shared, own, length, max_tokens, steps, leaves) = arrival;
            let id = index as u64;
            let tokens = sibling(own, shared.min(length), length);
            simulation.scheduler.add(sequence(id, tokens, max_tokens));
            live.push(SequenceId(id));
            for _ in 0..steps {
                let (_, finished) = simulation.step(index * 7 % 64);
                live.retain(|id| finished.iter().all(|sequence| sequence.id != *id));
            }
            if leaves && !live.is_empty() {
                let id = live.swap_remove(index % live.len());
                prop_assert!(simulation.scheduler.remove(id).is_some());
            }
        }
        for _ in 0..4000 {
            if live.is_empty() {
                break;
            }
            let (_, finished) = simulation.step(30);
            live.retain(|id| finished.iter().all(|sequence| sequence.id != *id));
        }
        prop_assert!(live.is_empty(), "left over: {:?}", live);
        prop_assert_eq!(simulation.scheduler.kv_cache().num_used(), 0);
    }
}
