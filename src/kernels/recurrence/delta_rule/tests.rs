//! The rule against its definition, and against itself in pieces and in company.

use candle_core::{DType, Device};

use super::super::runs::{Run, two_tokens};
use super::*;
use crate::cpu::Level;
use crate::random::{Random, assert_close, bits};

/// Inputs of `rows` tokens.
struct Inputs {
    qkv: Tensor,
    write: Tensor,
    write_scale: f32,
    decay: Tensor,
    rate: Tensor,
    bias: Tensor,
    bound: Option<f32>,
    heads: Heads,
}

impl Inputs {
    fn new(random: &mut Random, rows: usize, heads: Heads) -> Self {
        let rate = (random.tensor(heads.values) - 1.5).unwrap();
        Self {
            qkv: random.tensor((rows, heads.inputs())),
            write: random.tensor((rows, heads.values)),
            // Any case may have either.
            write_scale: if heads.tiled { 2.0 } else { 1.0 },
            decay: random.tensor((rows, heads.values)),
            rate,
            bias: random.tensor(heads.values),
            bound: None,
            heads,
        }
    }

    /// With a decay of each element of a key.
    fn by_element(random: &mut Random, rows: usize, heads: Heads, bound: Option<f32>) -> Self {
        let decays = heads.values * heads.key_dim;
        Self {
            decay: random.tensor((rows, decays)),
            bias: random.tensor(decays),
            bound,
            ..Self::new(random, rows, heads)
        }
    }

    fn gates(&self) -> Gates<'_> {
        let Self { write, write_scale, decay, rate, bias, bound, .. } = self;
        Gates { write, write_scale: *write_scale, decay, rate, bias, bound: *bound }
    }

    /// The tokens that `ranges` name, one range after the other.
    fn rows(&self, ranges: &[std::ops::Range<usize>]) -> Self {
        let pick = |x: &Tensor| {
            let parts = ranges.iter().map(|rows| x.narrow(0, rows.start, rows.len()).unwrap());
            Tensor::cat(&parts.collect::<Vec<_>>(), 0).unwrap()
        };
        Self {
            qkv: pick(&self.qkv),
            write: pick(&self.write),
            write_scale: self.write_scale,
            decay: pick(&self.decay),
            rate: self.rate.clone(),
            bias: self.bias.clone(),
            bound: self.bound,
            heads: self.heads,
        }
    }

    /// On a level, or in plain operations.
    fn at(&self, level: Option<Level>, states: &Tensor, runs: &[Run]) -> Tensor {
        match level {
            Some(level) => {
                cpu::delta_rule(level, &self.qkv, self.gates(), self.heads, states, runs)
            }
            None => portable::delta_rule(&self.qkv, self.gates(), self.heads, states, runs),
        }
        .unwrap()
    }

    /// The definition, in f64, for one sequence from its first token on; and the state behind it.
    fn plain(&self) -> (Tensor, Tensor) {
        let Heads { keys, values, key_dim, value_dim, tiled } = self.heads;
        let wide = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
        let tokens = wide(&self.qkv).to_vec2::<f64>().unwrap();
        let write = wide(&self.write).to_vec2::<f64>().unwrap();
        let decay = wide(&self.decay).to_vec2::<f64>().unwrap();
        let rate = wide(&self.rate).to_vec1::<f64>().unwrap();
        let bias = wide(&self.bias).to_vec1::<f64>().unwrap();
        let unit = |x: &[f64], scale: f64| -> Vec<f64> {
            let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / length * scale).collect()
        };
        let mut states = vec![vec![vec![0.0; value_dim]; key_dim]; values];
        let mut outputs = Vec::new();
        for (t, token) in tokens.iter().enumerate() {
            for (head, state) in states.iter_mut().enumerate() {
                let own = if tiled { head % keys } else { head * keys / values };
                #[expect(clippy::cast_precision_loss, reason = "small")]
                let scale = (key_dim as f64).powf(-0.5);
                let query = unit(&token[own * key_dim..][..key_dim], scale);
                let key = unit(&token[(keys + own) * key_dim..][..key_dim], 1.0);
                let value = &token[2 * keys * key_dim + head * value_dim..][..value_dim];
                let forgotten = |i: usize| {
                    let own = head * (bias.len() / values);
                    let own = if bias.len() == values { own } else { own + i };
                    let x = decay[t][own] + bias[own];
                    match self.bound {
                        None => (rate[head] * x.exp().ln_1p()).exp(),
                        Some(bound) => (f64::from(bound) / (1.0 + (rate[head] * x).exp())).exp(),
                    }
                };
                let write = f64::from(self.write_scale) / (1.0 + (-write[t][head]).exp());
                for column in 0..value_dim {
                    for (i, row) in state.iter_mut().enumerate() {
                        row[column] *= forgotten(i);
                    }
                    let said: f64 = (0..key_dim).map(|i| state[i][column] * key[i]).sum();
                    let new = write * (value[column] - said);
                    for (row, key) in state.iter_mut().zip(&key) {
                        row[column] += key * new;
                    }
                    let read: f64 = (0..key_dim).map(|i| state[i][column] * query[i]).sum();
                    outputs.push(read);
                }
            }
        }
        let tensor = |x: Vec<f64>, rows: usize| {
            let x = Tensor::from_vec(x, (rows, ()), &Device::Cpu).unwrap();
            x.to_dtype(DType::F32).unwrap()
        };
        let states = states.into_iter().flatten().flatten().collect();
        (tensor(outputs, tokens.len()), tensor(states, 1))
    }
}

