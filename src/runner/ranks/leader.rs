//! Rank 0: tells the others what to compute, and adds up their partial sums.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use candle_core::{Result, Tensor, bail};
use serde::de::DeserializeOwned;

use super::link::{Link, numbers, tensor};
use super::order::{Order, RankMemory};
use crate::layers::group::Group;

/// Rank 0, and its links to all others in the order of their ranks.
#[derive(Debug)]
pub struct Leader {
    links: Mutex<Vec<Link>>,
    size: usize,
    /// An order was begun and not completed: if none is in progress, one has failed halfway.
    in_progress: AtomicBool,
}

impl Leader {
    /// Rank 0 of a group whose other ranks are at the ends of these links.
    pub fn new(links: Vec<Link>) -> Self {
        let size = links.len() + 1;
        Self { links: Mutex::new(links), size, in_progress: AtomicBool::new(false) }
    }

    /// Waits until all others have loaded their parts.
    ///
    /// # Errors
    ///
    /// What the first that failed says.
    pub fn wait_for_all(&self) -> Result<Vec<RankMemory>> {
        self.receive_all("loaded its part")
    }

    /// Waits until all others have allocated what they need.
    pub(crate) fn wait_for_all_started(&self) -> Result<()> {
        self.receive_all::<()>("allocated its KV cache").map(drop)
    }

    /// Waits for a message of each other rank, which it sends once it has `done` something.
    fn receive_all<T: DeserializeOwned>(&self, done: &str) -> Result<Vec<T>> {
        let message = |(rank, link): (usize, &mut Link)| match link.receive()? {
            Some(message) => Ok(message),
            None => bail!("rank {} ended while it {done}", rank + 1),
        };
        self.links().iter_mut().enumerate().map(message).collect()
    }

    /// Whether a step failed halfway.
    pub(crate) fn is_broken(&self) -> bool {
        self.in_progress.load(Ordering::Acquire)
    }

    /// Sends an order to all others, and carries it out in this process by `own`.
    ///
    /// # Errors
    ///
    /// A failure of any rank, after which there are no more orders.
    pub(crate) fn order<T>(&self, order: &Order<'_>, own: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.in_progress.swap(true, Ordering::AcqRel) {
            bail!("the ranks have lost each other in an earlier step");
        }
        self.links().iter_mut().try_for_each(|link| link.send(order))?;
        let done = own()?;
        self.in_progress.store(false, Ordering::Release);
        Ok(done)
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group for Leader {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&self, x: Tensor) -> Result<Tensor> {
        let mut sum = numbers(&x)?;
        let mut links = self.links();
        for link in links.iter_mut() {
            let other = link.receive_numbers()?;
            if other.len() != sum.len() {
                bail!("a rank has {} numbers to add to {}", other.len(), sum.len());
            }
            sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
        }
        links.iter_mut().try_for_each(|link| link.send_numbers(&sum))?;
        tensor(sum, x.dims(), x.device())
    }

    fn gather(&self, x: Tensor) -> Result<Tensor> {
        let (rows, device) = (x.dim(0)?, x.device().clone());
        let mut parts = vec![x];
        for link in self.links().iter_mut() {
            let part = link.receive_numbers()?;
            let columns = part.len().checked_div(rows).unwrap_or(0);
            parts.push(tensor(part, &[rows, columns], &device)?);
        }
        Tensor::cat(&parts, 1)
    }
}
