//! Who is in memory: which model is loaded next, and which has to go for it.
//!
//! A state machine over plain numbers and a clock that the caller reads; knows no process, no socket and
//! no task.
//!
//! Requests for a model that isn't loaded wait in one queue, in which each model stands once, in the order
//! of its first waiting request. For the first in the queue room is made:
//!
//! 1. models without requests go, the one that was used last the longest time ago first;
//! 2. models with requests are closed, once they have been there for their minimum time: what runs ends,
//!    what comes later waits in the queue like everybody else, behind the model that they make room for.
//!
//! So two models that don't fit together take turns of at least that minimum while both are asked for,
//! and every request is answered in one of them. Nobody's requests are cut, and nobody waits for ever
//! behind a model that is never idle.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of a model.
pub(super) type Id = usize;

/// How long a model without requests is still taken for one in use: clients that ask one question after
/// the other leave such gaps.
const GRACE: Duration = Duration::from_millis(200);
/// The pause after a failed start, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Where a model is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only on disk.
    Absent,
    /// Its process has been started.
    Loading,
    /// It answers requests.
    Ready,
    /// Its process has been told to end.
    Leaving,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It may go to the model's process; [`Residency::end`] follows.
    Runs,
    /// It waits until [`Action::Admit`], a failure, or until it gives up: [`Residency::give_up`].
    Waits,
    /// The model's last start failed; the next one is that far away.
    Paused(Duration),
    /// There can never be room: so many bytes are left for it.
    TooLarge(u64),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Start the model's process.
    Load(Id),
    /// End it: no request is left there.
    Unload(Id),
    /// Everybody who waits for the model may go to it.
    Admit(Id),
}

/// The bounds that all models share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bytes that loaded models may take together.
    pub(super) memory: u64,
    /// Most models at once; 0 is any number.
    pub(super) models: usize,
    /// How long a model that is asked for stays before it must make room.
    pub(super) minimum: Duration,
}

/// What is fixed for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Bytes that it takes when loaded.
    pub(super) need: u64,
    /// Whether it never has to go.
    pub(super) pinned: bool,
    /// How long it stays without requests; `None` is for ever.
    pub(super) ttl: Option<Duration>,
}

/// How long a model stays without further requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    Always,
    For(Duration),
}

#[derive(Clone, Debug)]
struct Place {
    terms: Terms,
    stage: Stage,
    running: usize,
    waiting: usize,
    /// Since when it is ready.
    since: Instant,
    /// When its last request came or ended.
    used: Instant,
    /// Closed to new requests, which wait for their next turn.
    closed: bool,
    /// Asked to go, whoever wants its room.
    dismissed: bool,
    /// Closed because its time without requests is over.
    expired: bool,
    /// How long it stays without requests, as the last request said.
    ttl: Option<Duration>,
    failures: u32,
    /// No start before.
    paused_until: Option<Instant>,
}

/// All models.
#[derive(Clone, Debug)]
pub(super) struct Residency {
    bounds: Bounds,
    places: Vec<Option<Place>>,
    queue: VecDeque<Id>,
}

