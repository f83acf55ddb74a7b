//! Draws on NVIDIA GPUs: what is asked goes to the device in one piece, and what was drawn comes
//! back in one.

use candle_core::{DType, Device, Result, Tensor, bail};

use super::args::{Counts, Draw, Drawn, DrawnLogprobs, KeptCounts};
use crate::cuda::launch::{
    Address, Launch, Reading, Source, kernel_struct, multiprocessors, narrow, output_buffer,
    source, upload,
};

static SOURCE: Source = source!("sample/kernel");
static NEXT_IDS: Source = source!("sample/next_ids");

/// Stands for no token and no index.
const NONE: u32 = u32::MAX;
/// Most likely tokens that the kernel finds.
const MOST_TOP: usize = 512;
/// Logits whose weights are summed together.
const BLOCK: usize = 64;

kernel_struct! {
    /// All that the kernel reads and writes; lists follow each other in two buffers of 8-byte words.
    struct Sample points to SampleRow, SampledRow, TokenNumber, CountChange {
        logits: Address,
        copies: Address,
        sums: Address,
        rows: Address,
        biases: Address,
        changes: Address,
        masks: Address,
        sampled: Address,
        tops: Address,
        vocab: u32,
        most_top: u32,
    }
}

kernel_struct! {
    /// A token's bias, logit, or occurrences.
    struct TokenNumber {
        token: u32,
        number: f32,
    }
}

kernel_struct! {
    /// What stands at an index of a list of counts from now on.
    struct CountChange {
        index: u32,
        token: u32,
        number: f32,
    }
}

kernel_struct! {
    /// A draw from one row; [`NONE`] stands for no mask, no token and no log-probabilities.
    struct SampleRow {
        position: f64,
        counts: Address,
        row: u32,
        copy: u32,
        temperature: f32,
        top_p: f32,
        min_p: f32,
        top_k: u32,
        repetition_penalty: f32,
        frequency_penalty: f32,
        presence_penalty: f32,
        bias_start: u32,
        bias_end: u32,
        change_start: u32,
        change_end: u32,
        count_end: u32,
        mask: u32,
        mask_words: u32,
        required: u32,
        top: u32,
    }
}

kernel_struct! {
    /// What was drawn of one row.
    struct SampledRow {
        sum: f64,
        max: f32,
        logit: f32,
        token: u32,
        status: u32,
        rank: u32,
        top: u32,
    }
}

/// Words of 8 bytes of a [`SampledRow`].
const SAMPLED_WORDS: usize = 4;

impl TokenNumber {
    fn word(self) -> i64 {
        word(self.token, self.number.to_bits())
    }

    fn of(word: i64) -> Self {
        // SAFETY: both are 8 bytes, and any bits are an integer and a float.
        unsafe { std::mem::transmute::<i64, Self>(word) }
    }
}

impl SampleRow {
    fn words(self) -> [i64; 11] {
        // SAFETY: both are 88 bytes, all of which are of the struct's 20 numbers.
        unsafe { std::mem::transmute::<Self, [i64; 11]>(self) }
    }
}

impl SampledRow {
    fn of(words: [i64; SAMPLED_WORDS]) -> Self {
        // SAFETY: both are 32 bytes, and any bits are integers and floats.
        unsafe { std::mem::transmute::<[i64; SAMPLED_WORDS], Self>(words) }
    }
}

/// Two numbers of 4 bytes in a word, the first one low.
fn word(low: u32, high: u32) -> i64 {
    (u64::from(low) | u64::from(high) << 32).cast_signed()
}

/// All draws of a launch as lists of words.
#[derive(Default)]
struct Asked {
    rows: Vec<i64>,
    biases: Vec<i64>,
    /// Words of each [`CountChange`].
    changes: Vec<u32>,
    masks: Vec<u32>,
    with_logprobs: usize,
}

/// Words of 4 bytes of a [`CountChange`].
const CHANGE_WORDS: usize = 3;

impl Asked {
    fn new(draws: &[Draw]) -> Result<Self> {
        let mut asked = Self::default();
        for draw in draws {
            asked.add(draw)?;
        }
        Ok(asked)
    }

