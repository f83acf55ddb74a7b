//! A runner, which may record decode steps and go on with them, beside the model itself.

use sconce::runner::{CacheSizes, DecodeBounds, HostLogits, KvFormat, Logits, Runner};
use sconce::scheduler::output::PlannedSequence;
use sconce::scheduler::sequence::SequenceId;

use super::driver::{Driver, greedy};
use super::{device, load, prompt};

/// Blocks of each sequence.
const BLOCKS: u32 = 2;

/// One sequence as the runner gets it.
fn planned<'a>(
    index: usize,
    tokens: &'a [u32],
    done: usize,
    table: &'a [u32],
) -> PlannedSequence<'a> {
    PlannedSequence {
        id: SequenceId(index as u64),
        token_ids: &tokens[done..],
        drafts: &[],
        first_position: done,
        sequence_len: tokens.len(),
        block_table: table,
        slot: 5 - u32::try_from(index).unwrap(),
        scored: &[],
        samples: true,
        pooled: (0, 0),
        tapped: false,
        adapter: None,
        media: &[],
        prefix_len: 0,
    }
}

/// The logits of a step without adapters and pictures.
fn run<'a>(runner: &Runner, plan: impl Iterator<Item = PlannedSequence<'a>>) -> Logits {
    let output =
        runner.run(plan, |_| unreachable!("nobody has an adapter"), |_| unreachable!(), None);
    output.unwrap().logits
}

fn rows(logits: Logits, count: u32) -> Vec<Vec<f32>> {
    let mut logits = match logits {
        Logits::Host(logits) => logits,
        Logits::Device(logits) => {
            HostLogits::of_rows(&logits, &(0..count).collect::<Vec<_>>()).unwrap()
        }
    };
    logits.rows_mut().map(|row| row.to_vec()).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn steps_of_a_runner_give_the_bits_of_the_model_in_any_company() {
    for name in ["llama3", "lfm2", "qwen3_next", "mamba2"] {
        let mut driver = Driver::new(load(name), KvFormat::F32, 16, None);
        let model = load(name);
        let vocab = u32::try_from(model.vocab_size()).unwrap();
        let sizes =
            CacheSizes { num_blocks: 16, kv_format: KvFormat::F32, num_slots: 6, num_snapshots: 0 };
        let runner = Runner::new(model, device().clone(), sizes, None).unwrap();
        runner.capture(DecodeBounds { tokens: 8, blocks: BLOCKS as usize }).unwrap();
        let mut all: Vec<Vec<u32>> = [3, 20, 31, 7, 1].map(|len| prompt(len, vocab)).to_vec();
        let tables: Vec<Vec<u32>> =
            (0..5).map(|seq| (seq * BLOCKS..(seq + 1) * BLOCKS).rev().collect()).collect();
        let seqs: Vec<_> = all.iter().map(|tokens| driver.add(tokens)).collect();
        let mut done = [0; 5];
        // Five at once, then other numbers of single tokens, which are rounded up to 1, 2, 4 or 8.
        for company in
            [&[0, 1, 2, 3, 4][..], &[0, 1, 2, 3, 4], &[0, 2, 4], &[1], &[1, 3], &[0, 3, 4]]
        {
            let plan = company.iter().map(|i| planned(*i, &all[*i], done[*i], &tables[*i]));
            let ours = rows(run(&runner, plan), u32::try_from(company.len()).unwrap());
            let plan: Vec<_> =
                company.iter().map(|i| (seqs[*i], all[*i].len() - done[*i])).collect();
            let expected = driver.step(&plan);
            for ((i, ours), (_, expected)) in company.iter().zip(ours).zip(expected) {
                assert_eq!(bits(&ours), bits(&expected), "{name}, sequence {i} of {company:?}");
                let token = greedy(&expected);
                done[*i] = all[*i].len();
                all[*i].push(token);
                driver.push(seqs[*i], token);
            }
        }
        // Drafts of one of them are rows like its token's.
        let drafts = [7, 9, 2];
        let verified =
            PlannedSequence { drafts: &drafts, ..planned(0, &all[0], done[0], &tables[0]) };
        let plan = [verified, planned(3, &all[3], done[3], &tables[3])];
        let ours = rows(run(&runner, plan.into_iter()), 5);
        let mut expected = driver.step(&[(seqs[0], 1), (seqs[3], 1)]);
        let other = expected.pop().unwrap();
        for draft in drafts {
            driver.push(seqs[0], draft);
            expected.extend(driver.step(&[(seqs[0], 1)]));
        }
        expected.push(other);
        let expected = expected.into_iter().map(|(_, logits)| logits);
        for (row, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            assert_eq!(bits(ours), bits(&expected), "{name}, row {row} of a step with drafts");
        }
    }
}
