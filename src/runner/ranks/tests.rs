//! Sums over pipes, and what is left when a rank fails.

use std::borrow::Cow;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor, bail};

use super::order::Order;
use super::*;
use crate::layers::forward::ForwardBatch;
use crate::layers::group::Group;

/// A leader and its followers, of which each is driven by `follow` on a thread of its own.
fn group(size: usize, follow: impl Fn(Arc<Follower>) + Send + Sync + 'static) -> Leader {
    let follow = Arc::new(follow);
    let link = |rank| {
        let (from_leader, to_follower) = std::io::pipe().unwrap();
        let (from_follower, to_leader) = std::io::pipe().unwrap();
        let link = Link::new("rank 0", from_leader, to_leader);
        let (follower, follow) = (Arc::new(Follower::new(link, rank, size)), follow.clone());
        std::thread::spawn(move || follow(follower));
        Link::new(format!("rank {rank}"), from_follower, to_follower)
    };
    Leader::new((1..size).map(link).collect())
}

fn matrix(rows: usize, columns: usize, first: f32) -> Tensor {
    let count = u32::try_from(rows * columns).unwrap();
    let numbers = Tensor::arange(0, count, &Device::Cpu).unwrap();
    let numbers = numbers.to_dtype(DType::F32).unwrap().affine(1.0, f64::from(first)).unwrap();
    numbers.reshape((rows, columns)).unwrap()
}

fn numbers(x: &Tensor) -> Vec<f32> {
    x.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn sums_are_those_in_the_order_of_ranks_and_columns_stand_side_by_side() {
    // Sums of these depend on their order in the last bits.
    let own = |rank: usize| matrix(37, 501, [1e8, 0.3, -1e8][rank]);
    let leader = group(3, move |follower| {
        let sum = follower.all_reduce(own(follower.rank())).unwrap();
        follower.gather(sum.narrow(1, 0, follower.rank()).unwrap().contiguous().unwrap()).unwrap();
    });
    let sum = leader.all_reduce(own(0)).unwrap();
    let expected = ((own(0) + own(1)).unwrap() + own(2)).unwrap();
    assert_eq!(numbers(&sum), numbers(&expected));
    let all = leader.gather(sum.narrow(1, 0, 2).unwrap()).unwrap();
    assert_eq!(all.dims(), [37, 5]);
    let first = numbers(&all.narrow(0, 5, 1).unwrap());
    let row = numbers(&sum.narrow(0, 5, 1).unwrap());
    assert_eq!(first, [row[0], row[1], row[0], row[0], row[1]]);
}

#[test]
fn a_rank_that_fails_says_why_and_breaks_the_group() {
    let leader = group(2, |follower| follower.fail("no memory is left").unwrap());
    let order = Order::Copy { blocks: Vec::new(), states: Vec::new() };
    assert!(!leader.is_broken());
    let step = || -> Result<Tensor> { leader.all_reduce(matrix(1, 1, 0.0)) };
    let error = leader.order(&order, step).unwrap_err().to_string();
    assert!(error.contains("rank 1 failed: no memory is left"), "{error}");
    assert!(leader.is_broken());
    let error = leader.order(&order, || Ok(())).unwrap_err().to_string();
    assert!(error.contains("lost each other"), "{error}");
}

#[test]
fn a_rank_that_failed_before_an_order_says_why() {
    let (ended, wait) = std::sync::mpsc::channel();
    let leader = group(2, move |follower| {
        follower.fail("no memory is left").unwrap();
        drop(follower);
        ended.send(()).unwrap();
    });
    wait.recv().unwrap();
    let order = Order::Copy { blocks: Vec::new(), states: Vec::new() };
    let error = leader.order(&order, || Ok(())).unwrap_err().to_string();
    assert!(error.contains("rank 1 failed: no memory is left"), "{error}");
}

#[test]
fn a_rank_that_ends_while_it_loads_is_named() {
    let error = group(3, drop).wait_for_all().unwrap_err().to_string();
    assert!(error.contains("rank 1 ended"), "{error}");
}

#[test]
fn a_rank_that_dies_while_nothing_is_computed_is_missed() {
    let (die, dies) = std::sync::mpsc::channel::<()>();
    let dies = std::sync::Mutex::new(dies);
    let leader = Arc::new(group(2, move |follower| {
        // Answers once, as one that follows does.
        follower.answer_once().unwrap();
        dies.lock().unwrap().recv().unwrap();
    }));
    let (missed, is_missed) = std::sync::mpsc::channel();
    leader.watch(move || missed.send(()).unwrap()).unwrap();
    assert!(!leader.is_broken());
    die.send(()).unwrap();
    is_missed.recv().unwrap();
    assert!(leader.is_broken());
}

#[test]
fn a_step_that_fails_here_leaves_the_group_broken() {
    let leader = group(2, |follower| drop(follower.all_reduce(matrix(1, 1, 0.0))));
    let order = Order::Forward(Box::new(Cow::Owned(ForwardBatch::default())));
    let fails = || -> Result<()> { bail!("out of memory") };
    assert!(leader.order(&order, fails).is_err());
    assert!(leader.is_broken());
}

#[test]
fn numbers_that_do_not_fit_are_an_error() {
    let leader = group(2, |follower| drop(follower.all_reduce(matrix(2, 2, 0.0))));
    let error = leader.all_reduce(matrix(2, 3, 0.0)).unwrap_err().to_string();
    assert!(error.contains("4 numbers to add to 6"), "{error}");
}
