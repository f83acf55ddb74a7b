//! Keys that wait beside each other: each gets its turn by tokens, however many sequences the others have.

use super::*;

const CROWD: ShareId = ShareId(1);
const OTHER: ShareId = ShareId(2);

/// A hundred sequences of one key and one of another, which comes when `earlier` steps are over.
struct Crowd {
    scheduler: Scheduler,
    /// Sequences of the crowd that ended.
    ended: usize,
}

const LATE: u64 = 1000;

impl Crowd {
    fn new(mut scheduler: Scheduler, length: usize, max_tokens: usize) -> Self {
        for id in 0..100 {
            scheduler.add(sequence(id, prompt(id, length), max_tokens).with_share(CROWD));
        }
        Self { scheduler, ended: 0 }
    }

    fn step(&mut self) -> SchedulerOutput {
        let (output, ended) = step(&mut self.scheduler);
        self.ended += ended.iter().filter(|(end, _)| end.id.0 < LATE).count();
        output
    }

    /// Steps until the first token of a sequence.
    fn steps_to_first_token(&mut self, id: u64) -> usize {
        for steps in 1..10_000 {
            self.step();
            let sequence = self.scheduler.sequence(SequenceId(id));
            if sequence.is_none_or(|sequence| sequence.num_output() > 0) {
                return steps;
            }
        }
        panic!("{id} has no token")
    }
}

/// The same without a crowd.
fn alone(mut scheduler: Scheduler, sequence: Sequence) -> usize {
    scheduler.add(sequence);
    Crowd { scheduler, ended: 0 }.steps_to_first_token(LATE)
}

#[test]
fn one_waits_at_most_two_steps_longer_than_alone_where_there_is_room() {
    let config = || scheduler(2000, 128, 64);
    let late = || sequence(LATE, prompt(1, 150), 5).with_share(OTHER);
    let mut crowd = Crowd::new(config(), 200, 3);
    (0..7).for_each(|_| drop(crowd.step()));
    crowd.scheduler.add(late());
    let (crowded, alone) = (crowd.steps_to_first_token(LATE), alone(config(), late()));
    assert!(crowded <= alone + 2, "{crowded} steps, alone {alone}");
}

#[test]
fn one_is_the_next_to_run_where_all_places_are_taken() {
    let mut crowd = Crowd::new(scheduler(2000, 4, 64), 20, 12);
    (0..9).for_each(|_| drop(crowd.step()));
    crowd.scheduler.add(sequence(LATE, prompt(1, 20), 5).with_share(OTHER));
    let before = crowd.ended;
    crowd.steps_to_first_token(LATE);
    // Those that run end together; two rounds of one place each.
    assert!(crowd.ended - before <= 4, "{} went first", crowd.ended - before);
}

#[test]
fn keys_with_as_much_to_do_get_as_much() {
    let mut scheduler = scheduler(2000, 6, 64);
    for id in 0..200 {
        // One key has long prompts, the other has short ones.
        let (share, length) = if id % 2 == 0 { (CROWD, 100) } else { (OTHER, 10) };
        scheduler.add(sequence(id, prompt(id, length), 10).with_share(share));
    }
    let mut served = [0, 0];
    for _ in 0..120 {
        let (output, _) = step(&mut scheduler);
        for (id, tokens) in output.scheduled {
            served[usize::from(id.0 % 2 == 1)] += tokens;
        }
    }
    let [long, short] = served;
    assert!(long.abs_diff(short) < (long + short) / 5, "{long} and {short} tokens");
}

#[test]
fn a_priority_counts_among_those_of_its_key() {
    let mut crowd = Crowd::new(scheduler(2000, 2, 64), 40, 2);
    let mut urgent = sequence(50 + LATE, prompt(2, 40), 2).with_share(CROWD);
    urgent.priority = -100;
    crowd.scheduler.add(sequence(LATE, prompt(1, 40), 2).with_share(OTHER));
    crowd.scheduler.add(urgent);
    let mut begun = Vec::new();
    for _ in 0..12 {
        begun.extend(crowd.step().admitted.into_iter().map(|(id, _)| id.0));
    }
    let place = |id| begun.iter().position(|other| *other == id).unwrap();
    assert!(place(50 + LATE) <= 1 && place(LATE) <= 2, "{begun:?}");
}

#[test]
fn the_key_that_was_served_most_gives_up_its_blocks() {
    let mut scheduler = scheduler(8, 4, 128);
    for id in 0..2 {
        scheduler.add(sequence(id, prompt(id, 90), 100).with_share(CROWD));
    }
    (0..5).for_each(|_| drop(step(&mut scheduler)));
    // It came last, but little was served of its key.
    scheduler.add(sequence(LATE, prompt(1, 20), 100).with_share(OTHER));
    let mut preempted = Vec::new();
    for _ in 0..60 {
        preempted.extend(step(&mut scheduler).0.preempted);
    }
    assert!(!preempted.is_empty() && !preempted.contains(&SequenceId(LATE)), "{preempted:?}");
}
