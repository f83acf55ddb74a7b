//! Sequences that run when no other one needs the engine.

use super::*;
use crate::scheduler::sequence::YIELDS;

fn yielding(id: u64, prompt: Vec<u32>, max_tokens: usize) -> Sequence {
    Sequence::new(SequenceId(id), prompt, stop_after(max_tokens), YIELDS, None)
}

fn step_beside(scheduler: &mut Scheduler, others: usize) -> SchedulerOutput {
    let before = scheduler.clone();
    let (output, _) = step_of(scheduler, Beside { others, ..Beside::ANY });
    check(&before, &output, others);
    output
}

/// Checks that a step with tokens of others has no more of those that yield than it may, and knows how
/// many these are.
pub(super) fn check(scheduler: &Scheduler, output: &SchedulerOutput, others: usize) {
    let yields = |id: &SequenceId| scheduler.sequences[id].yields();
    let of = |yielding: bool| {
        let own = output.scheduled.iter().filter(|(id, _)| yields(id) == yielding);
        own.map(|(_, count)| count).sum::<usize>()
    };
    if of(false) == 0 {
        assert_eq!(output.num_yielding, 0);
    } else {
        assert_eq!(output.num_yielding, of(true));
        assert!(of(true) <= others, "{} for {others}: {output:?}", of(true));
    }
}

fn count(output: &SchedulerOutput, id: u64) -> usize {
    output.scheduled.iter().filter(|(other, _)| other.0 == id).map(|(_, count)| count).sum()
}

#[test]
fn they_leave_the_steps_of_others_but_for_a_few_tokens() {
    let mut scheduler = scheduler(64, 8, 64);
    (0..3).for_each(|id| scheduler.add(yielding(id, prompt(id, 10), 100)));
    assert_eq!(step_beside(&mut scheduler, 0).num_tokens(), 30);
    assert_eq!(step_beside(&mut scheduler, 0).num_tokens(), 3);
    scheduler.add(sequence(9, prompt(9, 100), 3));
    // Neither do they count as somebody beside whom a prompt is cut.
    assert_eq!(step_beside(&mut scheduler, 0).scheduled, [(SequenceId(9), 64)]);
    assert_eq!(step_beside(&mut scheduler, 0).scheduled, [(SequenceId(9), 36)]);
    let beside = step_beside(&mut scheduler, 2).scheduled;
    assert_eq!(beside, [(SequenceId(9), 1), (SequenceId(0), 1), (SequenceId(1), 1)]);
    assert_eq!(step_beside(&mut scheduler, 0).scheduled, [(SequenceId(9), 1)]);
    assert_eq!(step_beside(&mut scheduler, 0).num_tokens(), 3, "the step is theirs again");
    assert_eq!(scheduler.num_running(), 3, "nothing was computed twice");
}

#[test]
fn a_prompt_of_theirs_is_read_bit_by_bit() {
    let mut scheduler = scheduler(64, 8, 64);
    scheduler.add(sequence(0, prompt(0, 4), 100));
    step_beside(&mut scheduler, 0);
    scheduler.add(yielding(1, prompt(1, 20), 5));
    assert_eq!(count(&step_beside(&mut scheduler, 0), 1), 0);
    let chunks: Vec<_> =
        [3, 8, 1, 20].map(|most| count(&step_beside(&mut scheduler, most), 1)).into();
    assert_eq!(chunks, [3, 8, 1, 8]);
}

#[test]
fn others_get_their_places_and_blocks() {
    let mut scheduler = scheduler(12, 3, 512);
    (0..3).for_each(|id| scheduler.add(yielding(id, prompt(id, 100), 20)));
    step_beside(&mut scheduler, 0);
    assert_eq!((scheduler.num_running(), scheduler.kv_cache().num_free()), (3, 0));
    scheduler.add(sequence(7, prompt(7, 150), 2));
    let output = step_beside(&mut scheduler, 0);
    assert_eq!(output.scheduled, [(SequenceId(7), 150)]);
    assert_eq!(
        output.preempted,
        [SequenceId(2), SequenceId(1)],
        "the last ones, no more than it needs"
    );
    step_beside(&mut scheduler, 0);
    // They go on, and end.
    let mut steps = 0;
    while scheduler.num_running() + scheduler.num_waiting() > 0 {
        step_beside(&mut scheduler, 0);
        steps += 1;
        assert!(steps < 100);
    }
}

#[test]
fn nobody_waits_for_a_beginning_that_they_compute() {
    let mut scheduler = scheduler(64, 4, 64);
    scheduler.add(yielding(0, prompt(0, 400), 5));
    step_beside(&mut scheduler, 0);
    scheduler.add(sequence(1, prompt(0, 300), 5));
    let output = step_beside(&mut scheduler, 0);
    assert_eq!(output.admitted, [(SequenceId(1), 64)], "what is there is shared");
    assert_eq!(output.scheduled, [(SequenceId(1), 64)]);
}

#[test]
fn streams_have_drafts_while_a_prompt_of_theirs_waits() {
    let mut scheduler = scheduler(64, 4, 64);
    scheduler.add(yielding(0, prompt(0, 400), 5));
    step_beside(&mut scheduler, 0);
    scheduler.add(sequence(1, prompt(1, 10), 50));
    step_beside(&mut scheduler, 0);
    let ids: Vec<_> = scheduler.decoding().unwrap().iter().map(|sequence| sequence.id).collect();
    assert_eq!(ids, [SequenceId(1)]);
    scheduler.offer_drafts(SequenceId(1), vec![7, 7, 7]);
    let output = scheduler.schedule(Beside { others: 2, ..Beside::ANY });
    let drafts: Vec<_> = scheduler.plan(&output).map(|planned| planned.drafts.len()).collect();
    assert_eq!(drafts, [3, 0]);
}

#[test]
fn their_steps_are_short_while_others_come_and_go() {
    let mut scheduler = scheduler(128, 8, 512);
    let step = |scheduler: &mut Scheduler| {
        step_of(scheduler, Beside { decodes: 200, others: 0 }).0.num_tokens()
    };
    scheduler.add(yielding(0, prompt(0, 800), 1));
    assert_eq!(step(&mut scheduler), 512, "nobody came");
    scheduler.add(sequence(1, prompt(1, 20), 1));
    assert_eq!([step(&mut scheduler), step(&mut scheduler)], [20, 50]);
    for _ in 0..5 {
        step(&mut scheduler);
    }
    scheduler.add(yielding(2, prompt(2, 20), 300));
    while scheduler.sequence(SequenceId(2)).is_some() {
        step(&mut scheduler);
    }
    scheduler.add(yielding(3, prompt(3, 800), 1));
    assert_eq!(step(&mut scheduler), 512, "nobody came for long");
}
