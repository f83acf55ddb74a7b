//! The scheduler driven as the engine drives it, without a model.

use std::sync::Arc;

use proptest::prelude::*;

use super::output::MediaSpan;
use super::shares::ShareId;
use super::stop::StopConditions;
use super::*;
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::{BLOCK_SIZE, BlockTable};

fn scheduler(num_blocks: usize, max_num_seqs: usize, max_tokens: usize) -> Scheduler {
    let config = SchedulerConfig {
        fixed_rope_length: None,
        keeps_state: false,
        lookahead: false,
        num_slots: max_num_seqs,
        max_num_seqs,
        max_num_batched_tokens: max_tokens,
        max_model_len: num_blocks * BLOCK_SIZE,
    };
    Scheduler::new(config, KvCacheManager::new(num_blocks, true))
}

fn stop_after(max_tokens: usize) -> StopConditions {
    StopConditions {
        max_tokens,
        min_tokens: 0,
        eos_token_ids: Arc::from([]),
        stop_token_ids: Vec::new(),
        ignore_eos: false,
    }
}

fn sequence(id: u64, prompt: Vec<u32>, max_tokens: usize) -> Sequence {
    Sequence::new(SequenceId(id), prompt, stop_after(max_tokens), 0, None)
}

/// A prompt that shares nothing with others.
fn prompt(id: u64, length: usize) -> Vec<u32> {
    (0..length).map(|i| u32::try_from(id).unwrap() * 10_000 + u32::try_from(i).unwrap()).collect()
}

/// Runs one step; the token sampled at a position is a function of sequence and position.
fn step(scheduler: &mut Scheduler) -> (SchedulerOutput, Vec<(Finished, Sequence)>) {
    step_of(scheduler, Beside::ANY)
}

/// So many tokens of a step in which someone decodes.
fn beside_decodes(tokens: usize) -> Beside {
    Beside { decodes: tokens, ..Beside::ANY }
}

/// As [`step`], with no more than that beside tokens that somebody waits for.
fn step_of(
    scheduler: &mut Scheduler,
    beside: Beside,
) -> (SchedulerOutput, Vec<(Finished, Sequence)>) {
    let output = scheduler.schedule(beside);
    let sampled: Vec<_> = scheduler
        .plan(&output)
        .filter(|planned| planned.samples)
        .map(|planned| {
            let position = planned.first_position + planned.token_ids.len();
            (planned.id, vec![token_at(planned.id, position)])
        })
        .collect();
    let finished = scheduler.update(&output, &sampled);
    (output, finished)
}

fn token_at(id: SequenceId, position: usize) -> u32 {
    u32::try_from(id.0 * 7919 + position as u64).unwrap()
}

#[test]
fn a_picture_that_is_seen_both_ways_is_computed_in_one_step() {
    let mut scheduler = scheduler(64, 4, 60);
    scheduler.add(sequence(0, prompt(0, 8), 20));
    step(&mut scheduler);
    let media = [(20, 40), (80, 19)].map(|(offset, columns)| MediaSpan {
        two_way: true,
        ..MediaSpan::whole(offset, [1, columns], [7; 16])
    });
    scheduler.add(sequence(1, prompt(1, 100), 10).with_media(Arc::from(media)));
    scheduler.add(sequence(2, prompt(2, 50), 10));
    // What a step should have is less than the first picture, what it may have is enough.
    let beside = beside_decodes(33);
    let chunks: Vec<_> = (0..5).map(|_| step_of(&mut scheduler, beside).0.scheduled).collect();
    let of = |id: u64| {
        let own = move |chunk: &Vec<(SequenceId, usize)>| {
            chunk.iter().find(|(other, _)| other.0 == id).map_or(0, |(_, count)| *count)
        };
        chunks.iter().map(own).collect::<Vec<_>>()
    };
    assert_eq!(of(1), [20, 40, 20, 20, 1]);
    assert_eq!(of(2), [12, 0, 12, 12, 14]);
}

