//! What goes over the wire, read by sockets of another kind.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use super::message::encode;
use super::{Change, EventSender, start};
use crate::config::KvEvents;
use crate::kv_cache::BLOCK_SIZE;
use crate::kv_cache::block_hash::BlockHash;
use crate::kv_cache::content::Content;
use crate::kv_cache::events::{BlockKeys, CacheEvent, StoredBlock};
use crate::metrics;
use crate::metrics::kv_tiers::KvTier;

fn hash(number: u64) -> BlockHash {
    let mut bytes = [9; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    BlockHash::from_bytes(bytes)
}

fn stored(number: u64, parent: Option<u64>, keys: BlockKeys) -> CacheEvent {
    let tokens = vec![u32::try_from(number).unwrap(); BLOCK_SIZE];
    CacheEvent::Stored(StoredBlock { hash: hash(number), parent: parent.map(hash), tokens, keys })
}

fn removed(number: u64) -> Change {
    Change::Pool(vec![CacheEvent::Removed(Content::Block(hash(number)))])
}

/// The events of a batch.
fn read(change: &Change) -> Value {
    let batch: Value = rmp_serde::from_slice(&encode(1.5, change).unwrap()).unwrap();
    assert_eq!((&batch[0], &batch[2]), (&json!(1.5), &json!(0)));
    assert_eq!(batch.as_array().unwrap().len(), 3);
    batch[1].clone()
}

#[test]
fn blocks_of_a_chain_are_one_event() {
    let (none, tokens) = (BlockKeys::default, |number: u64| [number; BLOCK_SIZE]);
    let salted = BlockKeys { salt: Some("s".into()), ..none() };
    let events = vec![
        stored(1, None, none()),
        stored(2, Some(1), none()),
        stored(u64::MAX >> 40, None, salted),
        stored(4, Some(u64::MAX >> 40), none()),
        CacheEvent::Removed(Content::Block(hash(2))),
        CacheEvent::Removed(Content::Block(hash(1))),
        CacheEvent::StoredSnapshot(hash(4)),
        CacheEvent::Removed(Content::Snapshot(hash(4))),
    ];
    let block = |hashes: Value, tokens: Vec<u64>| {
        json!({
            "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": null,
            "token_ids": tokens, "block_size": BLOCK_SIZE, "lora_id": null, "medium": "GPU",
            "lora_name": null, "group_idx": 0, "kv_cache_spec_kind": "full_attention",
        })
    };
    let third = u64::MAX >> 40;
    let mut salted = block(json!([third, 4]), [tokens(third), tokens(4)].concat());
    salted["extra_keys"] = json!([["s"], null]);
    let expected = json!([
        block(json!([1, 2]), [tokens(1), tokens(2)].concat()),
        salted,
        {"type": "BlockRemoved", "block_hashes": [2, 1], "medium": "GPU", "group_idx": 0},
        {
            "type": "BlockStored", "block_hashes": [4], "parent_block_hash": null, "token_ids": [],
            "block_size": 0, "lora_id": null, "medium": "GPU", "lora_name": null, "group_idx": 1,
            "kv_cache_spec_kind": "mamba",
        },
        {"type": "BlockRemoved", "block_hashes": [4], "medium": "GPU", "group_idx": 1},
    ]);
    assert_eq!(read(&Change::Pool(events)), expected);
}

#[test]
fn keys_are_those_of_each_block() {
    let adapter = Some((Arc::from("tales"), 0));
    let seen = |at| vec![([7; 16], at)];
    let first = BlockKeys {
        adapter: adapter.clone(),
        salt: Some("s".into()),
        long: true,
        pictures: seen(5),
    };
    let second = BlockKeys { adapter, pictures: seen(-27), ..BlockKeys::default() };
    let read = read(&Change::Pool(vec![stored(1, None, first), stored(2, Some(1), second)]));
    let digest = "07".repeat(16);
    assert_eq!(
        read[0]["extra_keys"],
        json!([["tales", [digest, 5], "s", "sconce:long"], ["tales", [digest, -27]]])
    );
    assert_eq!((&read[0]["lora_id"], &read[0]["lora_name"]), (&json!(1), &json!("tales")));
    assert_eq!(read.as_array().unwrap().len(), 1);
}

#[test]
fn what_stands_behind_the_pool_is_another_medium() {
    let changes = [(1, true), (2, true), (1, false), (2, false)];
    let changes = changes.map(|(number, there)| (Content::Block(hash(number)), there));
    for (tier, medium) in [(KvTier::Host, "CPU"), (KvTier::Disk, "STORAGE")] {
        let read = read(&Change::Behind(tier, changes.to_vec()));
        let stored = |number: u64| {
            json!({
                "type": "BlockStored", "block_hashes": [number], "parent_block_hash": null,
                "token_ids": [], "block_size": 0, "lora_id": null, "medium": medium,
                "lora_name": null, "group_idx": 0,
            })
        };
        let removed = json!(
            {"type": "BlockRemoved", "block_hashes": [1, 2], "medium": medium, "group_idx": 0}
        );
        assert_eq!(read, json!([stored(1), stored(2), removed]));
    }
    assert_eq!(self::read(&Change::Cleared), json!([{"type": "AllBlocksCleared"}]));
}

struct Published {
    folder: tempfile::TempDir,
    sender: EventSender,
}

fn config(endpoint: String, replay_endpoint: Option<String>, kept: usize) -> KvEvents {
    let topic = "kv".to_owned();
    KvEvents { endpoint, replay_endpoint, buffer_steps: kept, max_queue_size: 100, topic }
}

impl Published {
    fn start(kept: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| format!("ipc://{}", folder.path().join(name).display());
        let config = config(at("events"), Some(at("replay")), kept);
        let sender = start(&config, &metrics::install("test")).unwrap();
        Self { folder, sender }
    }

    fn at(&self, name: &str) -> String {
        format!("ipc://{}", self.folder.path().join(name).display())
    }

    /// The numbers and events of all batches from this number on that are kept.
    async fn replay(&self, first: u64) -> Vec<(u64, Value)> {
        let mut socket = DealerSocket::new();
        socket.connect(&self.at("replay")).await.unwrap();
        let mut request = ZmqMessage::from(Vec::new());
        request.push_back(first.to_be_bytes().to_vec().into());
        socket.send(request).await.unwrap();
        let mut batches = Vec::new();
        loop {
            let frames = socket.recv().await.unwrap().into_vec();
            let [empty, topic, number, batch] = frames.as_slice() else { panic!("{frames:?}") };
            assert!(empty.is_empty());
            if batch.is_empty() {
                assert_eq!(number.as_ref(), (-1_i64).to_be_bytes());
                return batches;
            }
            assert_eq!(topic.as_ref(), b"kv");
            batches.push(numbered(number, batch));
        }
    }

    /// As [`Self::replay`], once the last batch has this number.
    async fn replay_until(&self, first: u64, last: u64) -> Vec<(u64, Value)> {
        for _ in 0..500 {
            let batches = self.replay(first).await;
            if batches.last().is_some_and(|(number, _)| *number == last) {
                return batches;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("batch {last} never came");
    }
}

fn numbered(number: &[u8], batch: &[u8]) -> (u64, Value) {
    let batch: Value = rmp_serde::from_slice(batch).unwrap();
    (u64::from_be_bytes(number.try_into().unwrap()), batch[1].clone())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn subscribers_get_what_comes_and_ask_for_what_they_missed() {
    block_on(async {
        let published = Published::start(3);
        let mut subscriber = SubSocket::new();
        subscriber.connect(&published.at("events")).await.unwrap();
        subscriber.subscribe("kv").await.unwrap();
        // A subscription takes its time; until then messages pass by.
        let mut sent = 0;
        let frames = loop {
            published.sender.send(removed(sent));
            sent += 1;
            let wait = tokio::time::timeout(Duration::from_millis(20), subscriber.recv());
            if let Ok(message) = wait.await {
                break message.unwrap().into_vec();
            }
        };
        let [topic, number, batch] = frames.as_slice() else { panic!("{frames:?}") };
        let (number, events) = numbered(number, batch);
        assert_eq!(topic.as_ref(), b"kv");
        // The first batch of all clears.
        assert_eq!(events[0]["block_hashes"], json!([number - 1]));
        let batches = published.replay_until(0, sent).await;
        let numbers: Vec<u64> = batches.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (sent.saturating_sub(2)..=sent).collect::<Vec<_>>());
        assert_eq!(published.replay(sent + 1).await, []);
    });
}

#[test]
fn the_first_batch_clears_and_all_that_is_kept_is_replayed() {
    block_on(async {
        let published = Published::start(100);
        (0..5).for_each(|number| published.sender.send(removed(number)));
        let batches = published.replay_until(0, 5).await;
        assert_eq!(batches.len(), 6);
        assert_eq!(batches[0], (0, json!([{"type": "AllBlocksCleared"}])));
        assert_eq!(published.replay_until(4, 5).await, batches[4..]);
    });
}

#[test]
fn whoever_is_connected_to_may_come_later_and_come_back() {
    block_on(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let endpoint = format!("tcp://127.0.0.1:{port}");
        let sender = start(&config(endpoint.clone(), None, 0), &metrics::install("test")).unwrap();
        for _ in 0..2 {
            let mut reader = SubSocket::new();
            reader.bind(&endpoint).await.unwrap();
            reader.subscribe("").await.unwrap();
            let mut tries = 0;
            loop {
                sender.send(removed(7));
                let wait = tokio::time::timeout(Duration::from_millis(50), reader.recv());
                if let Ok(message) = wait.await {
                    let frames = message.unwrap().into_vec();
                    assert_eq!(numbered(&frames[1], &frames[2]).1[0]["block_hashes"], json!([7]));
                    break;
                }
                tries += 1;
                assert!(tries < 600, "nobody connects");
            }
            assert!(reader.close().await.is_empty());
        }
    });
}

#[test]
fn endpoints_that_can_not_be_had_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let free = || Some(format!("ipc://{}/replay", folder.path().display()));
    let metrics = metrics::install("test");
    let fails = |endpoint: &str, replay: Option<String>| {
        start(&config(endpoint.to_owned(), replay, 1), &metrics).unwrap_err().to_string()
    };
    assert!(fails("udp://x:1", free()).contains("\"udp://x:1\" is no endpoint"));
    assert!(fails("ipc:///nowhere/at/all", free()).contains("can't be bound"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = std::net::TcpListener::bind(taken).unwrap();
    let other =
        fails(&format!("ipc://{}/e", folder.path().display()), Some(format!("tcp://{taken}")));
    assert!(other.contains("can't be bound"), "{other}");
    drop(listener);
}
