//! A step through stages of layers: hidden states go from rank 0 to rank 1, from there to rank 2 by way of rank
//! 0, which alone has links to all, and from the last one back.
//!
//! Each link is read by one thread and written by one, so that microbatches are on their way while others are
//! computed. When a rank fails, all that follow it are told, and all threads come to their end.

use std::borrow::Cow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, ScopedJoinHandle};

use candle_core::{Result, Tensor, bail};

use super::leader::Leader;
use super::link::{Link, Reader, Writer, numbers};
use super::microbatches::{cut, worth};
use super::order::Order;
use crate::layers::forward::{ForwardBatch, PreviousHidden};
use crate::models::ForwardOutput;
use crate::runner::local::Local;

impl Leader {
    /// Computes a step of which this process has the first stage.
    pub(in crate::runner) fn forward_in_stages(
        &self,
        local: &Local,
        batch: &ForwardBatch,
    ) -> Result<ForwardOutput> {
        let rows = batch.step.input_ids.len();
        let microbatches = worth(rows, self.links().len() + 1, !local.is_on_cpu());
        let order = Order::Stage { batch: Box::new(Cow::Borrowed(batch)), microbatches };
        let hidden = self.order(&order, || {
            let compute = |part: &ForwardBatch| states(local.forward(part, None)?);
            lead(&mut self.links(), &cut(batch, microbatches), compute)
        })?;
        local.finish(batch, hidden.concat())
    }
}

/// Sends what `compute` makes of each part through all links; gives what comes back from the last.
pub(super) fn lead(
    links: &mut [Link],
    parts: &[ForwardBatch],
    compute: impl Fn(&ForwardBatch) -> Result<Vec<f32>>,
) -> Result<Vec<Vec<f32>>> {
    let (mut readers, mut writers): (Vec<_>, Vec<_>) = links.iter_mut().map(Link::halves).unzip();
    let (Some(last), false) = (readers.pop(), writers.is_empty()) else {
        bail!("one rank has no stages")
    };
    let first = writers.remove(0);
    let count = parts.len();
    thread::scope(|scope| {
        let (sender, computed) = mpsc::channel();
        scope.spawn(move || feed(&computed, first, count));
        let between = readers.into_iter().zip(writers);
        let relays: Vec<ScopedJoinHandle<'_, Result<()>>> =
            between.map(|(from, to)| scope.spawn(move || relay(from, to, count))).collect();
        let collect =
            move || (0..count).map(|_| last.receive_numbers()).collect::<Result<Vec<_>>>();
        let collected = scope.spawn(collect);
        let own: Result<()> = parts.iter().try_for_each(|part| {
            // If it is not sent, who reads from that rank says why.
            let _ = sender.send(compute(part)?);
            Ok(())
        });
        // Tells the next stage if not all are sent.
        drop(sender);
        let relayed = relays.into_iter().map(joined).collect::<Vec<_>>();
        let collected = joined(collected);
        own?;
        // The first in the order of ranks is the one that failed: it made the others fail.
        relayed.into_iter().collect::<Result<()>>()?;
        collected
    })
}