#[test]
fn a_prompt_that_sees_itself_is_computed_in_one_step() {
    let mut scheduler = scheduler(64, 4, 60);
    scheduler.add(sequence(0, prompt(0, 8), 20));
    step(&mut scheduler);
    scheduler.add(sequence(1, prompt(1, 50), 10).with_prompt_as_prefix());
    scheduler.add(sequence(2, prompt(2, 58), 10).with_prompt_as_prefix());
    let beside = beside_decodes(33);
    let chunks: Vec<_> = (0..3).map(|_| step_of(&mut scheduler, beside).0.scheduled).collect();
    let [first, second, third] = [0, 1, 2].map(SequenceId);
    assert_eq!(chunks[0], [(first, 1), (second, 50)]);
    assert_eq!(chunks[1], [(first, 1), (second, 1), (third, 58)]);
    assert_eq!(chunks[2], [(first, 1), (second, 1), (third, 1)]);
}

#[test]
fn a_prompt_that_sees_itself_is_shared_with_none_but_its_like() {
    let mut scheduler = scheduler(64, 4, 200);
    let whole = prompt(1, 2 * BLOCK_SIZE + 6);
    let longer = [&whole[..], &[7]].concat();
    let other = [&whole[..whole.len() - 1], &[7]].concat();
    let mut cached = |id, prompt: &[u32], prefix: bool| {
        let sequence = sequence(id, prompt.to_vec(), 1);
        scheduler.add(if prefix { sequence.with_prompt_as_prefix() } else { sequence });
        step(&mut scheduler).0.admitted
    };
    assert_eq!(cached(0, &whole, true), [(SequenceId(0), 0)]);
    assert_eq!(cached(1, &longer, true), [(SequenceId(1), 0)]);
    assert_eq!(cached(2, &other, true), [(SequenceId(2), 0)]);
    assert_eq!(cached(3, &whole, false), [(SequenceId(3), 0)]);
    let admitted = cached(4, &whole, true);
    assert!(admitted[0].1 >= 2 * BLOCK_SIZE, "{admitted:?}");
}

#[test]
fn mixes_decodes_and_prefill_chunks_in_one_step() {
    let mut scheduler = scheduler(64, 4, 40);
    scheduler.add(sequence(0, prompt(0, 8), 10));
    assert_eq!(step(&mut scheduler).0.scheduled, [(SequenceId(0), 8)]);
    scheduler.add(sequence(1, prompt(1, 100), 10));
    let chunks: Vec<_> = (0..3).map(|_| step(&mut scheduler).0.scheduled).collect();
    assert_eq!(chunks[0], [(SequenceId(0), 1), (SequenceId(1), 39)]);
    assert_eq!(chunks[1], [(SequenceId(0), 1), (SequenceId(1), 39)]);
    assert_eq!(chunks[2], [(SequenceId(0), 1), (SequenceId(1), 22)]);
}

#[test]
fn decodes_come_before_the_chunks_of_an_older_prompt() {
    let mut scheduler = scheduler(64, 4, 16);
    let mut patient = sequence(0, prompt(0, 4), 5);
    patient.priority = 1;
    scheduler.add(patient);
    step(&mut scheduler);
    scheduler.add(sequence(1, prompt(1, 200), 1));
    for _ in 0..3 {
        let (output, _) = step(&mut scheduler);
        assert_eq!(output.scheduled, [(SequenceId(0), 1), (SequenceId(1), 15)]);
    }
}

#[test]
fn prompts_are_cut_smaller_while_someone_decodes() {
    let mut scheduler = scheduler(64, 4, 200);
    scheduler.add(sequence(0, prompt(0, 150), 2));
    scheduler.add(sequence(1, prompt(1, 300), 9));
    let tokens = |number| vec![(SequenceId(0), 1), (SequenceId(1), number)];
    let (output, _) = step_of(&mut scheduler, beside_decodes(60));
    assert_eq!(output.scheduled, [(SequenceId(0), 150), (SequenceId(1), 50)]);
    assert_eq!(step_of(&mut scheduler, beside_decodes(60)).0.scheduled, tokens(59));
    let (output, _) = step_of(&mut scheduler, beside_decodes(60));
    assert_eq!(output.scheduled, [(SequenceId(1), 191)], "nobody decodes any more");
}

