//! One captured step: the plan that it reads, and what all captured steps write.

use candle_core::{DType, Device, Result, Tensor, bail};

use crate::layers::forward::{
    BLOCK_SIZE, CudaGraph, ForwardBatch, ForwardContext, NO_SLOT, Step, StepSizes, StepTensors,
};
use crate::models::{CausalLm, ForwardOutput};
use crate::runner::batch::narrow;
use crate::runner::hidden::HeadInput;

/// What captured steps compute: each overwrites the first rows.
#[derive(Clone)]
pub(super) struct Outputs {
    /// `[tokens, vocab_size]`
    pub(super) logits: Tensor,
    /// `[tokens, width]` in f32: what a head that drafts is told of each token, if there is one.
    told: Option<Tensor>,
}

/// A captured step of one size.
pub(super) struct CapturedStep {
    /// The buffer on the device that a step's plan is written to.
    pub(super) plan: Tensor,
    /// A placeholder batch of this size, whose tensors are parts of `plan`.
    pub(super) batch: ForwardBatch,
    /// The first rows of what all steps share.
    pub(super) outputs: Outputs,
    pub(super) graph: CudaGraph,
}

impl Outputs {
    /// For steps of at most so many tokens, and a head that is `told` of them.
    pub(super) fn new(
        model: &dyn CausalLm,
        tokens: usize,
        told: &HeadInput,
        device: &Device,
    ) -> Result<Self> {
        let zeros = |width: usize| Tensor::zeros((tokens, width), DType::F32, device);
        let told = told.width(model.hidden_size()).map(zeros).transpose()?;
        Ok(Self { logits: zeros(model.vocab_size())?, told })
    }

    fn narrow(&self, tokens: usize) -> Result<Self> {
        let told = self.told.as_ref().map(|told| told.narrow(0, 0, tokens)).transpose()?;
        Ok(Self { logits: self.logits.narrow(0, 0, tokens)?, told })
    }

    /// Overwrites the first rows.
    fn write(&self, computed: ForwardOutput) -> Result<()> {
        let ForwardOutput { logits, hidden, tapped } = computed;
        self.logits.slice_set(&logits.contiguous()?, 0, 0)?;
        let Some(told) = &self.told else { return Ok(()) };
        let Some(rows) = hidden.or(tapped) else { bail!("the model gives no hidden states") };
        told.slice_set(&rows.to_dtype(DType::F32)?.contiguous()?, 0, 0)
    }
}

impl CapturedStep {
    /// Computes a step which writes to `outputs`, and captures it; the inner error says why it can't be
    /// captured.
    pub(super) fn new(
        model: &dyn CausalLm,
        context: &ForwardContext<'_>,
        sizes: StepSizes,
        outputs: &Outputs,
        told: &HeadInput,
    ) -> Result<Result<Self>> {
        let StepSizes { tokens, blocks, .. } = sizes;
        let device: &Device = context.device;
        let rows: Vec<u32> = (0..=narrow(tokens)).collect();
        let plan = Tensor::zeros(sizes.len(), DType::U32, device)?;
        let on_device = StepTensors::in_buffer(&plan, sizes, blocks * BLOCK_SIZE)?;
        let step = Step {
            input_ids: vec![0; tokens],
            positions: vec![0; tokens],
            slots: vec![NO_SLOT; tokens],
            block_tables: vec![vec![0]; tokens],
            context_lens: vec![1; tokens],
            sequence_lens: vec![1; tokens],
            state_slots: vec![NO_SLOT; tokens],
            cu_seqlens_q: rows.clone(),
            ..Step::default()
        };
        step.overwrite(&plan, sizes)?;
        let step = step.with_tensors(on_device);
        let logits_rows = rows[..tokens].to_vec();
        let batch = ForwardBatch { step, logits_rows, ..ForwardBatch::default() };
        let batch = told.of_all(batch, narrow(tokens));
        let outputs = outputs.narrow(tokens)?;
        let compute = || outputs.write(model.forward(context, &batch)?);
        let graph = CudaGraph::capture(device, compute)?;
        Ok(graph.map(|graph| Self { plan, batch, outputs, graph }))
    }

    /// Computes what was captured.
    pub(super) fn compute(&self, model: &dyn CausalLm, context: &ForwardContext<'_>) -> Result<()> {
        self.outputs.write(model.forward(context, &self.batch)?)
    }

    /// What the last replay computed for a batch, whose token `i` was the token `places[i]` of the step.
    pub(super) fn output(&self, batch: &ForwardBatch, places: &[u32]) -> Result<ForwardOutput> {
        let Outputs { logits, told } = &self.outputs;
        let told = |rows: &[u32]| {
            let Some(told) = told.as_ref().filter(|_| !rows.is_empty()) else { return Ok(None) };
            let rows: Vec<u32> = rows.iter().map(|row| places[*row as usize]).collect();
            some_rows(told, &rows).map(Some)
        };
        Ok(ForwardOutput {
            logits: some_rows(logits, places)?,
            hidden: told(&batch.hidden_rows)?,
            tapped: told(&batch.taps.rows)?,
        })
    }
}

/// Some rows of what a replay computed.
fn some_rows(all: &Tensor, rows: &[u32]) -> Result<Tensor> {
    let in_order = rows.iter().zip(0..).all(|(row, i)| *row == i);
    if !in_order {
        return all.index_select(&Tensor::new(rows, all.device())?, 0);
    }
    let first = all.narrow(0, 0, rows.len())?;
    // The reader takes memory of the host away from its tensor.
    if first.device().is_cpu() { first.force_contiguous() } else { Ok(first) }
}
