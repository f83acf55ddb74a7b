//! Experts of so many tokens that tiles are those of a large product.

use candle_core::{DType, Tensor};
use sconce::kernels::experts::{DeviceExperts, ExpertLayers, Routing, Score};
use sconce::kernels::linear;
use sconce::kernels::pointwise::{self, Activation, Gating};

use super::operations::{assert_close, layer, random};
use crate::parity::device;

struct Weights {
    gates: Option<Vec<Tensor>>,
    ups: Vec<Tensor>,
    downs: Vec<Tensor>,
    biases: Vec<Tensor>,
}

const HIDDEN: usize = 200;
const INNER: usize = 136;
const COUNT: usize = 4;
const PER_TOKEN: usize = 2;

const ROUTING: Routing = Routing {
    score: Score::Sigmoid,
    experts_per_token: PER_TOKEN,
    groups: None,
    renormalize: true,
    scale: 1.0,
};

impl Weights {
    fn new(dtype: DType, gated: bool) -> Self {
        let all = |seed: u64, rows, columns| -> Vec<Tensor> {
            let one = |i| random(seed + i, &[rows, columns]).to_dtype(dtype).unwrap();
            (0..COUNT as u64).map(one).collect()
        };
        Self {
            gates: gated.then(|| all(100, INNER, HIDDEN)),
            ups: all(200, INNER, HIDDEN),
            downs: all(300, HIDDEN, INNER),
            biases: (0..COUNT as u64).map(|i| random(400 + i, &[INNER])).collect(),
        }
    }

    fn on_device(&self) -> Option<DeviceExperts> {
        let layers: Vec<ExpertLayers<'_>> = (0..COUNT)
            .map(|i| ExpertLayers {
                gate: self.gates.as_ref().map(|gates| layer(&gates[i], Some(&self.biases[i]))),
                up: layer(&self.ups[i], Some(&self.biases[(i + 1) % COUNT])),
                down: layer(&self.downs[i], None),
            })
            .collect();
        DeviceExperts::new(device(), &layers, [None, None]).unwrap()
    }

    /// What an expert makes of a token, rounding what the kernels round.
    fn expected(&self, dtype: DType, i: usize, x: &Tensor, gating: Gating) -> Tensor {
        let rounded = |x: &Tensor| x.to_dtype(dtype).unwrap().to_dtype(DType::F32).unwrap();
        let plain = |x: &Tensor, weight: &Tensor, bias: Option<&Tensor>| {
            linear::portable::linear(&rounded(x), weight, bias).unwrap()
        };
        let up = plain(x, &self.ups[i], Some(&self.biases[(i + 1) % COUNT]));
        let inner = match &self.gates {
            Some(gates) => {
                let gate = plain(x, &gates[i], Some(&self.biases[i]));
                pointwise::portable::gated(gating, &gate, &up).unwrap()
            }
            None => pointwise::portable::pointwise(Activation::Gelu, &up).unwrap(),
        };
        plain(&inner, &self.downs[i], None)
    }
}

/// Tokens that fill tiles and some that don't; inputs that are no whole step; rows that are no whole tile.
#[test]
fn experts_of_many_tokens_equal_the_plain_ones() {
    let gating = Gating::Activation(Activation::Silu);
    for (dtype, gated) in [(DType::BF16, true), (DType::F16, false)] {
        let weights = Weights::new(dtype, gated);
        // On the CPU's own kernels nobody asks for them.
        let Some(experts) = weights.on_device() else { return };
        let tokens = 150;
        assert!(experts.takes(tokens, ROUTING, false));
        let [x, residual] = [11, 12].map(|seed| random(seed, &[tokens, HIDDEN]));
        let scores = (random(13, &[tokens, COUNT]) * 4.0).unwrap();
        let activate = |x: &Tensor| pointwise::pointwise(Activation::Gelu, x);
        let ours = experts
            .forward_add([&x, &scores, &residual], ROUTING, Some(gating), activate, (0.5, false))
            .unwrap();
        let mut expected = Vec::new();
        for (token, scores) in scores.to_vec2::<f32>().unwrap().into_iter().enumerate() {
            let x = x.narrow(0, token, 1).unwrap();
            let mut sum = residual.narrow(0, token, 1).unwrap();
            for (expert, weight) in ROUTING.choose(scores, None) {
                let y = weights.expected(dtype, expert, &x, gating);
                sum = (sum + y * f64::from(0.5 * weight)).unwrap();
            }
            expected.push(sum);
        }
        // A sum may be rounded to the next number of the type and its product with it.
        assert_close(&ours, &Tensor::cat(&expected, 0).unwrap(), 2e-2);
    }
}