#[test]
fn prompts_get_on_beside_any_number_of_decodes() {
    let mut scheduler = scheduler(64, 8, 64);
    (0..6).for_each(|id| scheduler.add(sequence(id, prompt(id, 5), 100)));
    step(&mut scheduler);
    scheduler.add(sequence(6, prompt(6, 100), 9));
    scheduler.add(sequence(7, prompt(7, 100), 9));
    for expected in [[(6, 32), (7, 0)], [(6, 32), (7, 0)], [(6, 32), (7, 0)], [(6, 4), (7, 28)]] {
        let (output, _) = step_of(&mut scheduler, beside_decodes(0));
        assert_eq!(output.num_tokens(), 6 + 32);
        for (id, number) in expected {
            let chunk = output.scheduled.iter().find(|(other, _)| *other == SequenceId(id));
            assert_eq!(chunk.map_or(0, |(_, number)| *number), number);
        }
    }
}

#[test]
fn preempts_youngest_when_blocks_run_out() {
    let mut scheduler = scheduler(4, 4, 128);
    scheduler.add(sequence(0, prompt(0, 60), 40));
    scheduler.add(sequence(1, prompt(1, 60), 40));
    let mut preempted = Vec::new();
    let mut finished = Vec::new();
    for _ in 0..200 {
        let (output, ended) = step(&mut scheduler);
        preempted.extend(output.preempted);
        finished.extend(ended.into_iter().map(|(end, sequence)| (end.id, sequence)));
    }
    assert_eq!(preempted, [SequenceId(1)]);
    assert_eq!(finished.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [0, 1]);
    for (id, sequence) in finished {
        let expected: Vec<_> = (60..100).map(|position| token_at(id, position)).collect();
        assert_eq!(sequence.tokens[60..], expected);
    }
    assert_eq!(scheduler.kv_cache().num_used(), 0);
}

#[test]
fn reuses_a_cached_prefix_but_recomputes_the_last_token() {
    let mut scheduler = scheduler(16, 4, 256);
    scheduler.add(sequence(0, prompt(0, 64), 1));
    step(&mut scheduler);
    scheduler.add(sequence(1, prompt(0, 64), 1));
    let (output, finished) = step(&mut scheduler);
    assert_eq!(output.admitted, [(SequenceId(1), 63)]);
    assert_eq!(output.scheduled, [(SequenceId(1), 1)]);
    assert_eq!(finished[0].1.num_cached(), 63);
}

#[test]
fn equal_prompts_that_arrive_together_are_computed_once() {
    let mut scheduler = scheduler(32, 4, 64);
    for id in 0..3 {
        scheduler.add(sequence(id, prompt(0, 100), 4));
    }
    let mut computed = 0;
    while scheduler.num_running() + scheduler.num_waiting() > 0 {
        let (output, _) = step(&mut scheduler);
        computed += output.scheduled.iter().map(|(_, tokens)| tokens).sum::<usize>();
    }
    // One whole prompt, two tails behind three shared blocks, three decodes for each.
    assert_eq!(computed, 100 + 2 * 4 + 3 * 3);
}

#[test]
fn a_prompt_that_is_being_computed_in_chunks_is_not_computed_again() {
    let mut scheduler = scheduler(64, 4, 256);
    scheduler.add(sequence(0, prompt(0, 5), 100));
    step(&mut scheduler);
    scheduler.add(sequence(1, prompt(1, 200), 1));
    let mut computed = 0;
    for late in 2..12 {
        let (output, _) = step_of(&mut scheduler, beside_decodes(41));
        computed += output.num_tokens() - 1;
        if late < 5 {
            scheduler.add(sequence(late, prompt(1, 200), 1));
        }
    }
    assert_eq!((scheduler.num_running(), scheduler.num_waiting()), (1, 0));
    // One whole prompt, and the last token of each that follows.
    assert_eq!(computed, 200 + 3);
}

#[test]
fn salts_keep_prefixes_apart() {
    let mut scheduler = scheduler(16, 4, 256);
    for (id, salt) in [(0, None), (1, Some("a")), (2, Some("a"))] {
        let stop = stop_after(1);
        scheduler.add(Sequence::new(SequenceId(id), prompt(0, 64), stop, 0, salt));
        let (_, finished) = step(&mut scheduler);
        assert_eq!(finished[0].1.num_cached(), if id == 2 { 63 } else { 0 });
    }
}

#[test]
fn ends_at_the_context_length() {
    let mut scheduler = scheduler(1, 1, 64);
    scheduler.add(sequence(0, prompt(0, 30), 100));
    let mut reasons = Vec::new();
    for _ in 0..4 {
        reasons.extend(step(&mut scheduler).1.into_iter().map(|(end, _)| end.reason));
    }
    assert_eq!(reasons, [FinishReason::Length]);
}