impl Residency {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, places: Vec::new(), queue: VecDeque::new() }
    }

    /// A further model; ids count up from zero.
    pub(super) fn add(&mut self, terms: Terms, now: Instant) -> Id {
        self.places.push(Some(Place {
            terms,
            stage: Stage::Absent,
            running: 0,
            waiting: 0,
            since: now,
            used: now,
            closed: false,
            dismissed: false,
            expired: false,
            ttl: terms.ttl,
            failures: 0,
            paused_until: None,
        }));
        self.places.len() - 1
    }

    /// Forgets an absent model.
    pub(super) fn remove(&mut self, id: Id) {
        self.queue.retain(|waiting| *waiting != id);
        self.places[id] = None;
    }

    /// Changes what is fixed for a model, from its next load on where that matters.
    pub(super) fn change(&mut self, id: Id, terms: Terms) {
        let place = self.place(id);
        place.terms = terms;
        place.ttl = terms.ttl;
    }

    pub(super) fn stage(&self, id: Id) -> Stage {
        self.get(id).map_or(Stage::Absent, |place| place.stage)
    }

    /// Requests that run and that wait.
    pub(super) fn requests(&self, id: Id) -> [usize; 2] {
        self.get(id).map_or([0; 2], |place| [place.running, place.waiting])
    }

    /// Bytes that are taken.
    pub(super) fn taken(&self) -> u64 {
        self.present().map(|place| place.terms.need).sum()
    }

    /// When the model goes if nobody asks for it: `None` is never.
    pub(super) fn expires(&self, id: Id) -> Option<Instant> {
        let place = self.get(id).filter(|place| place.stage == Stage::Ready)?;
        Some(place.used + place.ttl.filter(|_| !place.terms.pinned)?)
    }

    /// Whether the model goes because nobody has asked for it in its time.
    pub(super) fn has_expired(&self, id: Id) -> bool {
        self.get(id).is_some_and(|place| place.expired)
    }

    /// Forgets failures: somebody asks for the model by its name.
    pub(super) fn forgive(&mut self, id: Id) {
        self.place(id).paused_until = None;
    }

    /// A request for a model, or the wish that it be loaded.
    pub(super) fn arrive(&mut self, id: Id, now: Instant) -> Arrival {
        let most = self.most_for(id);
        let queue = &mut self.queue;
        let place = self.places[id].as_mut().expect("ids are those of models that are there");
        if place.stage == Stage::Ready && !place.closed {
            place.running += 1;
            place.used = now;
            return Arrival::Runs;
        }
        if place.stage == Stage::Absent {
            if let Some(until) = place.paused_until.filter(|until| *until > now) {
                return Arrival::Paused(until - now);
            }
            if place.terms.need > most {
                return Arrival::TooLarge(most);
            }
        }
        place.waiting += 1;
        if place.stage != Stage::Loading && !queue.contains(&id) {
            queue.push_back(id);
        }
        Arrival::Waits
    }

    /// Bytes that a model can have at most: all but those of pinned ones.
    fn most_for(&self, id: Id) -> u64 {
        let others = self.places.iter().enumerate().filter(|(other, _)| *other != id);
        let pinned = others.filter_map(|(_, place)| place.as_ref());
        let pinned = pinned.filter(|place| place.terms.pinned);
        self.bounds.memory.saturating_sub(pinned.map(|place| place.terms.need).sum())
    }

    /// A request that waited is gone.
    pub(super) fn give_up(&mut self, id: Id) {
        let place = self.place(id);
        place.waiting = place.waiting.saturating_sub(1);
        if place.waiting == 0 {
            self.queue.retain(|waiting| *waiting != id);
        }
    }

    /// A request that ran has ended; `ttl` is how long the model is to stay from now on, if it said so.
    pub(super) fn end(&mut self, id: Id, ttl: Option<Stay>, now: Instant) {
        let Some(place) = self.places[id].as_mut() else { return };
        place.running = place.running.saturating_sub(1);
        place.used = now;
        match ttl {
            Some(Stay::For(ttl)) => place.ttl = Some(ttl),
            Some(Stay::Always) => place.ttl = None,
            None => {}
        }
    }

    /// The model is to go once its requests have ended.
    pub(super) fn dismiss(&mut self, id: Id) {
        let place = self.place(id);
        place.dismissed = matches!(place.stage, Stage::Ready | Stage::Loading);
    }

    /// The process of a model is ready. [`Action::Admit`] follows.
    pub(super) fn ready(&mut self, id: Id, now: Instant) {
        let place = self.place(id);
        (place.stage, place.closed, place.failures) = (Stage::Ready, false, 0);
        (place.since, place.used) = (now, now);
        place.ttl = place.terms.ttl;
    }

    /// The process has ended as it was told to. Who waits for the model goes on to wait.
    pub(super) fn left(&mut self, id: Id) {
        let place = self.place(id);
        (place.stage, place.closed, place.dismissed) = (Stage::Absent, false, false);
        if place.waiting > 0 && !self.queue.contains(&id) {
            self.queue.push_back(id);
        }
    }

    /// The process has ended by itself, or could not be started. Its requests have ended with it, and who
    /// waits for the model is told so. The result is the pause before the next start.
    pub(super) fn failed(&mut self, id: Id, now: Instant) -> Duration {
        self.left(id);
        self.queue.retain(|waiting| *waiting != id);
        let place = self.place(id);
        (place.waiting, place.running) = (0, 0);
        let pause = FIRST_PAUSE.saturating_mul(1 << place.failures.min(6)).min(LONGEST_PAUSE);
        place.failures += 1;
        place.paused_until = Some(now + pause);
        pause
    }

    /// What is to be done now, and when to ask again if nothing happens before.
    pub(super) fn next(&mut self, now: Instant) -> (Vec<Action>, Option<Instant>) {
        let mut actions = Vec::new();
        let mut alarm = Alarm::default();
        self.reopen();
        self.dismiss_old(now, &mut alarm);
        let waiting: Vec<Id> = self.queue.iter().copied().collect();
        for id in waiting {
            let place = self.get(id).expect("the queue has models that are there");
            if place.stage != Stage::Absent {
                continue;
            }
            if self.fits(place.terms.need) {
                self.queue.retain(|waiting| *waiting != id);
                self.place(id).stage = Stage::Loading;
                actions.push(Action::Load(id));
                continue;
            }
            self.make_room(id, now, &mut alarm);
            // Whoever is behind waits: else something large would never find room.
            break;
        }
        for id in 0..self.places.len() {
            let Some(place) = self.places[id].as_mut() else { continue };
            if place.stage != Stage::Ready {
                continue;
            }
            if place.closed && place.running == 0 {
                place.stage = Stage::Leaving;
                actions.push(Action::Unload(id));
            } else if !place.closed && place.waiting > 0 {
                place.running += std::mem::take(&mut place.waiting);
                place.used = now;
                self.queue.retain(|waiting| *waiting != id);
                actions.push(Action::Admit(id));
            }
        }
        (actions, alarm.0)
    }

    /// Opens what was closed for somebody who may have gone; who is to go is found anew each time.
    fn reopen(&mut self) {
        for place in self.places.iter_mut().flatten() {
            place.closed = place.dismissed && place.stage == Stage::Ready;
            place.expired &= place.stage == Stage::Leaving;
        }
    }

    /// Dismisses models that nobody has asked for in their time.
    fn dismiss_old(&mut self, now: Instant, alarm: &mut Alarm) {
        for id in 0..self.places.len() {
            let Some(expires) = self.expires(id) else { continue };
            let place = self.place(id);
            if place.running > 0 || place.waiting > 0 || place.closed {
                continue;
            }
            if expires <= now {
                (place.closed, place.expired) = (true, true);
            } else {
                alarm.at(expires);
            }
        }
    }

    /// Closes models so that `id` fits once they have gone.
    fn make_room(&mut self, id: Id, now: Instant, alarm: &mut Alarm) {
        let need = self.get(id).map_or(0, |place| place.terms.need);
        let coming = |place: &Place| {
            place.stage == Stage::Leaving || (place.stage == Stage::Ready && place.closed)
        };
        let mut staying: Vec<(bool, Instant, Id)> = Vec::new();
        let (mut bytes, mut count) = (0, 0);
        for (other, place) in self.places.iter().enumerate() {
            let Some(place) = place.as_ref().filter(|place| place.stage != Stage::Absent) else {
                continue;
            };
            if coming(place) {
                continue;
            }
            bytes += place.terms.need;
            count += 1;
            if place.stage == Stage::Ready && !place.terms.pinned {
                let busy = place.running > 0 || place.waiting > 0;
                let since = if busy { place.since } else { place.used };
                staying.push((busy, since, other));
            }
        }
        staying.sort_unstable();
        for (busy, since, other) in staying {
            if self.is_room(need, bytes, count) {
                return;
            }
            let place = self.place(other);
            let stays = place.since + self.bounds.minimum;
            let until = if busy { stays } else { stays.min(since + GRACE) };
            let place = self.place(other);
            if until > now {
                alarm.at(until);
                continue;
            }
            place.closed = true;
            bytes -= place.terms.need;
            count -= 1;
        }
    }

    fn fits(&self, need: u64) -> bool {
        self.is_room(need, self.taken(), self.present().count())
    }

    fn is_room(&self, need: u64, bytes: u64, count: usize) -> bool {
        let Bounds { memory, models, .. } = self.bounds;
        need.saturating_add(bytes) <= memory && (models == 0 || count < models)
    }

    fn present(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().flatten().filter(|place| place.stage != Stage::Absent)
    }

    fn get(&self, id: Id) -> Option<&Place> {
        self.places.get(id)?.as_ref()
    }

    fn place(&mut self, id: Id) -> &mut Place {
        self.places[id].as_mut().expect("ids are those of models that are there")
    }
}

/// The earliest of several times.
#[derive(Clone, Copy, Debug, Default)]
struct Alarm(Option<Instant>);

impl Alarm {
    fn at(&mut self, time: Instant) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }
}

#[cfg(test)]
mod tests;