fn heads(keys: usize, values: usize, key_dim: usize, value_dim: usize) -> Heads {
    Heads { keys, values, key_dim, value_dim, tiled: false }
}

/// Of no sequence's yet: what it holds counts for nothing.
fn states(places: usize, heads: Heads) -> Tensor {
    (Tensor::ones((places, heads.state()), DType::F32, &Device::Cpu).unwrap() * f64::NAN).unwrap()
}

fn levels() -> impl Iterator<Item = Option<Level>> {
    Level::available().into_iter().map(Some).chain([None])
}

#[test]
fn equals_its_definition_on_every_level_and_in_plain_operations() {
    let mut random = Random::new(1);
    let shapes = [
        (1, heads(1, 1, 1, 1)),
        (7, heads(2, 4, 8, 12)),
        (9, heads(2, 4, 24, 33)),
        (9, Heads { tiled: true, ..heads(2, 6, 5, 16) }),
        (40, heads(1, 2, 64, 70)),
    ];
    for (tokens, heads) in shapes {
        for inputs in kinds(&mut random, tokens, heads) {
            let (expected, last) = inputs.plain();
            let run = [Run { rows: 0..tokens, slot: 1, starts: true }];
            // Written twice over, a state is reflected rather than forgotten, and so are its rounding errors.
            let tolerance = if inputs.write_scale > 1.0 { 5e-5 } else { 1e-5 };
            for level in levels() {
                let states = states(3, heads);
                assert_close(&inputs.at(level, &states, &run), &expected, tolerance);
                assert_close(&states.narrow(0, 1, 1).unwrap(), &last, tolerance);
            }
        }
    }
}

/// With a decay for all elements of a key, with one for each, and with bounded ones.
fn kinds(random: &mut Random, tokens: usize, heads: Heads) -> [Inputs; 3] {
    [
        Inputs::new(random, tokens, heads),
        Inputs::by_element(random, tokens, heads, None),
        Inputs::by_element(random, tokens, heads, Some(-5.0)),
    ]
}

#[test]
fn is_the_same_whole_in_pieces_and_in_company() {
    let mut random = Random::new(2);
    let (tokens, heads) = (11, heads(2, 4, 20, 50));
    let kinds = kinds(&mut random, tokens, heads);
    for (inputs, level) in kinds.iter().flat_map(|own| levels().map(move |level| (own, level))) {
        let own = states(2, heads);
        let whole = inputs.at(level, &own, &[Run { rows: 0..tokens, slot: 0, starts: true }]);
        for chunk in [1, 2, 5] {
            let shared = states(4, heads);
            for first in (0..tokens).step_by(chunk) {
                let count = chunk.min(tokens - first);
                // Beside it, another sequence that begins again and again.
                let both = inputs.rows(&[0..tokens, first..first + count]);
                let runs = [
                    Run { rows: 0..tokens, slot: 3, starts: true },
                    Run { rows: tokens..tokens + count, slot: 2, starts: first == 0 },
                ];
                let both = both.at(level, &shared, &runs);
                let expected = whole.narrow(0, first, count).unwrap();
                assert_eq!(bits(&both.narrow(0, tokens, count).unwrap()), bits(&expected));
                assert_eq!(bits(&both.narrow(0, 0, tokens).unwrap()), bits(&whole));
            }
            let kept = |states: &Tensor, slot| bits(&states.narrow(0, slot, 1).unwrap());
            assert_eq!(kept(&shared, 2), kept(&own, 0));
        }
    }
}

#[test]
fn far_from_zero_gates_are_open_or_closed() {
    let heads = heads(1, 1, 4, 4);
    let mut inputs = Inputs::new(&mut Random::new(3), 3, heads);
    inputs.decay = Tensor::new(&[[-200.0f32], [200.0], [0.0]], &Device::Cpu).unwrap();
    inputs.write = Tensor::new(&[[200.0f32], [-200.0], [0.0]], &Device::Cpu).unwrap();
    let run = [Run { rows: 0..3, slot: 0, starts: true }];
    for level in levels() {
        let out = inputs.at(level, &states(1, heads), &run).to_vec2::<f32>().unwrap();
        assert!(out.iter().flatten().all(|x| x.is_finite()));
        // All is forgotten and nothing written.
        assert!(out[1].iter().all(|x| x.abs() < 1e-30), "{out:?}");
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_change_nothing() {
    let mut random = Random::new(4);
    let heads = heads(1, 2, 4, 4);
    let inputs = Inputs::new(&mut random, 2, heads);
    let step = two_tokens(0);
    let kept = random.tensor((1, heads.state()));
    let before = bits(&kept);
    let (qkv, gates) = (&inputs.qkv, inputs.gates());
    assert!(delta_rule(&random.tensor((2, 7)), gates, heads, &kept, &step).is_err());
    assert!(delta_rule(qkv, gates, heads, &random.tensor((1, 8)), &step).is_err());
    assert!(delta_rule(qkv, Gates { write: qkv, ..gates }, heads, &kept, &step).is_err());
    assert!(delta_rule(qkv, Gates { rate: qkv, ..gates }, heads, &kept, &step).is_err());
    assert!(delta_rule(qkv, gates, Heads { keys: 0, ..heads }, &kept, &step).is_err());
    assert!(delta_rule(qkv, gates, Heads { values: 3, ..heads }, &kept, &step).is_err());
    assert!(delta_rule(qkv, gates, heads, &kept, &two_tokens(1)).is_err());
    assert_eq!(bits(&kept), before);
    assert!(delta_rule(qkv, gates, heads, &kept, &step).is_ok());
    assert_ne!(bits(&kept), before);
}
