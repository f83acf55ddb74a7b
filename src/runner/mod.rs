//! A step's plan to logits and hidden states: owns the model, the KV tensors and the states of
//! sequences. Knows no sampling parameters, no requests, no channels.

mod batch;
mod cache_sizes;
mod decode_graphs;
mod drafter;
mod encoder;
mod hidden;
mod kv_tensors;
mod local;
mod logits;
mod positions;
pub mod ranks;
mod single_tokens;
mod timing;

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

pub use cache_sizes::CacheSizes;
pub use decode_graphs::DecodeBounds;
pub use drafter::DraftRunner;
pub use encoder::{EncoderRunner, Text};
pub use hidden::{HeadInput, HiddenStates};
pub use local::LargestSteps;
use local::{Local, Partner};
pub use logits::{HostLogits, Logits};
use ranks::Leader;
use ranks::order::Order;
pub use timing::StepSeconds;

pub use crate::layers::forward::{
    Adapter, BLOCK_SIZE, DeviceLogits, Interruption, KvFormat, KvHeads, KvShape,
};
use crate::layers::forward::{ForwardBatch, PictureRows, StartedDraws};
pub use crate::models::DraftedBlock;
use crate::models::audio::{AudioEncoder, Hearing};
use crate::models::vision::{Look, Tower};
use crate::models::{CausalLm, ForwardOutput};
use crate::pictures::picture::Picture;
use crate::scheduler::output::{AdapterId, Copies, MediaSpan, PlannedSequence};
use crate::sounds::sound::Sound;

/// The result of a step, in the order of its plan.
pub struct StepOutput {
    /// A row for each token whose logits are wanted.
    pub logits: Logits,
    /// A row for each token that is pooled.
    pub hidden: HiddenStates,
    /// A row for each token that is tapped: the inputs of the tapped layers, one behind the other.
    pub tapped: HiddenStates,
}

/// Runs one model, on one device or with other ranks.
pub struct Runner {
    local: Local,
    leader: Option<Arc<Leader>>,
    tower: Option<Box<Tower>>,
    audio_encoder: Option<Box<AudioEncoder>>,
    /// What a head that drafts is told.
    told: HeadInput,
}

/// A look at a picture, or a sound being heard, as far as it is done.
pub enum MediaLook {
    /// A look at a picture.
    Picture(Box<Look>),
    /// A sound being heard.
    Sound(Box<Hearing>),
}

impl Runner {
    /// Takes the model and allocates its caches; on every rank, if there are several.
    pub fn new(
        model: Box<dyn CausalLm>,
        device: Device,
        sizes: CacheSizes,
        leader: Option<Arc<Leader>>,
    ) -> Result<Self> {
        let alone = leader.is_none();
        let allocate = || Local::new(model, device, sizes, alone);
        let local = match &leader {
            None => allocate()?,
            Some(leader) => leader.order(&Order::Start(sizes), || {
                let local = allocate()?;
                leader.wait_for_all_started()?;
                Ok(local)
            })?,
        };
        Ok(Self { local, leader, tower: None, audio_encoder: None, told: HeadInput::Nothing })
    }

    /// The same, with the tower that looks at pictures.
    #[must_use]
    pub fn with_tower(self, tower: Option<Box<Tower>>) -> Self {
        Self { tower, ..self }
    }

    /// The same, with the encoder that hears sounds.
    #[must_use]
    pub fn with_audio_encoder(self, audio_encoder: Option<Box<AudioEncoder>>) -> Self {
        Self { audio_encoder, ..self }
    }

    /// The same, giving what a head that drafts is told where it is wanted.
    #[must_use]
    pub fn with_head(self, told: HeadInput) -> Self {
        Self { told, ..self }
    }

    /// Begins to look at a picture.
    pub fn look(&self, picture: &Picture) -> Result<MediaLook> {
        self.tower()?.begin(picture).map(Box::new).map(MediaLook::Picture)
    }

    /// Begins to hear a sound.
    pub fn hear(&self, sound: Arc<Sound>) -> Result<MediaLook> {
        self.audio_encoder()?.begin(sound).map(Box::new).map(MediaLook::Sound)
    }

