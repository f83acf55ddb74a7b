//! What sequences see and hear. A picture or a sound is encoded once, before the sequence that it belongs to
//! may run, and in slices, so that streams don't wait for an encoder. What was encoded is kept as long as it
//! fits. Words are those of pictures, which were first: what is said of a look is meant of sounds, too.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use candle_core::{Result, Tensor, bail};

use crate::pictures::picture::{Picture, PlacedPicture};
use crate::runner::{MediaLook, Runner};
use crate::scheduler::Scheduler;
use crate::scheduler::output::{MediaSpan, SchedulerOutput};
use crate::scheduler::sequence::{Sequence, SequenceId};
use crate::sounds::sound::{PlacedSound, Sound};

/// Most bytes of features that are kept beside those of the running step.
const MOST_BYTES: usize = 256 << 20;

type Digest = [u8; 16];

/// What an encoder turns into features.
#[derive(Clone)]
enum Medium {
    Picture(Arc<Picture>),
    Sound(Arc<Sound>),
}

/// The pictures and sounds of all sequences, and what was seen in them.
#[derive(Default)]
pub(super) struct Sights {
    known: HashMap<Digest, Medium>,
    seen: Seen,
    /// Sequences whose pictures are not all seen yet, in the order in which they are served: by
    /// priority, then by arrival.
    waiting: BTreeMap<(i32, u64), Waiting>,
    arrivals: u64,
    /// The look that is being taken.
    look: Option<(Digest, MediaLook)>,
}

/// A sequence that can't run yet.
struct Waiting {
    sequence: Sequence,
    /// How many of its pictures were seen.
    seen: usize,
}

/// The features of pictures that were seen, the least recently used go first.
#[derive(Default)]
struct Seen {
    features: HashMap<Digest, (Tensor, u64)>,
    bytes: usize,
    clock: u64,
}

/// What became of sequences that waited.
#[derive(Default)]
pub(super) struct Looked {
    /// All of its pictures were seen.
    pub(super) ready: Vec<Sequence>,
    /// A picture could not be looked at.
    pub(super) failed: Option<(SequenceId, String)>,
}

impl Sights {
    /// Stores the pictures and sounds of a sequence that is about to be added; returns where they are.
    pub(super) fn take(
        &mut self,
        pictures: Vec<PlacedPicture>,
        sounds: Vec<PlacedSound>,
    ) -> Arc<[MediaSpan]> {
        let seen = pictures.into_iter().map(|PlacedPicture { offset, picture, part }| {
            let (digest, two_way) = (picture.digest(), picture.is_two_way());
            let all = 0..picture.num_tokens();
            let [rows, columns] = if part == all { picture.grid() } else { [1, part.len()] };
            self.known.insert(digest, Medium::Picture(picture));
            MediaSpan { offset, rows, columns, digest, first: part.start, two_way }
        });
        let mut spans: Vec<MediaSpan> = seen.collect();
        spans.extend(sounds.into_iter().map(|PlacedSound { offset, sound }| {
            let (digest, tokens) = (sound.digest(), sound.num_tokens());
            self.known.insert(digest, Medium::Sound(sound));
            MediaSpan::whole(offset, [1, tokens], digest)
        }));
        spans.sort_unstable_by_key(|span| span.offset);
        spans.into()
    }

    /// Has a sequence wait until its pictures are seen.
    pub(super) fn hold(&mut self, sequence: Sequence) {
        self.arrivals += 1;
        self.waiting.insert((sequence.priority, self.arrivals), Waiting { sequence, seen: 0 });
    }

    /// Sequences that wait.
    pub(super) fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets a sequence that waits.
    pub(super) fn remove(&mut self, id: SequenceId) {
        self.waiting.retain(|_, waiting| waiting.sequence.id != id);
    }

    /// Forgets the sequence whose picture is looked at.
    pub(super) fn drop_first(&mut self) -> Option<SequenceId> {
        self.look = None;
        self.waiting.pop_first().map(|(_, waiting)| waiting.sequence.id)
    }

    /// Looks at the next pictures until `deadline`, at one layer of a tower at least.
    pub(super) fn look(&mut self, runner: &Runner, deadline: Instant) -> Looked {
        let mut looked = Looked::default();
        while let Some((rank, waiting)) = self.waiting.iter_mut().next().map(|(r, w)| (*r, w)) {
            let Some(span) = waiting.sequence.media().get(waiting.seen) else {
                looked.ready.extend(self.waiting.remove(&rank).map(|waiting| waiting.sequence));
                continue;
            };
            if self.seen.get(span.digest).is_some() {
                waiting.seen += 1;
                continue;
            }
            let (id, digest) = (waiting.sequence.id, span.digest);
            match self.look_on(runner, digest) {
                Ok(Some(features)) => self.seen.insert(digest, features),
                Ok(None) => {}
                Err(error) => {
                    self.look = None;
                    self.waiting.remove(&rank);
                    looked.failed = Some((id, error.to_string()));
                    return looked;
                }
            }
            if Instant::now() >= deadline {
                return looked;
            }
        }
        looked
    }

