//! Causal attention over whole conversations laid end to end, forward and backward, with the norms of
//! queries and keys and the rotary embedding (Su et al. 2021) inside. Refuses to know the layers around it.
//!
//! Conversations are never padded nor packed behind a mask: each is attended on its own. What is trained
//! on is no longer than the window, so that only `continued` has to know where it begins.

use super::ops::{self, dot, floats, matrix, norm_row, norm_row_back};
use candle_core::{Device, Result, Tensor};

/// Sizes of the heads, and the cosines and sines of the rotary embedding.
pub(crate) struct Heads {
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) size: usize,
    /// Positions that a query sees, its own among them.
    window: usize,
    /// [positions, size / 2]
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

/// What the way back needs of one conversation.
pub(crate) struct Memory {
    start: usize,
    length: usize,
    /// [keys, group * length, size]
    query: Tensor,
    /// [keys, length, size]
    key: Tensor,
    value: Tensor,
    /// [keys, group * length, length]
    weights: Tensor,
}

impl Heads {
    /// `queries` and `keys` count heads.
    pub(crate) fn new(
        [queries, keys]: [usize; 2],
        size: usize,
        theta: f64,
        window: usize,
        positions: usize,
    ) -> Self {
        let angles = (0..positions).flat_map(|position| {
            (0..size / 2)
                .map(move |pair| position as f64 / theta.powf(2.0 * pair as f64 / size as f64))
        });
        let (sines, cosines) = angles.map(|angle| (angle.sin() as f32, angle.cos() as f32)).unzip();
        Self { queries, keys, size, window, cosines, sines }
    }

    /// Columns of a row of queries, keys and values.
    pub(crate) fn width(&self) -> usize {
        (self.queries + 2 * self.keys) * self.size
    }

    /// Longest conversation that can be rotated.
    pub(crate) fn positions(&self) -> usize {
        2 * self.cosines.len() / self.size
    }

    fn rotate(&self, x: &mut [f32], position: usize, back: bool) {
        let half = self.size / 2;
        let row = position * half..(position + 1) * half;
        let (cosines, sines) = (&self.cosines[row.clone()], &self.sines[row]);
        let (low, high) = x.split_at_mut(half);
        for index in 0..half {
            let cosine = cosines[index];
            let sine = if back { -sines[index] } else { sines[index] };
            let (first, second) = (low[index], high[index]);
            low[index] = first * cosine - second * sine;
            high[index] = second * cosine + first * sine;
        }
    }

    /// Norms and rotates one head of a query or key.
    pub(crate) fn place(&self, x: &mut [f32], weight: &[f32], position: usize) {
        norm_row(x, weight);
        self.rotate(x, position, false);
    }

    /// qkv: [tokens, width] to [tokens, queries * size]; `documents` are start and length of each.
    pub(crate) fn forward(
        &self,
        qkv: &Tensor,
        norms: [&Tensor; 2],
        documents: &[(usize, usize)],
    ) -> Result<(Tensor, Vec<Memory>)> {
        let data = floats(qkv);
        let columns = self.queries * self.size;
        let mut output = vec![0f32; data.len() / self.width() * columns];
        let mut memories = Vec::with_capacity(documents.len());
        for &(start, length) in documents {
            let rows = &data[start * self.width()..(start + length) * self.width()];
            let memory = self.attend(rows, norms, start, length)?;
            let mixed = memory.weights.matmul(&memory.value)?;
            let mixed = floats(&mixed);
            self.each_head(length, |from, query, position| {
                let to = (start + position) * columns + query * self.size;
                output[to..to + self.size].copy_from_slice(&mixed[from..from + self.size]);
            });
            memories.push(memory);
        }
        Ok((matrix(output, columns)?, memories))
    }

