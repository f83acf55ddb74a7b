//! Rank 0: tells the others what to compute, and adds up their partial sums.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use candle_core::{Result, Tensor, bail};
use serde::de::DeserializeOwned;

use super::link::{Link, numbers, tensor};
use super::order::{Order, RankMemory};
use crate::layers::group::Group;

/// How often ranks that compute nothing are asked whether they are there.
const CHECK: Duration = Duration::from_secs(2);

/// Rank 0, and its links to all others in the order of their ranks.
#[derive(Debug)]
pub struct Leader {
    links: Mutex<Vec<Link>>,
    size: usize,
    /// Held while an order is carried out. An order was begun and not completed: if nobody holds this, one
    /// has failed halfway.
    unfinished: Mutex<bool>,
}

impl Leader {
    /// Rank 0 of a group whose other ranks are at the ends of these links.
    pub fn new(links: Vec<Link>) -> Self {
        let size = links.len() + 1;
        Self { links: Mutex::new(links), size, unfinished: Mutex::new(false) }
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

    /// Waits until all others have captured steps of these tokens and blocks.
    ///
    /// # Errors
    ///
    /// A rank captured others: where one pads a step and another doesn't, their sums have different sizes.
    pub(crate) fn check_captured(&self, own: &[(usize, usize)]) -> Result<()> {
        let others = self.receive_all::<Vec<(usize, usize)>>("captured decode steps")?;
        match others.iter().position(|other| other != own) {
            None => Ok(()),
            Some(index) => bail!(
                "rank {} captured {} decode steps, rank 0 captured {}: all must have the same",
                index + 1,
                others[index].len(),
                own.len()
            ),
        }
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
        match self.unfinished.try_lock() {
            Ok(unfinished) => *unfinished,
            Err(TryLockError::Poisoned(unfinished)) => **unfinished.get_ref(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Asks all others from time to time whether they are there, so that one that dies is missed before the
    /// next request comes; calls `lost` then. Ends with the leader.
    pub(crate) fn watch(self: &Arc<Self>, lost: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let leader = Arc::downgrade(self);
        let watch = move || {
            while let Some(leader) = leader.upgrade() {
                if !leader.all_answer() {
                    return lost();
                }
                drop(leader);
                thread::sleep(CHECK);
            }
        };
        thread::Builder::new().name("ranks".to_owned()).spawn(watch).map(drop)
    }

    /// Whether all others answer, or are busy with an order, which will tell.
    fn all_answer(&self) -> bool {
        let Ok(mut unfinished) = self.unfinished.try_lock() else { return true };
        if *unfinished {
            return false;
        }
        let asked = self.links().iter_mut().try_for_each(|link| link.send(&Order::Answer));
        let answered = asked.and_then(|()| self.receive_all::<()>("computed nothing"));
        if let Err(error) = &answered {
            tracing::error!(%error, "a rank doesn't answer");
        }
        *unfinished = answered.is_err();
        !*unfinished
    }

    /// Sends an order to all others, and carries it out in this process by `own`.
    ///
    /// # Errors
    ///
    /// A failure of any rank, after which there are no more orders.
    pub(crate) fn order<T>(&self, order: &Order<'_>, own: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *unfinished, true) {
            bail!("the ranks have lost each other in an earlier step");
        }
        self.links().iter_mut().try_for_each(|link| link.send(order))?;
        let done = own()?;
        *unfinished = false;
        Ok(done)
    }

    pub(super) fn links(&self) -> MutexGuard<'_, Vec<Link>> {
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
