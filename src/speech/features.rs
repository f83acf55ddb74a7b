//! Log-mel features: what Whisper hears of sound, a hundred vectors a second.
//!
//! Equal to `WhisperFeatureExtractor` of transformers with `padding="longest"`: a Hann window of 25 ms
//! every 10 ms, mirrored at both ends; the power spectrum through triangular filters of equal area on
//! Slaney's mel scale up to 8 kHz; the decimal logarithm, at most eight below the loudest of the file.
//! candle-transformers has `pcm_to_mel`, which mirrors nothing, starts windows where they should be
//! centred, and wants the whole file at once with filters from elsewhere.

use std::sync::Arc;

use candle_transformers::models::whisper::{HOP_LENGTH, N_FFT, SAMPLE_RATE};
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use serde_json::Value;

/// Samples from the beginning of a window to that of the next.
pub const HOP: usize = HOP_LENGTH;
/// Magnitudes of a window: one for every frequency from 0 to the half of the sample rate.
const BINS: usize = N_FFT / 2 + 1;
/// Samples that are mirrored at each end.
const MIRRORED: usize = N_FFT / 2;
/// The least power whose logarithm is taken.
const FLOOR: f32 = 1e-10;
/// Powers of ten below the loudest that are told apart.
const RANGE: f32 = 8.0;

/// The features of a whole file, before they are scaled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    mels: usize,
    /// Decimal logarithms, `[frames, mels]`.
    logs: Vec<f32>,
    loudest: f32,
}

impl Features {
    /// Vectors in the file.
    pub fn frames(&self) -> usize {
        self.logs.len() / self.mels.max(1)
    }

    /// Numbers of a vector.
    pub fn mels(&self) -> usize {
        self.mels
    }

    /// Decimal logarithms before they are scaled, `[frames, mels]`.
    pub fn logs(&self) -> &[f32] {
        &self.logs
    }

    /// Scaled features `[mels, length]` from vector `from` on; zeros after the file's end.
    pub fn window(&self, from: usize, length: usize) -> Vec<f32> {
        let mut window = vec![0.0; self.mels * length];
        let there = self.frames().saturating_sub(from).min(length);
        let least = self.loudest - RANGE;
        for frame in 0..there {
            let logs = &self.logs[(from + frame) * self.mels..][..self.mels];
            for (mel, log) in logs.iter().enumerate() {
                window[mel * length + frame] = (log.max(least) + 4.0) / 4.0;
            }
        }
        window
    }
}

/// Makes features of samples as they come.
pub struct Listener {
    transform: Arc<dyn RealToComplex<f32>>,
    hann: Vec<f32>,
    filters: Vec<Filter>,
    /// Samples from the next window on; at first without those that are mirrored before the first.
    waiting: Vec<f32>,
    started: bool,
    /// Samples of the file.
    taken: usize,
    input: Vec<f32>,
    spectrum: Vec<Complex<f32>>,
    features: Features,
}

impl Listener {
    /// A listener for models with so many filters.
    pub fn new(mels: usize) -> Self {
        let transform = RealFftPlanner::new().plan_fft_forward(N_FFT);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "small")]
        let hann = (0..N_FFT).map(|at| {
            let turn = std::f64::consts::TAU * at as f64 / N_FFT as f64;
            (0.5 - 0.5 * turn.cos()) as f32
        });
        Self {
            hann: hann.collect(),
            filters: filters(mels),
            waiting: Vec::new(),
            started: false,
            taken: 0,
            input: transform.make_input_vec(),
            spectrum: transform.make_output_vec(),
            transform,
            features: Features { mels, logs: Vec::new(), loudest: f32::NEG_INFINITY },
        }
    }

    /// Samples that came.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Takes the next samples.
    pub fn push(&mut self, samples: &[f32]) {
        self.taken += samples.len();
        self.waiting.extend_from_slice(samples);
        if !self.started && self.waiting.len() > MIRRORED {
            self.start();
        }
        if self.started {
            self.listen(usize::MAX);
        }
    }

    /// The features of everything that came: a vector for every whole hop.
    pub fn finish(mut self) -> Features {
        let frames = self.taken / HOP_LENGTH;
        if !self.started {
            // Too short to be mirrored: silence stands there.
            self.waiting.resize(MIRRORED + 1, 0.0);
            self.start();
        }
        let end = self.waiting.len() - 1;
        for back in 1..=MIRRORED {
            let sample = end.checked_sub(back).map_or(0.0, |at| self.waiting[at]);
            self.waiting.push(sample);
        }
        self.waiting.resize(self.waiting.len() + N_FFT, 0.0);
        self.listen(frames);
        self.features.logs.truncate(frames * self.features.mels);
        self.features
    }

    /// Puts the mirrored first samples before them.
    fn start(&mut self) {
        let mirrored: Vec<f32> = self.waiting[1..=MIRRORED].iter().rev().copied().collect();
        self.waiting.splice(0..0, mirrored);
        self.started = true;
    }

    /// Makes the vectors of all windows that are there, up to `frames` in all. The last window's worth of
    /// samples stays, for it is mirrored at the end.
    fn listen(&mut self, frames: usize) {
        let mut from = 0;
        while self.waiting.len() >= from + N_FFT + MIRRORED && self.features.frames() < frames {
            self.frame(from);
            from += HOP_LENGTH;
        }
        self.waiting.drain(..from);
    }

    fn frame(&mut self, from: usize) {
        let window = &self.waiting[from..from + N_FFT];
        for ((input, sample), weight) in self.input.iter_mut().zip(window).zip(&self.hann) {
            *input = sample * weight;
        }
        self.transform
            .process(&mut self.input, &mut self.spectrum)
            .expect("buffers are as long as the transform wants them");
        let mut powers = [0.0_f32; BINS];
        for (power, value) in powers.iter_mut().zip(&self.spectrum) {
            *power = value.norm_sqr();
        }
        for filter in &self.filters {
            let log = filter.apply(&powers).max(FLOOR).log10();
            self.features.loudest = self.features.loudest.max(log);
            self.features.logs.push(log);
        }
    }
}