    fn add(&mut self, draw: &Draw) -> Result<()> {
        let pair =
            |(token, number): &(u32, f32)| TokenNumber { token: *token, number: *number }.word();
        let mut biases = draw.biases.clone();
        // Biases of one token stand side by side, in their order.
        biases.sort_by_key(|(token, _)| *token);
        let (bias_start, change_start) =
            (narrow(self.biases.len())?, narrow(self.changes.len() / CHANGE_WORDS)?);
        self.biases.extend(biases.iter().map(pair));
        let counts = self.change(&draw.counts)?;
        let mask = draw.mask.as_ref().map_or(Ok(NONE), |_| narrow(self.masks.len()))?;
        let own_mask = draw.mask.as_deref().unwrap_or_default();
        self.masks.extend_from_slice(own_mask);
        let copy = self.with_logprobs;
        self.with_logprobs += usize::from(draw.top.is_some());
        let row = SampleRow {
            position: draw.position,
            counts,
            row: draw.row,
            copy: narrow(copy)?,
            temperature: draw.temperature,
            top_p: draw.top_p,
            min_p: draw.min_p,
            top_k: draw.top_k,
            repetition_penalty: draw.repetition_penalty,
            frequency_penalty: draw.frequency_penalty,
            presence_penalty: draw.presence_penalty,
            bias_start,
            bias_end: narrow(self.biases.len())?,
            change_start,
            change_end: narrow(self.changes.len() / CHANGE_WORDS)?,
            count_end: draw.counts.len,
            mask,
            mask_words: narrow(own_mask.len())?,
            required: draw.required.unwrap_or(NONE),
            top: draw.top.unwrap_or(NONE),
        };
        self.rows.extend(row.words());
        Ok(())
    }

    /// Lists the changes of counts, and finds these.
    fn change(&mut self, counts: &Counts) -> Result<Address> {
        let Counts { kept, len, changes } = counts;
        let room = kept.as_ref().map_or(0, KeptCounts::capacity);
        let last = changes.iter().map(|change| change.index as usize + 1).max().unwrap_or(0);
        if last.max(*len as usize) > room {
            bail!("{len} counts, and changes of {last}, where {room} have room");
        }
        for change in changes {
            let token = change.token.unwrap_or(NONE);
            self.changes.extend([change.index, token, change.output.to_bits()]);
        }
        kept.as_ref().map_or(Ok(Address::NONE), |kept| Address::to_write(&kept.0, DType::I64))
    }

    /// One list behind the other, and where each of the last three begins.
    fn words(mut self) -> (Vec<i64>, [usize; 3]) {
        let pairs = |list: &[u32]| {
            let pairs = list.chunks(2);
            let words = pairs.map(|two| word(two[0], two.get(1).copied().unwrap_or(0)));
            words.collect::<Vec<_>>()
        };
        let (mut changes, mut masks) = (pairs(&self.changes), pairs(&self.masks));
        let first = self.rows.len();
        let starts = [first, first + self.biases.len(), first + self.biases.len() + changes.len()];
        let mut words = self.rows;
        words.append(&mut self.biases);
        words.append(&mut changes);
        words.append(&mut masks);
        (words, starts)
    }
}

/// Room for so many entries.
pub(super) fn room_for_counts(capacity: usize, device: &Device) -> Result<KeptCounts> {
    Ok(KeptCounts(output_buffer(capacity, DType::I64, device)?))
}

/// Draws under way.
pub(super) struct Started {
    draws: Vec<Draw>,
    /// Words of all rows, then their most likely tokens.
    results: Tensor,
    reading: Reading,
    vocab: usize,
    most_top: usize,
}

kernel_struct! {
    struct NextIds {
        sampled: Address,
        ids: Address,
        count: u32,
        vocab: u32,
    }
}

