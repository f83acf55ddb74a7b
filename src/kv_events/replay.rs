//! Batches that subscribers missed: the last ones are kept, and sent to who asks for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use zeromq::{RouterRecvHalf, RouterSendHalf, RouterSocket, SocketRecv, SocketSend, ZmqMessage};

/// Follows the last batch of a replay, in place of a sequence number.
const END: i64 = -1;
/// Longest time that a client may take to accept a message before its replay is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last batches, with their sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    batches: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
    most: usize,
}

impl Kept {
    /// Room for so many batches.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    fn batches(&self) -> MutexGuard<'_, VecDeque<(u64, Bytes)>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a batch, in place of the oldest if there is no room.
    pub(super) fn push(&self, number: u64, batch: Bytes) {
        let mut batches = self.batches();
        if batches.len() >= self.most {
            batches.pop_front();
        }
        if self.most > 0 {
            batches.push_back((number, batch));
        }
    }

    /// The batches from this number on.
    pub(super) fn from(&self, first: u64) -> Vec<(u64, Bytes)> {
        let batches = self.batches();
        batches.iter().filter(|(number, _)| *number >= first).cloned().collect()
    }
}

/// Answers those who ask for batches, one after the other, until the socket fails.
pub(super) async fn serve(socket: RouterSocket, kept: Kept, topic: Bytes) {
    let (mut sender, mut receiver): (RouterSendHalf, RouterRecvHalf) = socket.split();
    loop {
        let request = match receiver.recv().await {
            Ok(request) => request.into_vec(),
            Err(error) => {
                tracing::debug!(%error, "a request for KV events could not be received");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // A client that isn't a REQ socket sends the empty frame itself.
        let [client, empty, first] = request.as_slice() else {
            tracing::warn!(frames = request.len(), "a request for KV events must have 3 frames");
            continue;
        };
        let Ok(first) = <[u8; 8]>::try_from(first.as_ref()) else {
            tracing::warn!(bytes = first.len(), "a sequence number of KV events has 8 bytes");
            continue;
        };
        let batches = kept.from(u64::from_be_bytes(first)).into_iter();
        let batches = batches.map(|(number, batch)| (topic.clone(), number.to_be_bytes(), batch));
        let end = (Bytes::new(), END.to_be_bytes(), Bytes::new());
        for (topic, number, batch) in batches.chain([end]) {
            let frames = [client.clone(), empty.clone(), topic, number.to_vec().into(), batch];
            let sent = tokio::time::timeout(PATIENCE, sender.send(message(frames))).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::warn!("a client does not take the KV events that it asked for");
                break;
            }
        }
    }
}

/// A message of these frames.
pub(super) fn message<const FRAMES: usize>(frames: [Bytes; FRAMES]) -> ZmqMessage {
    ZmqMessage::try_from(Vec::from(frames)).expect("a message has frames")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batches_are_kept() {
        let kept = Kept::new(2);
        for number in 0..4 {
            kept.push(number, Bytes::from(vec![u8::try_from(number).unwrap()]));
        }
        let numbers = |first| kept.from(first).iter().map(|kept| kept.0).collect::<Vec<_>>();
        assert_eq!(numbers(0), [2, 3]);
        assert_eq!(numbers(3), [3]);
        assert_eq!(numbers(4), [0; 0]);
        let none = Kept::new(0);
        none.push(0, Bytes::new());
        assert_eq!(none.from(0), []);
    }
}