#[derive(Clone, Debug)]
enum Event {
    Add { family: u64, length: usize, max_tokens: usize, priority: i32, share: u64, scored: bool },
    Abort { which: usize },
    Drafts { count: usize, right: usize },
    Step,
}

/// Of which some yield.
fn priorities() -> impl Strategy<Value = i32> {
    prop_oneof![2 => 0..2i32, 1 => Just(sequence::YIELDS)]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (0..3u64, 1..150usize, 1..40usize, priorities(), 0..3u64, any::<bool>()).prop_map(
            |(family, length, max_tokens, priority, share, scored)| Event::Add {
                family, length, max_tokens, priority, share, scored
            }
        ),
        1 => (0..6usize).prop_map(|which| Event::Abort { which }),
        2 => (0..20usize, 0..20usize).prop_map(|(count, right)| Event::Drafts { count, right }),
        6 => Just(Event::Step),
    ];
    prop::collection::vec(event, 1..120)
}

/// One to three tokens behind the drafts that are right, as where a grammar knows what comes next.
fn next_tokens(planned: &output::PlannedSequence<'_>) -> Vec<u32> {
    let position = planned.first_position + planned.token_ids.len();
    let drafts = (position..).zip(planned.drafts);
    let right = drafts.take_while(|(at, draft)| token_at(planned.id, *at) == **draft).count();
    (position..=position + right + position % 3).map(|at| token_at(planned.id, at)).collect()
}

/// Offers drafts of all that may have some, the first of them right.
fn offer_drafts(scheduler: &mut Scheduler, count: usize, right: usize) {
    let decoding = scheduler.decoding().unwrap_or_default();
    let lengths: Vec<_> = decoding.iter().map(|s| (s.id, s.tokens().len())).collect();
    for (id, length) in lengths {
        let token = |index| token_at(id, length + index) + u32::from(index >= right);
        scheduler.offer_drafts(id, (0..count).map(token).collect());
    }
}

fn check_step(scheduler: &Scheduler, output: &SchedulerOutput) {
    let config = &scheduler.config;
    let tokens: usize = scheduler.plan(output).map(|planned| planned.num_tokens()).sum();
    assert!(tokens <= config.max_num_batched_tokens);
    assert!(output.scheduled.len() <= config.max_num_seqs);
    for planned in scheduler.plan(output) {
        let end = planned.first_position + planned.num_tokens();
        assert!(end < config.max_model_len || planned.drafts.is_empty());
        assert!(!planned.token_ids.is_empty());
        assert!(planned.block_table.len() * BLOCK_SIZE >= end);
    }
    let held: usize = scheduler
        .running
        .iter()
        .flat_map(|id| scheduler.sequences[id].table.blocks())
        .collect::<HashSet<_>>()
        .len();
    assert_eq!(held, scheduler.kv_cache.num_used(), "blocks belong to running sequences");
    let running = scheduler.running.iter().map(|id| scheduler.sequences[id].slot.unwrap());
    let backups = scheduler.running.iter().filter_map(|id| scheduler.sequences[id].backup);
    let mut slots: Vec<u32> =
        running.chain(backups).chain(scheduler.free_slots.iter().copied()).collect();
    slots.sort_unstable();
    let all = 0..u32::try_from(config.num_slots).unwrap();
    assert_eq!(slots, all.collect::<Vec<_>>(), "every slot is free or one sequence's");
    let holding = scheduler.sequences.values().filter(|sequence| sequence.slot.is_some());
    assert_eq!(holding.count(), scheduler.running.len());
}

