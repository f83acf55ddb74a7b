//! The thread that publishes: it encodes batches, numbers them, and sends them to who has subscribed.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc::Receiver;
use zeromq::{PubSocket, RouterSocket, Socket, SocketEvent, SocketOptions, SocketSend, ZmqError};

use super::endpoint::Endpoint;
use super::message::encode;
use super::replay::{self, Kept};
use super::sender::{Change, ChangeReceiver, EventSender, queue};
use crate::config::KvEvents;
use crate::metrics::MetricsHandle;

/// Time between two tries to connect to a name that can't be resolved or a host that refuses for good.
const RETRY: Duration = Duration::from_secs(1);
/// What subscribers may take to get the last batches once the engine has ended.
const LINGER: Duration = Duration::from_millis(200);

/// Why nothing can be published.
#[derive(Debug, thiserror::Error)]
pub enum KvEventsError {
    /// An endpoint is not one.
    #[error("{endpoint:?} is no endpoint: {reason}")]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address is taken, or not ours.
    #[error("{endpoint} can't be bound: {error}")]
    Bind {
        /// As configured.
        endpoint: String,
        /// Why not.
        error: ZmqError,
    },
    /// The system gave no thread.
    #[error("the thread that publishes KV events could not be started: {0}")]
    Thread(#[from] io::Error),
}

/// Opens the sockets and starts the thread, which ends when the last sender is dropped.
///
/// # Errors
/// When an endpoint is wrong or can't be bound. One that is connected to may come later.
pub fn start(config: &KvEvents, metrics: &MetricsHandle) -> Result<EventSender, KvEventsError> {
    let parse = |text: &str| {
        Endpoint::parse(text)
            .map_err(|reason| KvEventsError::Endpoint { endpoint: text.to_owned(), reason })
    };
    let endpoint = parse(&config.endpoint)?;
    let replay = config.replay_endpoint.as_deref().map(parse).transpose()?;
    let (sender, changes) = queue(config.max_queue_size.max(1), metrics);
    let (ready, opened) = channel();
    let publisher = Publisher {
        endpoint,
        replay,
        topic: Bytes::from(config.topic.clone().into_bytes()),
        kept: Kept::new(if config.replay_endpoint.is_some() { config.buffer_steps } else { 0 }),
        next: 0,
        changes,
        metrics: metrics.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("kv events".to_owned())
        .spawn(move || runtime.block_on(publisher.run(&ready)))?;
    let ended = || KvEventsError::Thread(io::Error::other("it ended at once"));
    opened.recv().map_err(|_| ended())??;
    sender.send(Change::Cleared);
    Ok(sender)
}

struct Publisher {
    endpoint: Endpoint,
    replay: Option<Endpoint>,
    topic: Bytes,
    kept: Kept,
    /// The next batch's sequence number.
    next: u64,
    changes: ChangeReceiver,
    metrics: MetricsHandle,
}

impl Publisher {
    async fn run(mut self, ready: &Sender<Result<(), KvEventsError>>) {
        let mut options = SocketOptions::default();
        options.no_connect_timeout();
        let mut socket = PubSocket::with_options(options);
        let opened = self.open(&mut socket).await;
        let failed = opened.is_err();
        // The engine waits for it, unless it has ended already.
        let _ = ready.send(opened);
        if failed {
            return;
        }
        if self.endpoint.binds {
            while let Some(change) = self.changes.next().await {
                self.publish(&mut socket, &change).await;
            }
        } else {
            self.publish_connected(&mut socket).await;
        }
        tokio::time::sleep(LINGER).await;
    }

    /// Binds what is to be bound.
    async fn open(&self, socket: &mut PubSocket) -> Result<(), KvEventsError> {
        let bind = |endpoint: &Endpoint, error| KvEventsError::Bind {
            endpoint: endpoint.address.clone(),
            error,
        };
        if self.endpoint.binds {
            let bound = socket.bind(&self.endpoint.address).await;
            let bound = bound.map_err(|error| bind(&self.endpoint, error))?;
            tracing::info!(endpoint = %bound, "KV events are published");
        }
        if let Some(endpoint) = &self.replay {
            let mut router = RouterSocket::new();
            let bound = router.bind(&endpoint.address).await;
            let bound = bound.map_err(|error| bind(endpoint, error))?;
            tracing::info!(endpoint = %bound, "KV events are replayed");
            tokio::spawn(replay::serve(router, self.kept.clone(), self.topic.clone()));
        }
        Ok(())
    }

    /// Publishes to whom we connect, and connects again whenever the connection is lost.
    async fn publish_connected(&mut self, socket: &mut PubSocket) {
        let mut events = socket.monitor();
        loop {
            if !self.connect(socket).await {
                return;
            }
            tracing::info!(endpoint = %self.endpoint.address, "KV events are published");
            loop {
                tokio::select! {
                    () = disconnected(&mut events) => break,
                    change = self.changes.next() => match change {
                        Some(change) => self.publish(socket, &change).await,
                        None => return,
                    },
                }
            }
            tracing::warn!(endpoint = %self.endpoint.address, "the reader of KV events is gone");
        }
    }

    /// Connects, however long that takes; what happens meanwhile is kept for replays alone. Returns
    /// false once the engine has ended.
    async fn connect(&mut self, socket: &mut PubSocket) -> bool {
        let address = self.endpoint.address.clone();
        let connecting = async {
            while let Err(error) = socket.connect(&address).await {
                tracing::debug!(%error, endpoint = %address, "can't connect");
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::pin!(connecting);
        loop {
            tokio::select! {
                () = &mut connecting => return true,
                change = self.changes.next() => match change {
                    Some(change) => drop(self.number(&change)),
                    None => return false,
                },
            }
        }
    }

    async fn publish(&mut self, socket: &mut PubSocket, change: &Change) {
        let Some((number, batch)) = self.number(change) else { return };
        let frames = [self.topic.clone(), number.to_be_bytes().to_vec().into(), batch];
        match socket.send(replay::message(frames)).await {
            Ok(()) => self.metrics.add_kv_events_sent(),
            Err(error) => tracing::warn!(%error, "KV events could not be published"),
        }
    }

    /// Encodes and numbers a batch and keeps it. Batches that were dropped before it have numbers too.
    fn number(&mut self, change: &Change) -> Option<(u64, Bytes)> {
        self.next += self.changes.take_dropped();
        let number = self.next;
        self.next += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match encode(since.as_secs_f64(), change) {
            Ok(batch) => {
                let batch = Bytes::from(batch);
                self.kept.push(number, batch.clone());
                Some((number, batch))
            }
            Err(error) => {
                tracing::error!(%error, "KV events could not be encoded");
                None
            }
        }
    }
}

/// Waits until the connection is lost.
async fn disconnected(events: &mut Receiver<SocketEvent>) {
    while let Some(event) = events.next().await {
        if matches!(event, SocketEvent::Disconnected(_)) {
            return;
        }
    }
    // The socket tells nothing more, as long as it lives.
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    #[test]
    fn dropped_batches_leave_a_gap_in_the_numbers() {
        let metrics = metrics::install("test");
        let (sender, changes) = queue(2, &metrics);
        (0..5).for_each(|_| sender.send(Change::Cleared));
        let mut publisher = Publisher {
            endpoint: Endpoint::parse("tcp://*:5557").unwrap(),
            replay: None,
            topic: Bytes::new(),
            kept: Kept::new(0),
            next: 0,
            changes,
            metrics: metrics.clone(),
        };
        assert_eq!(publisher.number(&Change::Cleared).unwrap().0, 3);
        assert_eq!(publisher.number(&Change::Cleared).unwrap().0, 4);
        let text = metrics.render();
        assert!(text.contains("sconce:kv_event_batches_dropped_total{"), "{text}");
        assert!(text.lines().any(|line| line.contains("batches_dropped") && line.ends_with(" 3")));
    }
}
