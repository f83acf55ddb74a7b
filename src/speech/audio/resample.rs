//! From any sample rate to that of the model.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _};

use super::SAMPLE_RATE;

/// Samples that are resampled at once.
const CHUNK: usize = 4096;

/// Changes the rate of one channel, piece by piece. Sounds above the half of the lower rate are filtered
/// out, and nothing is shifted: the filter's delay is taken off.
pub struct Resampler {
    /// Absent where the rate is right already.
    inner: Option<Inner>,
}

struct Inner {
    resampler: Fft<f32>,
    rate: usize,
    /// Samples that wait for a full chunk.
    waiting: Vec<f32>,
    output: Vec<f32>,
    /// Samples of the filter's delay that are still to be dropped.
    delay: usize,
    /// Samples that came in.
    taken: u64,
    /// Samples that went out.
    given: u64,
}

impl Resampler {
    /// A resampler for sound of `rate` samples a second.
    ///
    /// # Panics
    /// If `rate` is 0.
    pub fn new(rate: usize) -> Self {
        if rate == SAMPLE_RATE {
            return Self { inner: None };
        }
        let resampler = Fft::new(rate, SAMPLE_RATE, CHUNK, 1, FixedSync::Input)
            .expect("rates and the chunk are above zero");
        let delay = resampler.output_delay();
        let output = vec![0.0; resampler.output_frames_max()];
        let inner =
            Inner { resampler, rate, waiting: Vec::new(), output, delay, taken: 0, given: 0 };
        Self { inner: Some(inner) }
    }

    /// Takes samples and hands those on that are ready.
    pub fn push(&mut self, samples: &[f32], mut sink: impl FnMut(&[f32])) {
        let Some(inner) = &mut self.inner else { return sink(samples) };
        inner.taken += samples.len() as u64;
        inner.waiting.extend_from_slice(samples);
        let mut from = 0;
        loop {
            let wanted = inner.resampler.input_frames_next();
            if inner.waiting.len() - from < wanted {
                break;
            }
            inner.step(from, None, &mut sink);
            from += wanted;
        }
        inner.waiting.drain(..from);
    }

    /// Hands the rest on, as many samples as the sound's length stands for.
    pub fn finish(mut self, mut sink: impl FnMut(&[f32])) {
        let Some(inner) = &mut self.inner else { return };
        let all = inner.taken * SAMPLE_RATE as u64 / inner.rate as u64;
        let mut left = inner.waiting.len();
        while inner.given < all {
            let missing = all - inner.given;
            inner.step(0, Some(left), &mut |samples: &[f32]| {
                let most = usize::try_from(missing).unwrap_or(usize::MAX).min(samples.len());
                sink(&samples[..most]);
            });
            left = 0;
        }
    }
}

impl Inner {
    /// Resamples what waits from `from` on: a whole chunk, or `partial` samples and silence.
    fn step(&mut self, from: usize, partial: Option<usize>, sink: &mut impl FnMut(&[f32])) {
        let frames = self.waiting.len() - from;
        let input = InterleavedSlice::new(&self.waiting[from..], 1, frames)
            .expect("one channel of so many samples");
        let room = self.output.len();
        let mut output = InterleavedSlice::new_mut(&mut self.output, 1, room)
            .expect("one channel of so many samples");
        let indexing = Indexing {
            input_offset: 0,
            output_offset: 0,
            partial_len: partial,
            active_channels_mask: None,
        };
        let (_, made) = self
            .resampler
            .process_into_buffer(&input, &mut output, Some(&indexing))
            .expect("there is a chunk of input and room for its output");
        let dropped = made.min(self.delay);
        self.delay -= dropped;
        self.given += (made - dropped) as u64;
        sink(&self.output[dropped..made]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of `hertz`, `seconds` long, as sampled `rate` times a second.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn tone(rate: usize, hertz: f32, samples: usize) -> Vec<f32> {
        let turn = std::f32::consts::TAU * hertz / rate as f32;
        (0..samples).map(|at| (turn * at as f32).sin()).collect()
    }

    fn resampled(rate: usize, samples: &[f32], piece: usize) -> Vec<f32> {
        let mut resampler = Resampler::new(rate);
        let mut out = Vec::new();
        for piece in samples.chunks(piece) {
            resampler.push(piece, |samples| out.extend_from_slice(samples));
        }
        resampler.finish(|samples| out.extend_from_slice(samples));
        out
    }

    #[test]
    fn a_tone_stays_where_it_is_at_any_rate_and_in_any_pieces() {
        for rate in [8000, 16_000, 22_050, 44_100, 48_000, 96_000, 44_101] {
            let out = resampled(rate, &tone(rate, 440.0, rate), 1000);
            assert_eq!(out.len(), SAMPLE_RATE, "{rate}");
            let expected = tone(SAMPLE_RATE, 440.0, SAMPLE_RATE);
            // The filter rings at both ends, and its delay is taken off in whole samples: what is left of it
            // is less than half of one, 0.09 of this tone's amplitude.
            for at in 800..SAMPLE_RATE - 800 {
                assert!((out[at] - expected[at]).abs() < 0.09, "{rate}: {at} {}", out[at]);
            }
            let whole = resampled(rate, &tone(rate, 440.0, rate), usize::MAX);
            assert_eq!(out, whole, "{rate}");
        }
    }

    #[test]
    fn what_no_sample_rate_can_hold_is_filtered_out() {
        let out = resampled(48_000, &tone(48_000, 12_000.0, 48_000), 4096);
        let loudest = out[800..15_200].iter().fold(0.0_f32, |most, sample| most.max(sample.abs()));
        assert!(loudest < 2e-3, "{loudest}");
    }

    #[test]
    fn few_samples_are_enough() {
        assert_eq!(resampled(48_000, &[0.5; 3], 1).len(), 1);
        assert_eq!(resampled(8000, &[], 1), [0.0_f32; 0]);
    }
}