proptest! {
    #[test]
    fn finishes_everything_exactly_once_and_leaks_nothing(events in events()) {
        let mut scheduler = scheduler(8, 3, 48);
        let mut live = Vec::new();
        let mut next = 0;
        let mut beside = Beside { decodes: 0, others: 0 };
        let mut ended = HashSet::new();
        let mut scores: HashMap<SequenceId, Vec<u32>> = HashMap::new();
        let events = events.into_iter().chain(std::iter::repeat_n(Event::Step, 3000));
        for event in events {
            match event {
                Event::Add { family, length, max_tokens, priority, share, scored } => {
                    let id = SequenceId(next);
                    next += 1;
                    let stop = stop_after(max_tokens);
                    let sequence = Sequence::new(id, prompt(family, length), stop, priority, None)
                        .with_share(ShareId(share));
                    scheduler.add(if scored { sequence.with_scored_prompt() } else { sequence });
                    if scored {
                        scores.insert(id, Vec::new());
                    }
                    live.push(id);
                }
                Event::Abort { which } if which < live.len() => {
                    let id = live.swap_remove(which);
                    prop_assert!(scheduler.remove(id).is_some());
                }
                Event::Abort { .. } => {}
                Event::Drafts { count, right } => offer_drafts(&mut scheduler, count, right),
                Event::Step => {
                    let decodes = (beside.decodes + 7) % 64;
                    beside = Beside { decodes, others: decodes % 5 };
                    let output = scheduler.schedule(beside);
                    check_step(&scheduler, &output);
                    yielding::check(&scheduler, &output, beside.others);
                    prop_assert!(!output.scheduled.is_empty() || live.is_empty());
                    for planned in scheduler.plan(&output) {
                        if let Some(scores) = scores.get_mut(&planned.id) {
                            scores.extend(planned.scored);
                        } else {
                            prop_assert!(planned.scored.is_empty());
                        }
                    }
                    let sampled: Vec<_> = scheduler
                        .plan(&output)
                        .filter(|planned| planned.samples)
                        .map(|planned| (planned.id, next_tokens(&planned)))
                        .collect();
                    for (end, sequence) in scheduler.update(&output, &sampled) {
                        prop_assert!(ended.insert(end.id));
                        live.retain(|id| *id != end.id);
                        prop_assert!(sequence.num_output() <= sequence.stop.max_tokens);
                        if let Some(scores) = scores.get(&end.id) {
                            prop_assert_eq!(scores, &sequence.tokens[1..sequence.prompt_len]);
                        }
                        for position in sequence.prompt_len..sequence.tokens.len() {
                            let expected = token_at(end.id, position);
                            prop_assert_eq!(sequence.tokens[position], expected);
                        }
                    }
                }
            }
            if live.is_empty() && scheduler.num_waiting() == 0 && ended.len() > 50 {
                break;
            }
        }
        prop_assert!(live.is_empty(), "left over: {:?}", live);
        prop_assert_eq!(scheduler.kv_cache().num_used(), 0);
    }
}

#[test]
fn a_sequence_that_outgrows_what_short_ones_are_is_computed_again() {
    let mut scheduler = scheduler(16, 4, 512);
    scheduler.config.fixed_rope_length = Some(70);
    scheduler.add(sequence(1, prompt(1, 68), 10));
    let mut computed = Vec::new();
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let (output, _) = step(&mut scheduler);
        computed.extend(output.scheduled.iter().map(|(_, count)| *count));
        tokens.push(scheduler.sequence(SequenceId(1)).unwrap().tokens.len());
        assert!(output.preempted.is_empty());
    }
    // 68 and one and one, then all 71 of them, and on.
    assert_eq!(computed, [68, 1, 1, 71, 1]);
    assert_eq!(tokens, [69, 70, 71, 72, 73]);
    assert_eq!(scheduler.sequence(SequenceId(1)).unwrap().preemptions(), 0);
    // Blocks are shared with sequences that are as long, and with no other.
    let cached = |scheduler: &mut Scheduler, id: u64, length: usize| {
        let mut shared = prompt(1, 68);
        shared.truncate(length);
        shared.resize(length, 7);
        scheduler.add(sequence(id, shared, 1));
        let (output, _) = step(scheduler);
        output.admitted.iter().find(|(other, _)| other.0 == id).unwrap().1
    };
    assert_eq!(cached(&mut scheduler, 2, 90), 64);
    assert_eq!(cached(&mut scheduler, 3, 66), 64);
    let mut fresh = self::scheduler(16, 4, 512);
    fresh.config.fixed_rope_length = Some(70);
    fresh.add(sequence(1, prompt(1, 90), 4));
    step(&mut fresh);
    assert_eq!(cached(&mut fresh, 2, 66), 0);
    assert_eq!(cached(&mut fresh, 3, 91), 64);
}

mod events;
mod fairness;
mod loads;
mod parts;
mod snapshots;
mod yielding;