    fn attend(
        &self,
        rows: &[f32],
        norms: [&Tensor; 2],
        start: usize,
        length: usize,
    ) -> Result<Memory> {
        let (width, size) = (self.width(), self.size);
        let (query_norm, key_norm) = (floats(norms[0]), floats(norms[1]));
        let mut query = vec![0f32; self.queries * length * size];
        self.each_head(length, |to, head, position| {
            let from = position * width + head * size;
            let x = &mut query[to..to + size];
            x.copy_from_slice(&rows[from..from + size]);
            self.place(x, &query_norm, position);
        });
        let mut key = vec![0f32; self.keys * length * size];
        let mut value = key.clone();
        for head in 0..self.keys {
            for position in 0..length {
                let to = (head * length + position) * size;
                let from = position * width + (self.queries + head) * size;
                let x = &mut key[to..to + size];
                x.copy_from_slice(&rows[from..from + size]);
                self.place(x, &key_norm, position);
                let from = from + self.keys * size;
                value[to..to + size].copy_from_slice(&rows[from..from + size]);
            }
        }
        let group = self.queries / self.keys;
        let cube = |data, rows| Tensor::from_vec(data, (self.keys, rows, size), &Device::Cpu);
        let (query, key, value) =
            (cube(query, group * length)?, cube(key, length)?, cube(value, length)?);
        let scores = query.matmul(&key.t()?)?;
        let weights = self.causal_softmax(&scores, length);
        let weights = Tensor::from_vec(weights, scores.shape(), &Device::Cpu)?;
        Ok(Memory { start, length, query, key, value, weights })
    }

    fn causal_softmax(&self, scores: &Tensor, length: usize) -> Vec<f32> {
        let scores = floats(scores);
        let scale = 1.0 / (self.size as f32).sqrt();
        let mut weights = vec![0f32; scores.len()];
        let mut scaled = vec![0f32; length];
        for (index, (row, out)) in
            scores.chunks_exact(length).zip(weights.chunks_exact_mut(length)).enumerate()
        {
            let seen = index % length + 1;
            for (to, from) in scaled.iter_mut().zip(&row[..seen]) {
                *to = from * scale;
            }
            let sum = ops::softmax_terms(&scaled[..seen], &mut out[..seen]);
            for weight in &mut out[..seen] {
                *weight /= sum;
            }
        }
        weights
    }

    /// Gradient of qkv; those of the two norms are added to `grad_norms`.
    pub(crate) fn backward(
        &self,
        qkv: &Tensor,
        norms: [&Tensor; 2],
        memories: &[Memory],
        grad: &Tensor,
        grad_norms: &mut [Vec<f32>; 2],
    ) -> Result<Tensor> {
        let (data, grad) = (floats(qkv), floats(grad));
        let mut output = vec![0f32; data.len()];
        for memory in memories {
            self.document_back(&data, norms, memory, &grad, &mut output, grad_norms)?;
        }
        matrix(output, self.width())
    }

    fn document_back(
        &self,
        data: &[f32],
        norms: [&Tensor; 2],
        memory: &Memory,
        grad: &[f32],
        output: &mut [f32],
        grad_norms: &mut [Vec<f32>; 2],
    ) -> Result<()> {
        let (width, size, length) = (self.width(), self.size, memory.length);
        let columns = self.queries * size;
        let mut grad_mixed = vec![0f32; self.queries * length * size];
        self.each_head(length, |to, head, position| {
            let from = (memory.start + position) * columns + head * size;
            grad_mixed[to..to + size].copy_from_slice(&grad[from..from + size]);
        });
        let grad_mixed = Tensor::from_vec(grad_mixed, memory.query.shape(), &Device::Cpu)?;
        let grad_value = memory.weights.t()?.matmul(&grad_mixed)?;
        let grad_weights = grad_mixed.matmul(&memory.value.t()?)?;
        let grad_scores = self.softmax_back(&memory.weights, &grad_weights, length)?;
        let grad_query = grad_scores.matmul(&memory.key)?;
        let grad_key = grad_scores.t()?.matmul(&memory.query)?;

        let mut turned = vec![0f32; size];
        let mut place_back = |placed: &[f32], at: usize, position: usize, which: usize| {
            turned.copy_from_slice(placed);
            self.rotate(&mut turned, position, true);
            let weight = floats(norms[which]);
            let (x, out) = (&data[at..at + size], &mut output[at..at + size]);
            norm_row_back(x, &weight, &turned, out, &mut grad_norms[which]);
        };
        let query = floats(&grad_query);
        self.each_head(length, |from, head, position| {
            let at = (memory.start + position) * width + head * size;
            place_back(&query[from..from + size], at, position, 0);
        });
        let (key, value) = (floats(&grad_key), floats(&grad_value));
        let each_key =
            || (0..self.keys).flat_map(|head| (0..length).map(move |position| (head, position)));
        let place = |head: usize, position: usize| {
            let from = (head * length + position) * size;
            (from, (memory.start + position) * width + (self.queries + head) * size)
        };
        for (head, position) in each_key() {
            let (from, at) = place(head, position);
            place_back(&key[from..from + size], at, position, 1);
        }
        for (head, position) in each_key() {
            let (from, at) = place(head, position);
            let at = at + self.keys * size;
            output[at..at + size].copy_from_slice(&value[from..from + size]);
        }
        Ok(())
    }

