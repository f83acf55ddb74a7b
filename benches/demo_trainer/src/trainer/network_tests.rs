//! Holds the written-out network against the same one in candle's plain operations and its own gradients.

use super::network::{Batch, Cache, Network, Shape};
use super::ops::EPSILON;
use crate::corpus::dice::Dice;
use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::ops::{silu, softmax};

const SHAPE: Shape = Shape {
    vocabulary: 40,
    width: 32,
    layers: 2,
    queries: 4,
    keys: 2,
    head: 16,
    inner: 48,
    theta: 10_000.0,
    window: 12,
    positions: 32,
};

fn values() -> Vec<Vec<f32>> {
    let mut dice = Dice::new(7);
    let mut values = SHAPE.initial(&mut dice);
    for value in values.iter_mut().flatten() {
        *value += dice.normal() * 0.1;
    }
    values
}

fn batch() -> Batch {
    let mut dice = Dice::new(8);
    let mut batch = Batch::default();
    for length in [9, 5, 12] {
        let tokens: Vec<u32> = (0..length).map(|_| dice.below(SHAPE.vocabulary) as u32).collect();
        let marks: Vec<bool> = (0..length).map(|index| index % 3 != 1).collect();
        batch.push(&tokens, &marks);
    }
    // Every embedding has a part in the products of the head, so all gradients differ from zero.
    batch
}

fn norm(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + f64::from(EPSILON))?.sqrt()?)?.broadcast_mul(weight)
}

/// x: [heads, length, head]
fn rope(x: &Tensor) -> Result<Tensor> {
    let (_, length, size) = x.dims3()?;
    let angles: Vec<f32> = (0..length)
        .flat_map(|at| {
            (0..size / 2).map(move |pair| {
                (at as f64 / SHAPE.theta.powf(2.0 * pair as f64 / size as f64)) as f32
            })
        })
        .collect();
    let angles = Tensor::from_vec(angles, (1, length, size / 2), &Device::Cpu)?;
    candle_nn::rotary_emb::rope_slow(
        &x.unsqueeze(0)?,
        &angles.cos()?.squeeze(0)?,
        &angles.sin()?.squeeze(0)?,
    )?
    .squeeze(0)
}

fn plain_logits(vars: &[Var], tokens: &[u32]) -> Result<Tensor> {
    let Shape { queries, keys, head, .. } = SHAPE;
    let length = tokens.len();
    let ids = Tensor::new(tokens, &Device::Cpu)?;
    let mut hidden = vars[0].index_select(&ids, 0)?;
    let mask: Vec<f32> = (0..length * length)
        .map(|index| {
            let (query, key) = (index / length, index % length);
            let seen = key <= query && query - key < SHAPE.window;
            if seen { 0.0 } else { f32::NEG_INFINITY }
        })
        .collect();
    let mask = Tensor::from_vec(mask, (1, length, length), &Device::Cpu)?;
    for layer in vars[1..vars.len() - 1].chunks_exact(8) {
        let qkv = norm(&hidden, &layer[0])?.matmul(&layer[1].t()?)?;
        let heads = |from: usize, count: usize| -> Result<Tensor> {
            let part = qkv.narrow(1, from * head, count * head)?;
            part.reshape((length, count, head))?.transpose(0, 1)?.contiguous()
        };
        let query = rope(&norm(&heads(0, queries)?, &layer[2])?)?;
        let key = rope(&norm(&heads(queries, keys)?, &layer[3])?)?;
        let value = heads(queries + keys, keys)?;
        let repeat = |x: &Tensor| -> Result<Tensor> {
            let group = queries / keys;
            x.unsqueeze(1)?.expand((keys, group, length, head))?.reshape((queries, length, head))
        };
        let scores = (query.matmul(&repeat(&key)?.t()?)? / (head as f64).sqrt())?;
        let weights = softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
        let mixed = weights.matmul(&repeat(&value)?)?.transpose(0, 1)?;
        hidden = (hidden + mixed.reshape((length, queries * head))?.matmul(&layer[4].t()?)?)?;
        let gate_up = norm(&hidden, &layer[5])?.matmul(&layer[6].t()?)?;
        let gate = gate_up.narrow(1, 0, SHAPE.inner)?;
        let up = gate_up.narrow(1, SHAPE.inner, SHAPE.inner)?;
        hidden = (&hidden + (silu(&gate)? * up)?.matmul(&layer[7].t()?)?)?;
    }
    norm(&hidden, &vars[vars.len() - 1])?.matmul(&vars[0].t()?)
}

