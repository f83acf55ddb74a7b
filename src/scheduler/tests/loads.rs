//! Sequences that wait for content from a slower tier, which is there or not, and comes when it wants.

use super::*;
use crate::kv_cache::content::Content;

/// A scheduler beside a tier that has all that it was ever told of.
struct Simulation {
    scheduler: Scheduler,
    stored: HashSet<Content>,
    /// What is on its way, by sequence.
    coming: Vec<(SequenceId, Vec<Content>)>,
    live: HashSet<SequenceId>,
    cached: HashMap<SequenceId, usize>,
}

impl Simulation {
    fn new(num_blocks: usize, num_snapshots: usize) -> Self {
        let mut config = scheduler(num_blocks, 3, 48).config;
        config.keeps_state = num_snapshots > 0;
        let cache = KvCacheManager::new(num_blocks, true).with_snapshots(num_snapshots);
        Self {
            scheduler: Scheduler::new(config, cache).with_tier(),
            stored: HashSet::new(),
            coming: Vec::new(),
            live: HashSet::new(),
            cached: HashMap::new(),
        }
    }

    fn add(&mut self, sequence: Sequence) {
        self.live.insert(sequence.id);
        self.scheduler.add(sequence);
    }

    /// What the engine does before a step, and the step. Returns whether anything was computed.
    fn step(&mut self) -> bool {
        let planned = self.scheduler.plan_loads(|content| self.stored.contains(&content)).0;
        for (_, contents) in &planned {
            assert!(contents.iter().all(|content| self.stored.contains(content)));
        }
        self.coming.extend(planned);
        self.stored.extend(self.scheduler.take_added());
        let output = self.scheduler.schedule(Beside::ANY);
        self.cached.extend(output.admitted.iter().copied());
        let waits: Vec<SequenceId> = self.coming.iter().map(|(id, _)| *id).collect();
        for (id, _) in &output.scheduled {
            let load = self.scheduler.loads.of.get(id);
            assert!(load.is_none(), "{id:?} runs and has a load, {waits:?} wait");
        }
        let sampled: Vec<_> = self
            .scheduler
            .plan(&output)
            .filter(|planned| planned.samples)
            .map(|planned| (planned.id, vec![token_at(planned.id, planned.first_position)]))
            .collect();
        for (end, _) in self.scheduler.update(&output, &sampled) {
            assert!(self.live.remove(&end.id));
        }
        self.scheduler.take_snapshots();
        !output.scheduled.is_empty()
    }

    /// The next part of a load arrives, or it ends; with `lost` it is gone.
    fn arrive(&mut self, which: usize, lost: bool) {
        if self.coming.is_empty() {
            return;
        }
        let which = which % self.coming.len();
        let (id, contents) = &mut self.coming[which];
        let (id, next) = (*id, (!contents.is_empty()).then(|| contents.remove(0)));
        let placed = next.filter(|_| !lost).is_some_and(|content| {
            let placed = self.scheduler.place(id, content, |_| true);
            assert!(!placed || self.scheduler.kv_cache().contains(content));
            placed
        });
        if !placed {
            self.coming.remove(which);
            self.scheduler.end_load(id);
        }
    }
}

#[test]
fn a_sequence_runs_behind_what_was_loaded_for_it() {
    let mut simulation = Simulation::new(16, 0);
    simulation.add(sequence(0, prompt(0, 100), 2));
    while simulation.step() {}
    assert_eq!(simulation.cached[&SequenceId(0)], 0);
    simulation.step();
    // Another process, with the same tier.
    let stored = simulation.stored;
    assert_eq!(stored.len(), 3);
    let mut simulation = Simulation { stored, ..Simulation::new(16, 0) };
    simulation.add(sequence(1, prompt(0, 100), 2));
    // One that wants the same waits for the same load, another one runs meanwhile.
    simulation.add(sequence(2, prompt(0, 80), 2));
    simulation.add(sequence(3, prompt(3, 20), 1));
    assert!(simulation.step());
    assert!(!simulation.live.contains(&SequenceId(3)), "it has ended");
    assert!(!simulation.step(), "the others wait");
    assert_eq!(simulation.coming.len(), 1);
    for _ in 0..2 {
        assert!(!simulation.step());
        simulation.arrive(0, false);
    }
    assert!(simulation.step(), "all that the shorter one wants is there");
    (0..2).for_each(|_| simulation.arrive(0, false));
    while simulation.step() {}
    assert!(simulation.live.is_empty());
    assert_eq!(simulation.cached[&SequenceId(1)], 96);
    assert!(simulation.cached[&SequenceId(2)] >= 64);
    assert_eq!(simulation.scheduler.kv_cache().num_used(), 0);
}

#[test]
fn who_runs_takes_the_blocks_that_are_held_for_who_waits() {
    let mut simulation = Simulation::new(8, 0);
    simulation.add(sequence(0, prompt(0, 129), 1));
    while simulation.step() {}
    simulation.step();
    let stored = std::mem::take(&mut simulation.stored);
    let mut simulation = Simulation { stored, ..Simulation::new(8, 0) };
    // It needs all blocks before it ends.
    simulation.add(sequence(1, prompt(1, 100), 156));
    assert!(simulation.step());
    simulation.add(sequence(2, prompt(0, 129), 1));
    simulation.step();
    (0..2).for_each(|_| simulation.arrive(0, false));
    assert_eq!(simulation.scheduler.kv_cache().num_used(), 4 + 2);
    while simulation.live.contains(&SequenceId(1)) {
        assert!(simulation.step());
    }
    assert_eq!(simulation.cached.len(), 1, "the other has not run yet");
    simulation.arrive(0, false);
    assert!(simulation.coming.is_empty(), "its load was given up");
    while simulation.step() {}
    assert!(simulation.live.is_empty());
}

proptest! {
    #[test]
    fn all_end_whatever_loads_do_and_nothing_leaks(
        events in events(),
        choices in prop::collection::vec((0..4usize, 0..8u8), 200),
        num_snapshots in 0..4usize,
    ) {
        let mut simulation = Simulation::new(8, num_snapshots);
        let (mut next, mut choices) = (0, choices.into_iter().cycle());
        let rest = std::iter::repeat_n(Event::Step, 4000);
        for event in events.into_iter().chain(rest) {
            match event {
                Event::Add { family, length, max_tokens, priority, share, scored } => {
                    let stop = stop_after(max_tokens);
                    let sequence =
                        Sequence::new(SequenceId(next), prompt(family, length), stop, priority, None)
                            .with_share(ShareId(share));
                    next += 1;
                    simulation.add(if scored { sequence.with_scored_prompt() } else { sequence });
                }
                Event::Abort { which } => {
                    let id = simulation.live.iter().min_by_key(|id| id.0 ^ which as u64).copied();
                    if let Some(id) = id {
                        simulation.live.remove(&id);
                        prop_assert!(simulation.scheduler.remove(id).is_some());
                    }
                }
                Event::Drafts { count, right } => {
                    offer_drafts(&mut simulation.scheduler, count, right);
                }
                Event::Step => {
                    let computed = simulation.step();
                    let waits = !simulation.coming.is_empty();
                    prop_assert!(computed || waits || simulation.live.is_empty());
                    let (which, outcome) = choices.next().unwrap();
                    if outcome > 2 {
                        simulation.arrive(which, outcome == 7);
                    }
                }
            }
        }
        prop_assert!(simulation.live.is_empty(), "{:?}", simulation.live);
        prop_assert_eq!(simulation.scheduler.kv_cache().num_used(), 0);
        prop_assert!(!simulation.scheduler.has_loads());
    }
}