    fn softmax_back(&self, weights: &Tensor, grad: &Tensor, length: usize) -> Result<Tensor> {
        let shape = weights.shape();
        let (weights, grad) = (floats(weights), floats(grad));
        let scale = 1.0 / (self.size as f32).sqrt();
        let mut output = vec![0f32; weights.len()];
        let rows = weights.chunks_exact(length).zip(grad.chunks_exact(length));
        for (index, ((w, g), out)) in rows.zip(output.chunks_exact_mut(length)).enumerate() {
            let seen = index % length + 1;
            let mean = dot(&w[..seen], &g[..seen]);
            for ((o, w), g) in out[..seen].iter_mut().zip(w).zip(g) {
                *o = w * (g - mean) * scale;
            }
        }
        Tensor::from_vec(output, shape, &Device::Cpu)
    }

    /// Calls `f` with the offset in [keys, group * length, size], the query head and the position.
    fn each_head(&self, length: usize, mut f: impl FnMut(usize, usize, usize)) {
        for head in 0..self.queries {
            for position in 0..length {
                f((head * length + position) * self.size, head, position);
            }
        }
    }
}

impl Heads {
    /// Attention of further tokens behind `past` ones, whose placed keys and values, [past, keys, size],
    /// `seen` holds; theirs are added.
    pub(crate) fn continued(
        &self,
        qkv: &Tensor,
        norms: [&Tensor; 2],
        past: usize,
        seen: &mut [Vec<f32>; 2],
    ) -> Result<Tensor> {
        let (size, group) = (self.size, self.queries / self.keys);
        let (query_norm, key_norm) = (floats(norms[0]), floats(norms[1]));
        let mut data = floats(qkv).to_vec();
        let scale = 1.0 / (size as f32).sqrt();
        let mut output = Vec::with_capacity(data.len());
        for (index, row) in data.chunks_exact_mut(self.width()).enumerate() {
            let position = past + index;
            for (head, x) in row.chunks_exact_mut(size).enumerate().take(self.queries + self.keys) {
                let weight = if head < self.queries { &query_norm } else { &key_norm };
                self.place(x, weight, position);
            }
            let (query, rest) = row.split_at(self.queries * size);
            let (key, value) = rest.split_at(self.keys * size);
            seen[0].extend_from_slice(key);
            seen[1].extend_from_slice(value);
            for (head, query) in query.chunks_exact(size).enumerate() {
                let column = head / group * size;
                let step = self.keys * size;
                let first = (position + 1).saturating_sub(self.window);
                let scores: Vec<f32> = (first..=position)
                    .map(|at| dot(query, &seen[0][at * step + column..][..size]) * scale)
                    .collect();
                let mut weights = vec![0f32; scores.len()];
                let sum = ops::softmax_terms(&scores, &mut weights);
                let mut mixed = vec![0f32; size];
                for (at, weight) in (first..).zip(&weights) {
                    let value = &seen[1][at * step + column..][..size];
                    mixed.iter_mut().zip(value).for_each(|(m, v)| *m += weight / sum * v);
                }
                output.extend(mixed);
            }
        }
        matrix(output, self.queries * size)
    }
}