/// One triangle, from its first bin that isn't zero.
#[derive(Debug)]
struct Filter {
    first: usize,
    weights: Vec<f32>,
}

impl Filter {
    fn apply(&self, powers: &[f32; BINS]) -> f32 {
        let powers = powers[self.first..].iter();
        powers.zip(&self.weights).map(|(power, weight)| power * weight).sum()
    }
}

/// Triangles of equal area whose corners are evenly spaced in mel.
fn filters(mels: usize) -> Vec<Filter> {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (top, steps) = (SAMPLE_RATE as f64 / 2.0, (mels + 1) as f64);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let corner = |index: usize| hertz(mel(top) * index as f64 / steps);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let frequency = |bin: usize| top * bin as f64 / (BINS - 1) as f64;
    let triangle = |index: usize| {
        let (left, middle, right) = (corner(index), corner(index + 1), corner(index + 2));
        let weight = |bin: usize| {
            let at = frequency(bin);
            let (rising, falling) =
                ((at - left) / (middle - left), (right - at) / (right - middle));
            rising.min(falling).max(0.0) * 2.0 / (right - left)
        };
        let touched: Vec<usize> = (0..BINS).filter(|bin| weight(*bin) > 0.0).collect();
        let first = touched.first().copied().unwrap_or(0);
        let end = touched.last().map_or(0, |last| last + 1);
        #[expect(clippy::cast_possible_truncation, reason = "features are single precision")]
        let weights = (first..end).map(|bin| weight(bin) as f32).collect();
        Filter { first, weights }
    };
    (0..mels).map(triangle).collect()
}

/// The first field of a `preprocessor_config.json` that asks for other features than these: its name, its value
/// and what it must be.
pub fn other_features(processor: &Value, mels: usize) -> Option<(&'static str, String, usize)> {
    let wanted = [
        ("feature_size", mels),
        ("hop_length", HOP_LENGTH),
        ("n_fft", N_FFT),
        ("sampling_rate", SAMPLE_RATE),
    ];
    wanted.into_iter().find_map(|(name, wanted)| {
        let found = processor.get(name).filter(|found| found.as_u64() != Some(wanted as u64))?;
        Some((name, found.to_string(), wanted))
    })
}

/// Where Slaney's scale turns from linear to logarithmic: 1000 Hz, 15 mel.
const TURN: (f64, f64) = (1000.0, 15.0);
/// Hertz of a mel below that.
const LINEAR: f64 = 200.0 / 3.0;

/// Mel of the natural logarithm above that: 27 for the factor 6.4.
fn logarithmic() -> f64 {
    27.0 / 6.4_f64.ln()
}

fn mel(hertz: f64) -> f64 {
    let (turn, at) = TURN;
    if hertz < turn { hertz / LINEAR } else { at + (hertz / turn).ln() * logarithmic() }
}

fn hertz(mel: f64) -> f64 {
    let (turn, at) = TURN;
    if mel < at { mel * LINEAR } else { turn * ((mel - at) / logarithmic()).exp() }
}