/// Starts draws, each from a row of its own of `logits [rows, vocab]`.
pub(super) fn start(logits: &Tensor, draws: Vec<Draw>) -> Result<Started> {
    let (device, vocab) = (logits.device(), logits.dim(1)?);
    let most_top = draws.iter().filter_map(|draw| draw.top).max().unwrap_or(0) as usize;
    if draws.is_empty() || vocab == 0 || most_top > MOST_TOP {
        bail!(
            "{} draws of {vocab} tokens with {most_top} of them, at most {MOST_TOP}",
            draws.len()
        );
    }
    let asked = Asked::new(&draws)?;
    let with_logprobs = asked.with_logprobs;
    let (words, [biases, changes, masks]) = asked.words();
    let length = words.len();
    let asked = upload(words, length, device)?;
    let count = draws.len() * (SAMPLED_WORDS + most_top);
    let results = output_buffer(count, DType::I64, device)?;
    let sums = output_buffer(draws.len() * vocab.div_ceil(BLOCK), DType::F64, device)?;
    // Memory of no bytes is not asked for.
    let copies = match with_logprobs {
        0 => None,
        rows => Some(output_buffer((rows, vocab), DType::F32, device)?),
    };
    let copies = copies.as_ref().map(|copies| Address::to_write(copies, DType::F32)).transpose()?;
    let start = Address::of(&asked, DType::I64)?;
    let sampled = Address::to_write(&results, DType::I64)?;
    let arguments = Sample {
        logits: Address::to_write(logits, DType::F32)?,
        copies: copies.unwrap_or(Address::NONE),
        sums: Address::to_write(&sums, DType::F64)?,
        rows: start,
        biases: start.plus_words(biases),
        changes: start.plus_words(changes),
        masks: start.plus_words(masks),
        sampled,
        tops: sampled.plus_words(draws.len() * SAMPLED_WORDS),
        vocab: narrow(vocab)?,
        most_top: narrow(most_top)?,
    };
    let grid = [draws.len(), 1, 1];
    // Where a row has a multiprocessor of its own, all of its threads; else two rows share one.
    let threads = if draws.len() > multiprocessors(device) { 512 } else { 1024 };
    let launch = Launch { source: &SOURCE, kernel: "sample_rows", grid, threads, shared: 0 };
    // SAFETY: the lists are as long as the rows say, rows are among the logits, and the buffers hold
    // what the kernel writes.
    unsafe { launch.run(device, arguments)? };
    let reading = Reading::start(&results)?;
    Ok(Started { draws, results, reading, vocab, most_top })
}

impl Started {
    pub(super) fn rows(&self) -> impl Iterator<Item = u32> {
        self.draws.iter().map(|draw| draw.row)
    }

    /// Puts the tokens, as soon as they are drawn, where `ids` begin (u32).
    pub(super) fn put_tokens(&self, ids: &Tensor) -> Result<()> {
        let count = self.draws.len();
        if ids.dims1()? < count {
            bail!("{count} tokens for {:?} ids", ids.dims());
        }
        let arguments = NextIds {
            sampled: Address::of(&self.results, DType::I64)?,
            ids: Address::to_write(ids, DType::U32)?,
            count: narrow(count)?,
            vocab: narrow(self.vocab)?,
        };
        let grid = [count.div_ceil(256), 1, 1];
        let launch =
            Launch { source: &NEXT_IDS, kernel: "next_ids", grid, threads: 256, shared: 0 };
        // SAFETY: there is a result and an id for each.
        unsafe { launch.run(ids.device(), arguments) }
    }

    /// Waits for the tokens, in the order of the draws.
    pub(super) fn wait(self) -> Result<Vec<Drawn>> {
        let Self { draws, reading, most_top, .. } = self;
        let words = reading.wait()?;
        let (sampled, tops) = words.split_at(draws.len() * SAMPLED_WORDS);
        let tops = |index: usize| &tops[index * most_top..(index + 1) * most_top];
        let sampled = sampled.as_chunks().0.iter().copied().map(SampledRow::of);
        let each = draws.iter().zip(sampled).enumerate();
        Ok(each.map(|(index, (draw, sampled))| read(draw, sampled, tops(index))).collect())
    }
}

/// A draw's result, from what the kernel tells of its row.
fn read(draw: &Draw, sampled: SampledRow, tops: &[i64]) -> Drawn {
    match sampled.status {
        0 => {}
        1 => return Drawn::Nan(sampled.token),
        2 => return Drawn::NotFinite,
        _ => return Drawn::NoneLeft,
    }
    let normalizer = f64::from(sampled.max) + sampled.sum.ln();
    #[expect(clippy::cast_possible_truncation, reason = "logprobs are reported in f32")]
    let logprob = |logit: f32| (f64::from(logit) - normalizer) as f32;
    let top = |word: &i64| {
        let TokenNumber { token, number } = TokenNumber::of(*word);
        (token, logprob(number))
    };
    let logprobs = draw.top.map(|_| DrawnLogprobs {
        logprob: logprob(sampled.logit),
        rank: sampled.rank,
        top: tops[..sampled.top as usize].iter().map(top).collect(),
    });
    Drawn::Token { token_id: sampled.token, logprobs }
}