fn vars(values: &[Vec<f32>]) -> Result<Vec<Var>> {
    let shapes = SHAPE.parameters();
    let var = |(&(rows, columns), values): (&(usize, usize), &Vec<f32>)| match rows {
        1 => Var::from_slice(values, columns, &Device::Cpu),
        _ => Var::from_slice(values, (rows, columns), &Device::Cpu),
    };
    shapes.iter().zip(values).map(var).collect()
}

#[test]
fn every_gradient_is_there_and_agrees_with_plain_operations() -> Result<()> {
    let (values, batch) = (values(), batch());
    let scored = batch.scored.len();
    let mut grads: Vec<Vec<f32>> = values.iter().map(|value| vec![0.0; value.len()]).collect();
    let network = Network::new(SHAPE, &values)?;
    let loss = network.learn(&batch, 1.0 / scored as f32, &mut grads)? / scored as f64;

    let vars = vars(&values)?;
    let mut losses = Vec::new();
    for &(start, length) in &batch.documents {
        let logits = plain_logits(&vars, &batch.tokens[start..start + length])?;
        let likelihoods = candle_nn::ops::log_softmax(&logits, D::Minus1)?;
        for &(position, target) in &batch.scored {
            if (start..start + length).contains(&(position as usize)) {
                losses.push(likelihoods.get(position as usize - start)?.get(target as usize)?);
            }
        }
    }
    let plain = (Tensor::stack(&losses, 0)?.mean_all()?.neg())?;
    assert!((loss - f64::from(plain.to_scalar::<f32>()?)).abs() < 1e-4);
    let store = plain.backward()?;
    for (index, (var, grad)) in vars.iter().zip(&grads).enumerate() {
        let plain = store.get(var).expect("a gradient").flatten_all()?.to_vec1::<f32>()?;
        let largest = plain.iter().fold(0f32, |top, g| top.max(g.abs()));
        assert!(largest > 1e-6, "parameter {index} has no gradient");
        for (a, b) in plain.iter().zip(grad) {
            assert!((a - b).abs() < 1e-4 * largest.max(0.1), "parameter {index}: {a} and {b}");
        }
    }
    Ok(())
}

#[test]
fn the_cached_answer_agrees_with_the_whole_pass() -> Result<()> {
    let values = values();
    let network = Network::new(SHAPE, &values)?;
    let tokens: Vec<u32> = (0..20).map(|index| (index * 7 % 40) as u32).collect();
    let plain = plain_logits(&vars(&values)?, &tokens)?;
    let mut cache = Cache::new(&SHAPE);
    network.next(&tokens[..13], &mut cache)?;
    for position in 13..tokens.len() {
        let logits = network.next(&tokens[position..=position], &mut cache)?;
        for (a, b) in plain.get(position)?.to_vec1::<f32>()?.iter().zip(&logits) {
            assert!((a - b).abs() < 1e-4, "position {position}: {a} and {b}");
        }
    }
    Ok(())
}

#[test]
fn elementwise_operations_agree_with_candle() -> Result<()> {
    let mut dice = Dice::new(9);
    let numbers: Vec<f32> = (0..4 * 96).map(|_| dice.normal() * 3.0).collect();
    let x = super::ops::matrix(numbers, 96)?;
    let close = |a: &Tensor, b: &Tensor| -> Result<bool> {
        Ok((a - b)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-4)
    };
    let weight = Tensor::ones(96, candle_core::DType::F32, &Device::Cpu)?;
    assert!(close(&super::ops::rms_norm(&x, &weight)?, &norm(&x, &weight)?)?);
    let gated = (silu(&x.narrow(1, 0, 48)?)? * x.narrow(1, 48, 48)?)?;
    assert!(close(&super::ops::swiglu(&x)?, &gated)?);
    for step in -800..800 {
        let at = step as f32 / 10.0;
        assert!((super::ops::exp(at) / at.exp() - 1.0).abs() < 1e-5, "{at}");
    }
    Ok(())
}