/// Sends `count` results to the first of the other ranks, or that there are not so many.
fn feed(computed: &Receiver<Vec<f32>>, to: &mut Writer, count: usize) {
    for _ in 0..count {
        let sent = match computed.recv() {
            Ok(hidden) => to.send_numbers(&hidden),
            Err(_) => to.send_failure("rank 0 could not compute its stage"),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Passes on what a rank sends, or that it has failed.
fn relay(from: &mut Reader, to: &mut Writer, count: usize) -> Result<()> {
    let mut sends = true;
    for _ in 0..count {
        match from.receive_numbers() {
            // Who reads from that rank says why it takes nothing any more. This one may go on until it is told.
            Ok(hidden) => sends = sends && to.send_numbers(&hidden).is_ok(),
            Err(error) => {
                // It may have ended as well.
                let _ = to.send_failure(&error.to_string());
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Computes a stage other than the first: what comes over the link goes back over it.
pub(super) fn follow(link: &mut Link, local: &Local, parts: Vec<ForwardBatch>) -> Result<()> {
    let (reader, writer) = link.halves();
    thread::scope(|scope| {
        let (inputs, received) = mpsc::channel();
        let (outputs, computed) = mpsc::channel::<Vec<f32>>();
        let count = parts.len();
        scope.spawn(move || receive(reader, &inputs, count));
        let sent = scope
            .spawn(move || computed.iter().try_for_each(|hidden| writer.send_numbers(&hidden)));
        let compute = move |mut part: ForwardBatch| {
            // After an error, which is the last thing received, nothing more is computed.
            let input = received.recv().map_err(candle_core::Error::wrap)??;
            let rows = part.step.input_ids.len();
            let shape = (rows, input.len() / rows.max(1));
            part.previous_hidden =
                Some(PreviousHidden(Tensor::from_vec(input, shape, local.device())?));
            // If it is not sent, the thread that sends says why.
            let _ = outputs.send(states(local.forward(&part, None)?)?);
            Ok(())
        };
        let done: Result<()> = parts.into_iter().try_for_each(compute);
        let sent = joined(sent);
        done?;
        sent
    })
}

fn receive(from: &mut Reader, inputs: &Sender<Result<Vec<f32>>>, count: usize) {
    for _ in 0..count {
        let input = from.receive_numbers();
        let failed = input.is_err();
        if inputs.send(input).is_err() || failed {
            return;
        }
    }
}

/// The hidden states that a stage has computed.
fn states(output: ForwardOutput) -> Result<Vec<f32>> {
    output.hidden.map_or_else(|| Ok(Vec::new()), |hidden| numbers(&hidden))
}

/// The result of a thread; its panic goes on in this one.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Links to ranks that `follow` with their own ends.
    fn links(others: usize, follow: impl Fn(usize, Link) + Clone + Send + 'static) -> Vec<Link> {
        let link = |rank| {
            let (from_leader, to_follower) = std::io::pipe().unwrap();
            let (from_follower, to_leader) = std::io::pipe().unwrap();
            let link = Link::new("rank 0", from_leader, to_leader);
            let follow = follow.clone();
            thread::spawn(move || follow(rank, link));
            Link::new(format!("rank {rank}"), from_follower, to_follower)
        };
        (1..=others).map(link).collect()
    }

    fn parts(count: usize) -> Vec<ForwardBatch> {
        vec![ForwardBatch::default(); count]
    }

    /// Passes on `count` microbatches with one number more.
    fn pass_on(rank: usize, link: &mut Link, count: usize) {
        for _ in 0..count {
            let mut hidden = link.receive_numbers().unwrap();
            hidden.push([0.0, 1.0, 2.0][rank]);
            link.send_numbers(&hidden).unwrap();
        }
    }

    #[test]
    fn microbatches_go_through_all_stages_in_order_and_come_back() {
        // More than pipes hold.
        let large = vec![0.5; 100_000];
        let mut links = links(2, |rank, mut link| pass_on(rank, &mut link, 5));
        let back = lead(&mut links, &parts(5), |_| Ok(large.clone())).unwrap();
        assert_eq!(back, vec![[&large[..], &[1.0, 2.0]].concat(); 5]);
    }

    #[test]
    fn a_stage_computes_while_the_next_one_has_what_it_computed_before() {
        let (began, begins) = mpsc::channel();
        let mut links = links(1, move |rank, mut link| {
            for _ in 0..3 {
                let hidden = link.receive_numbers().unwrap();
                began.send(hidden[0].to_bits()).unwrap();
                link.send_numbers(&hidden).unwrap();
            }
            assert_eq!(rank, 1);
        });
        let index = std::cell::Cell::new(0.0f32);
        let compute = |_: &ForwardBatch| {
            let own = index.replace(index.get() + 1.0);
            if own > 0.0 {
                // What was computed before this has arrived before this is done.
                assert_eq!(begins.recv_timeout(SOON), Ok((own - 1.0).to_bits()));
            }
            Ok(vec![own])
        };
        let back = lead(&mut links, &parts(3), compute).unwrap();
        assert_eq!(back, [[0.0], [1.0], [2.0]]);
    }

    #[test]
    fn a_stage_that_fails_is_named_and_those_behind_it_are_told() {
        let (told, tells) = mpsc::channel();
        let mut links = links(3, move |rank, mut link| match rank {
            1 => pass_on(1, &mut link, 4),
            2 => {
                pass_on(2, &mut link, 1);
                link.send_failure("no memory is left").unwrap();
                // What is sent to it is read all the same.
                while link.receive_numbers().is_ok() {}
            }
            _ => {
                link.receive_numbers().unwrap();
                let error = link.receive_numbers().unwrap_err().to_string();
                link.send_failure(&error).unwrap();
                told.send(error).unwrap();
            }
        });
        let error = lead(&mut links, &parts(4), |_| Ok(vec![1.0])).unwrap_err().to_string();
        assert!(error.starts_with("rank 2 failed: no memory is left"), "{error}");
        let told = tells.recv_timeout(SOON).unwrap();
        assert!(told.contains("rank 2 failed: no memory is left"), "{told}");
    }

    #[test]
    fn a_stage_that_dies_is_missed() {
        for dies in [1, 2] {
            let mut links = links(2, move |rank, mut link| {
                if rank == dies {
                    pass_on(rank, &mut link, 1);
                } else {
                    // As a rank does: it ends when it can't go on.
                    while let Ok(hidden) = link.receive_numbers() {
                        if link.send_numbers(&hidden).is_err() {
                            break;
                        }
                    }
                }
            });
            let error = lead(&mut links, &parts(4), |_| Ok(vec![1.0; 100_000])).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("rank {dies}")), "{error}");
        }
    }

    #[test]
    fn stages_end_when_the_first_one_fails() {
        let (told, tells) = mpsc::channel();
        let mut links = links(2, move |_, mut link| {
            let error = link.receive_numbers().unwrap_err().to_string();
            link.send_failure(&error).unwrap();
            told.send(error).unwrap();
        });
        let fails = |_: &ForwardBatch| -> Result<Vec<f32>> { bail!("out of memory") };
        let error = lead(&mut links, &parts(2), fails).unwrap_err().to_string();
        assert!(error.starts_with("out of memory"), "{error}");
        for _ in 0..2 {
            let told = tells.recv_timeout(SOON).unwrap();
            assert!(told.contains("rank 0 could not compute its stage"), "{told}");
        }
    }
}