    /// Goes on with a look, or with a sound, for one layer of its encoder. At its end there are the features of
    /// its tokens, `[tokens, width]`.
    pub fn look_on(&self, look: &mut MediaLook) -> Result<Option<Tensor>> {
        match look {
            MediaLook::Picture(look) => self.tower()?.advance(look),
            MediaLook::Sound(hearing) => self.audio_encoder()?.advance(hearing),
        }
    }

    fn tower(&self) -> Result<&Tower> {
        let Some(tower) = &self.tower else { bail!("the model doesn't see pictures") };
        Ok(tower)
    }

    fn audio_encoder(&self) -> Result<&AudioEncoder> {
        let Some(encoder) = &self.audio_encoder else { bail!("the model doesn't hear sounds") };
        Ok(encoder)
    }

    /// Computes the largest steps with a model that no runner has yet, of which a head is `told`, so that
    /// its device's free memory shows what such steps take.
    ///
    /// # Errors
    ///
    /// A step takes more memory than there is.
    pub fn rehearse(
        model: &dyn CausalLm,
        device: &Device,
        largest: LargestSteps,
        kv_format: KvFormat,
        told: &HeadInput,
    ) -> Result<()> {
        local::rehearse(model, device, largest, kv_format, Partner::Head(told))
    }

    /// Times steps of a model that no runner has yet: those of a prompt of so many tokens, and those of single
    /// tokens behind a short context. The medians of a few, other tokens each time.
    ///
    /// # Errors
    ///
    /// A step takes more memory than there is.
    pub fn time_steps(
        model: &dyn CausalLm,
        device: &Device,
        tokens: usize,
        kv_format: KvFormat,
    ) -> Result<StepSeconds> {
        timing::time_steps(model, device, tokens, kv_format)
    }

    /// Captures decode steps up to these bounds as CUDA graphs, where the device has them and needs no
    /// host to tell other ranks anything; none is captured later. The calling thread is the one that runs
    /// steps.
    ///
    /// # Errors
    ///
    /// No memory for what all of them share; or ranks that captured different steps.
    pub fn capture(&self, bounds: DecodeBounds) -> Result<()> {
        let capture = || self.local.capture(bounds, &self.told);
        match &self.leader {
            Some(leader) if self.local.captures() => {
                leader.order(&Order::Capture(bounds), || leader.check_captured(&capture()?))
            }
            _ => capture().map(drop),
        }
    }

