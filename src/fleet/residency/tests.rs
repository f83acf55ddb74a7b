//! Models come and go in turns, and no request is lost.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{Action, Arrival, Bounds, Id, Residency, Stage, Stay, Terms};

const MINIMUM: Duration = Duration::from_secs(5);

fn terms(need: u64) -> Terms {
    Terms { need, pinned: false, ttl: None }
}

/// A clock and models of these sizes in a memory of 10.
struct World {
    residency: Residency,
    now: Instant,
}

impl World {
    fn new(needs: &[u64], models: usize) -> Self {
        let now = Instant::now();
        let bounds = Bounds { memory: 10, models, minimum: MINIMUM };
        let mut residency = Residency::new(bounds);
        for need in needs {
            residency.add(terms(*need), now);
        }
        Self { residency, now }
    }

    fn arrive(&mut self, id: Id) -> Arrival {
        self.residency.arrive(id, self.now)
    }

    fn next(&mut self) -> Vec<Action> {
        self.residency.next(self.now).0
    }

    /// Loads a model that is asked for; its request runs then.
    fn load(&mut self, id: Id) {
        assert_eq!(self.arrive(id), Arrival::Waits);
        assert_eq!(self.next(), [Action::Load(id)]);
        self.residency.ready(id, self.now);
        assert_eq!(self.next(), [Action::Admit(id)]);
    }

