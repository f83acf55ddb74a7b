//! Any rank but 0: computes what rank 0 asks for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{Device, Result, Tensor, bail};

use super::link::{Link, numbers, tensor};
use super::microbatches::cut;
use super::order::{Order, RankMemory};
use super::stages;
use crate::layers::group::Group;
use crate::models::CausalLm;
use crate::runner::hidden::HeadInput;
use crate::runner::local::Local;

/// A rank that follows rank 0, and its link to it.
#[derive(Debug)]
pub struct Follower {
    link: Mutex<Link>,
    rank: usize,
    size: usize,
}

impl Follower {
    /// Rank `rank` of `size`, with rank 0 at the end of the link.
    pub fn new(link: Link, rank: usize, size: usize) -> Self {
        Self { link: Mutex::new(link), rank, size }
    }

    /// Tells rank 0 why this rank has no part of the model.
    pub fn fail(&self, reason: &str) -> Result<()> {
        self.link().send_failure(reason)
    }

    /// Follows rank 0 until it ends.
    ///
    /// # Errors
    ///
    /// A failure of this rank, which rank 0 is told, or a broken link.
    pub fn follow(
        self: &Arc<Self>,
        model: Box<dyn CausalLm>,
        device: &Device,
        memory: RankMemory,
    ) -> Result<()> {
        self.link().send(&memory)?;
        let done = self.carry_out_orders(model, device);
        if let Err(error) = &done {
            // Rank 0 may be what has failed.
            let _ = self.fail(&error.to_string());
        }
        done
    }

    fn carry_out_orders(&self, model: Box<dyn CausalLm>, device: &Device) -> Result<()> {
        let Some(first) = self.order()? else { return Ok(()) };
        let Order::Start(sizes) = first else { bail!("the first order is not to start") };
        let local = Local::new(model, device.clone(), sizes, false)?;
        self.link().send(&())?;
        while let Some(order) = self.order()? {
            match order {
                Order::Start(_) => bail!("started already"),
                Order::Capture(bounds) => {
                    let captured = local.capture(bounds, &HeadInput::Nothing)?;
                    self.link().send(&captured)?;
                }
                Order::Copy { blocks, states } => local.copy(&blocks, &states)?,
                Order::Answer => self.link().send(&())?,
                Order::TakeSnapshots(copies) => local.take_snapshots(&copies)?,
                Order::Restore(copies) => local.restore(&copies)?,
                Order::Forward(batch) => drop(local.forward(&batch, None)?),
                Order::Stage { batch, microbatches } => {
                    stages::follow(&mut self.link(), &local, cut(&batch, microbatches))?;
                }
            }
        }
        Ok(())
    }

    /// Answers the next order, which asks for no more.
    #[cfg(test)]
    pub(super) fn answer_once(&self) -> Result<()> {
        let Some(Order::Answer) = self.order()? else { bail!("another order") };
        self.link().send(&())
    }

    fn order(&self) -> Result<Option<Order<'static>>> {
        self.link().receive()
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group for Follower {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&self, x: Tensor) -> Result<Tensor> {
        let mut link = self.link();
        link.send_numbers(&numbers(&x)?)?;
        tensor(link.receive_numbers()?, x.dims(), x.device())
    }

    fn gather(&self, x: Tensor) -> Result<Tensor> {
        self.link().send_numbers(&numbers(&x)?)?;
        Ok(x)
    }
}