    /// Whether a step of several ranks failed halfway: then nothing can be computed any more.
    pub fn is_broken(&self) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.is_broken())
    }

    /// Whether this process alone computes, on the CPU: then a step that has ended left nothing running.
    pub fn is_alone_on_cpu(&self) -> bool {
        self.leader.is_none() && self.local.is_on_cpu()
    }

    /// Asks the device, after a step failed, whether it can still compute.
    ///
    /// # Errors
    ///
    /// The device has failed for good, and why.
    pub fn check_device(&self) -> Result<()> {
        self.local.check_device()
    }

    /// Copies blocks and states; none is both source and target.
    pub fn copy(&self, copies: &[Copies]) -> Result<()> {
        let blocks: Vec<_> = copies.iter().filter_map(|copies| copies.block).collect();
        let states: Vec<_> = copies.iter().filter_map(|copies| copies.state).collect();
        let copy = || self.local.copy(&blocks, &states);
        let Some(leader) = &self.leader else { return copy() };
        let (blocks, states) = (blocks.clone(), states.clone());
        leader.order(&Order::Copy { blocks, states }, copy)
    }

    /// Copies recurrent states to snapshots in this order, each `(from, to)`.
    pub fn take_snapshots(&self, copies: &[(u32, u32)]) -> Result<()> {
        let take = || self.local.take_snapshots(copies);
        match &self.leader {
            Some(leader) if !copies.is_empty() => {
                leader.order(&Order::TakeSnapshots(copies.to_vec()), take)
            }
            _ => take(),
        }
    }

    /// Copies snapshots to the recurrent states of sequences, each `(from, to)`.
    pub fn restore(&self, copies: &[(u32, u32)]) -> Result<()> {
        let restore = || self.local.restore(copies);
        match &self.leader {
            Some(leader) if !copies.is_empty() => {
                leader.order(&Order::Restore(copies.to_vec()), restore)
            }
            _ => restore(),
        }
    }

    /// A block of the KV cache as bytes: the rows of all layers, keys before values.
    pub fn read_block(&self, block: u32) -> Result<Vec<u8>> {
        self.check_one_rank()?;
        self.local.read_block(block)
    }

    /// Replaces a block of the KV cache by what [`Self::read_block`] gave.
    pub fn write_block(&self, block: u32, bytes: &[u8]) -> Result<()> {
        self.check_one_rank()?;
        self.local.write_block(block, bytes)
    }

    /// A snapshot of recurrent states as bytes.
    pub fn read_snapshot(&self, row: u32) -> Result<Vec<u8>> {
        self.check_one_rank()?;
        self.local.read_snapshot(row)
    }

    /// Replaces a snapshot by what [`Self::read_snapshot`] gave.
    pub fn write_snapshot(&self, row: u32, bytes: &[u8]) -> Result<()> {
        self.check_one_rank()?;
        self.local.write_snapshot(row, bytes)
    }

    /// Refuses to take a part of the cache for all of it.
    fn check_one_rank(&self) -> Result<()> {
        if self.leader.is_some() {
            bail!("the KV cache can't be read or written as bytes with several ranks");
        }
        Ok(())
    }

    /// Runs the planned sequences, some with the adapters that `adapter` finds and with pictures of
    /// which `features` has what was seen. A step of this process alone may end early.
    pub fn run<'a>(
        &self,
        plan: impl Iterator<Item = PlannedSequence<'a>>,
        adapter: impl Fn(AdapterId) -> Arc<Adapter>,
        features: impl Fn(&MediaSpan) -> Result<Tensor>,
        interruption: Option<&Interruption>,
    ) -> Result<StepOutput> {
        let mut batch = batch::flatten(plan, adapter, features)?;
        batch.taps.layers = self.told.layers().to_vec();
        let output = self.forward(&batch, interruption)?;
        Ok(StepOutput {
            logits: Logits::from_tensor(output.logits)?,
            hidden: HiddenStates::from_tensor(output.hidden)?,
            tapped: HiddenStates::from_tensor(output.tapped)?,
        })
    }

    /// Starts the step that probably comes next, with the tokens that are being sampled from the last
    /// one's logits, so that a GPU has work until the host knows them. What the next step doesn't
    /// ask for is dropped; the keys and values that it wrote are those that would be written anyway.
    pub fn run_ahead(&self, draws: &StartedDraws) {
        // Nobody tells other ranks of it.
        if self.leader.is_some() {
            return;
        }
        if let Err(error) = self.local.run_ahead(draws) {
            tracing::warn!("a step could not be started ahead: {error}");
            self.local.tokens_sampled(None);
        }
    }

    /// Tells which tokens were sampled on the device, in the order of rows; `None` if one of them
    /// failed.
    pub fn tokens_sampled(&self, token_ids: Option<Vec<u32>>) {
        self.local.tokens_sampled(token_ids);
    }

    fn forward(
        &self,
        batch: &ForwardBatch,
        interruption: Option<&Interruption>,
    ) -> Result<ForwardOutput> {
        let Some(leader) = &self.leader else { return self.local.forward(batch, interruption) };
        if !batch.adapters.is_empty() {
            bail!("adapters can't be used with several ranks");
        }
        if self.local.is_stage() {
            if !batch.pictures.is_empty() {
                bail!("pictures can't be seen by stages of layers");
            }
            return leader.forward_in_stages(&self.local, batch);
        }
        check_sent(&batch.pictures)?;
        let order = Order::Forward(Box::new(Cow::Borrowed(batch)));
        leader.order(&order, || self.local.forward(batch, None))
    }
}

/// Refuses features that no message to another rank has room for, before any rank begins.
fn check_sent(pictures: &[PictureRows]) -> Result<()> {
    let numbers: usize = pictures.iter().map(|picture| picture.features.elem_count()).sum();
    let (bytes, most) = (numbers * size_of::<f32>(), ranks::MAX_FEATURES);
    if bytes > most {
        bail!(
            "a step has {bytes} bytes of features of pictures, and {most} at most for other ranks: \
             lower --max-num-batched-tokens"
        );
    }
    Ok(())
}