    /// Goes on to look at a picture; another look that was being taken is dropped.
    fn look_on(&mut self, runner: &Runner, digest: Digest) -> Result<Option<Tensor>> {
        let mut look = match self.look.take() {
            Some((other, look)) if other == digest => look,
            _ => self.begin(runner, digest)?,
        };
        let features = runner.look_on(&mut look)?;
        if features.is_none() {
            self.look = Some((digest, look));
        }
        Ok(features)
    }

    /// The features of all pictures that a step needs. Those that went, since a sequence was preempted,
    /// are looked at again.
    pub(super) fn features(
        &mut self,
        runner: &Runner,
        scheduler: &Scheduler,
        output: &SchedulerOutput,
    ) -> Result<HashMap<Digest, Tensor>> {
        let mut features = HashMap::new();
        for planned in scheduler.plan(output).filter(|planned| !planned.media.is_empty()) {
            let start = planned.first_position;
            let end = start + planned.token_ids.len();
            let inside = |span: &&MediaSpan| span.offset < end && start < span.end();
            for span in planned.media.iter().filter(inside) {
                let known = features.get(&span.digest).cloned().or(self.seen.get(span.digest));
                let seen = match known {
                    Some(seen) => seen,
                    None => self.look_again(runner, span.digest)?,
                };
                features.insert(span.digest, seen);
            }
        }
        Ok(features)
    }

    fn look_again(&mut self, runner: &Runner, digest: Digest) -> Result<Tensor> {
        let mut look = self.begin(runner, digest)?;
        loop {
            if let Some(features) = runner.look_on(&mut look)? {
                self.seen.insert(digest, features.clone());
                return Ok(features);
            }
        }
    }

    fn begin(&self, runner: &Runner, digest: Digest) -> Result<MediaLook> {
        match self.known.get(&digest) {
            Some(Medium::Picture(picture)) => runner.look(picture),
            Some(Medium::Sound(sound)) => runner.hear(Arc::clone(sound)),
            None => bail!("a picture or a sound of a sequence is not known"),
        }
    }

    /// Forgets pictures that no sequence has. What was seen in them stays as long as it fits.
    pub(super) fn forget(&mut self, scheduler: &Scheduler) {
        if self.known.is_empty() {
            return;
        }
        let mut used = scheduler.media();
        let waiting = self.waiting.values().flat_map(|waiting| waiting.sequence.media());
        used.extend(waiting.map(|span| span.digest));
        self.known.retain(|digest, _| used.contains(digest));
        if self.look.as_ref().is_some_and(|(digest, _)| !used.contains(digest)) {
            self.look = None;
        }
    }
}

impl Seen {
    fn get(&mut self, digest: Digest) -> Option<Tensor> {
        self.clock += 1;
        let (features, used) = self.features.get_mut(&digest)?;
        *used = self.clock;
        Some(features.clone())
    }

    fn insert(&mut self, digest: Digest, features: Tensor) {
        self.clock += 1;
        self.bytes += bytes(&features);
        if let Some((before, _)) = self.features.insert(digest, (features, self.clock)) {
            self.bytes -= bytes(&before);
        }
        // The last one stays, however large it is: the sequence that waits for it is next.
        while self.bytes > MOST_BYTES && self.features.len() > 1 {
            let oldest = self.features.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(digest, _)| *digest) else { return };
            if let Some((features, _)) = self.features.remove(&oldest) {
                self.bytes -= bytes(&features);
            }
        }
    }
}

fn bytes(features: &Tensor) -> usize {
    features.elem_count() * features.dtype().size_in_bytes()
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;

    #[test]
    fn what_was_seen_last_stays() {
        let features = |mebibytes: usize| {
            Tensor::zeros((mebibytes, 1 << 18), DType::F32, &Device::Cpu).unwrap()
        };
        let mut seen = Seen::default();
        for digest in 0..4 {
            seen.insert([digest; 16], features(64));
        }
        assert!(seen.get([0; 16]).is_some());
        seen.insert([4; 16], features(64));
        let kept = (0..5).filter(|digest| seen.features.contains_key(&[*digest; 16]));
        assert_eq!(kept.collect::<Vec<_>>(), [0, 2, 3, 4]);
        seen.insert([5; 16], features(300));
        assert_eq!(seen.features.len(), 1);
        assert_eq!(seen.bytes, 300 << 20);
    }
}