    fn end(&mut self, id: Id) {
        self.residency.end(id, None, self.now);
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

#[test]
fn the_model_that_was_used_longest_ago_goes_first() {
    let mut world = World::new(&[4, 4, 4], 0);
    for id in [0, 1] {
        world.load(id);
        world.pass(1);
        world.end(id);
    }
    world.pass(9);
    // The first is used again.
    assert_eq!(world.arrive(0), Arrival::Runs);
    world.end(0);
    world.pass(1);
    assert_eq!(world.arrive(2), Arrival::Waits);
    assert_eq!(world.next(), [Action::Unload(1)]);
    assert_eq!(world.next(), []);
    world.residency.left(1);
    assert_eq!(world.next(), [Action::Load(2)]);
    assert_eq!(world.residency.stage(0), Stage::Ready);
}

#[test]
fn two_models_that_are_both_busy_take_turns() {
    let mut world = World::new(&[6, 6], 0);
    world.load(0);
    assert_eq!(world.arrive(1), Arrival::Waits);
    // Not before its time, and then not before what runs has ended.
    let (actions, alarm) = world.residency.next(world.now);
    assert_eq!((actions, alarm), (vec![], Some(world.now + MINIMUM)));
    assert_eq!(world.arrive(0), Arrival::Runs);
    world.pass(5);
    assert_eq!(world.next(), []);
    assert_eq!(world.arrive(0), Arrival::Waits);
    world.end(0);
    assert_eq!(world.next(), []);
    world.end(0);
    assert_eq!(world.next(), [Action::Unload(0)]);
    world.residency.left(0);
    assert_eq!(world.next(), [Action::Load(1)]);
    world.residency.ready(1, world.now);
    assert_eq!(world.next(), [Action::Admit(1)]);
    // The one that waits now has its turn after as long a time.
    assert_eq!(world.next(), []);
    world.pass(5);
    assert_eq!(world.next(), []);
    world.end(1);
    assert_eq!(world.next(), [Action::Unload(1)]);
    world.residency.left(1);
    assert_eq!(world.next(), [Action::Load(0)]);
}

#[test]
fn a_model_whose_rival_gave_up_stays() {
    let mut world = World::new(&[6, 6], 0);
    world.load(0);
    world.pass(9);
    assert_eq!(world.arrive(1), Arrival::Waits);
    assert_eq!(world.next(), []);
    assert_eq!(world.arrive(0), Arrival::Waits);
    world.residency.give_up(1);
    assert_eq!(world.next(), [Action::Admit(0)]);
    world.end(0);
    world.end(0);
    world.pass(1);
    assert_eq!(world.next(), []);
    assert_eq!(world.residency.stage(0), Stage::Ready);
}

#[test]
fn failures_are_told_and_starts_come_later_each_time() {
    let mut world = World::new(&[6], 0);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(world.arrive(0), Arrival::Waits);
        assert_eq!(world.next(), [Action::Load(0)]);
        let pause = world.residency.failed(0, world.now);
        assert_eq!(world.arrive(0), Arrival::Paused(pause));
        world.now += pause;
        pauses.push(pause.as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    world.residency.failed(0, world.now);
    world.residency.forgive(0);
    world.load(0);
}

#[test]
fn pinned_models_stay_and_bound_what_can_be_loaded() {
    let mut world = World::new(&[6, 5, 4], 0);
    assert_eq!(world.arrive(0), Arrival::Waits);
    world.residency.give_up(0);
    world.residency.change(0, Terms { pinned: true, ttl: Some(MINIMUM), ..terms(6) });
    world.load(0);
    world.end(0);
    world.pass(60);
    assert_eq!(world.next(), []);
    assert_eq!(world.arrive(1), Arrival::TooLarge(4));
    world.load(2);
    assert_eq!(world.residency.taken(), 10);
}

#[test]
fn a_model_goes_when_its_time_without_requests_is_over() {
    let mut world = World::new(&[6], 0);
    world.residency.change(0, Terms { ttl: Some(Duration::from_secs(30)), ..terms(6) });
    world.load(0);
    world.pass(60);
    assert_eq!(world.next(), []);
    world.end(0);
    let (actions, alarm) = world.residency.next(world.now);
    assert_eq!((actions, alarm), (vec![], Some(world.now + Duration::from_secs(30))));
    // A request may ask for another time: for ever, or not at all.
    assert_eq!(world.arrive(0), Arrival::Runs);
    world.residency.end(0, Some(Stay::Always), world.now);
    assert_eq!(world.residency.next(world.now), (vec![], None));
    assert_eq!(world.arrive(0), Arrival::Runs);
    world.residency.end(0, Some(Stay::For(Duration::ZERO)), world.now);
    assert_eq!(world.next(), [Action::Unload(0)]);
}

#[test]
fn a_dismissed_model_ends_its_requests_and_comes_back_when_asked_for() {
    let mut world = World::new(&[6], 0);
    world.load(0);
    world.residency.dismiss(0);
    assert_eq!(world.next(), []);
    assert_eq!(world.arrive(0), Arrival::Waits);
    world.end(0);
    assert_eq!(world.next(), [Action::Unload(0)]);
    world.residency.left(0);
    assert_eq!(world.next(), [Action::Load(0)]);
}

#[test]
fn the_number_of_models_is_bounded() {
    let mut world = World::new(&[1, 1, 1], 2);
    for id in [0, 1] {
        world.load(id);
        world.end(id);
    }
    world.pass(1);
    assert_eq!(world.arrive(2), Arrival::Waits);
    assert_eq!(world.next(), [Action::Unload(0)]);
}

/// What can happen to some models.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(Id),
    End(Id),
    GiveUp(Id),
    Ready(Id),
    Left(Id),
    Fail(Id),
    Dismiss(Id),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let id = || 0..4_usize;
    prop_oneof![
        4 => id().prop_map(Event::Arrive),
        4 => id().prop_map(Event::End),
        1 => id().prop_map(Event::GiveUp),
        4 => id().prop_map(Event::Ready),
        4 => id().prop_map(Event::Left),
        1 => id().prop_map(Event::Fail),
        1 => id().prop_map(Event::Dismiss),
        2 => (0..7_u64).prop_map(Event::Pass),
    ]
}

/// What an outside observer counts.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    running: usize,
    waiting: usize,
    loading: bool,
    ready: bool,
    leaving: bool,
}

fn obey(seen: &mut [Seen; 4], actions: Vec<Action>) {
    for action in actions {
        match action {
            Action::Load(id) => seen[id].loading = true,
            Action::Unload(id) => {
                assert_eq!(seen[id].running, 0, "nobody's request is cut");
                (seen[id].ready, seen[id].leaving) = (false, true);
            }
            Action::Admit(id) => {
                assert!(seen[id].ready);
                seen[id].running += std::mem::take(&mut seen[id].waiting);
            }
        }
    }
}

proptest! {
    /// Whatever happens, the bounds hold, no request is cut, and all are answered in the end.
    #[test]
    fn bounds_hold_and_everybody_is_served(events in proptest::collection::vec(event(), 0..200)) {
        let needs = [6, 5, 4, 2];
        let mut world = World::new(&needs, 3);
        let mut seen = [Seen::default(); 4];
        for event in events {
            match event {
                Event::Arrive(id) => match world.arrive(id) {
                    Arrival::Runs => seen[id].running += 1,
                    Arrival::Waits => seen[id].waiting += 1,
                    Arrival::Paused(_) | Arrival::TooLarge(_) => {}
                },
                Event::End(id) if seen[id].running > 0 => {
                    seen[id].running -= 1;
                    world.end(id);
                }
                Event::GiveUp(id) if seen[id].waiting > 0 => {
                    seen[id].waiting -= 1;
                    world.residency.give_up(id);
                }
                Event::Ready(id) if seen[id].loading => {
                    (seen[id].loading, seen[id].ready) = (false, true);
                    world.residency.ready(id, world.now);
                }
                Event::Left(id) if seen[id].leaving => {
                    seen[id].leaving = false;
                    world.residency.left(id);
                }
                Event::Fail(id) if seen[id].loading || seen[id].ready => {
                    seen[id] = Seen::default();
                    world.residency.failed(id, world.now);
                }
                Event::Dismiss(id) => world.residency.dismiss(id),
                Event::Pass(seconds) => world.pass(seconds),
                _ => {}
            }
            let actions = world.next();
            obey(&mut seen, actions);
            let present = |seen: &Seen| seen.loading || seen.ready || seen.leaving;
            let taken: u64 = (0..4).filter(|id| present(&seen[*id])).map(|id| needs[id]).sum();
            prop_assert!(taken <= 10);
            prop_assert!(seen.iter().filter(|seen| present(seen)).count() <= 3);
        }
        // From here on everything that was begun ends.
        for _ in 0..40 {
            for (id, seen) in seen.iter_mut().enumerate() {
                if seen.loading {
                    (seen.loading, seen.ready) = (false, true);
                    world.residency.ready(id, world.now);
                }
                if seen.leaving {
                    seen.leaving = false;
                    world.residency.left(id);
                }
                (0..std::mem::take(&mut seen.running)).for_each(|_| world.end(id));
            }
            let actions = world.next();
            obey(&mut seen, actions);
            world.pass(6);
        }
        prop_assert!(seen.iter().all(|seen| seen.waiting == 0 && seen.running == 0), "{:?}", seen);
    }
}
