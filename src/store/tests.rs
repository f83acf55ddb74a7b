//! What holds for every backend. PostgreSQL takes part where `SCONCE_TEST_POSTGRES` has an address.

use std::path::Path;

use super::*;

fn stores() -> Vec<Store> {
    let mut stores = vec![Store::open(&StorePlace::Memory, 64 << 20).unwrap()];
    if let Ok(url) = std::env::var("SCONCE_TEST_POSTGRES") {
        stores.push(Store::open(&StorePlace::Postgres(url), 0).unwrap());
    }
    stores
}

/// Names that no other test and no earlier run has.
fn unique(name: &str) -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}-{}-{}", now_ms(), std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn object(key: &Key, body: &str) -> Object {
    Object::new(key.clone(), None, body.as_bytes().to_vec())
}

#[tokio::test]
async fn an_object_is_its_owners_alone() {
    for store in stores() {
        let (id, owner) = (unique("a"), unique("me"));
        let key = Key::new("response", &owner, &id);
        assert!(store.change(vec![Change::Add(object(&key, "one"))]).await.unwrap());
        assert!(!store.change(vec![Change::Add(object(&key, "two"))]).await.unwrap());
        let found = store.find("response", &owner, &id).await.unwrap().unwrap();
        assert_eq!((found.body.as_slice(), found.revision), (&b"one"[..], 0));
        assert!(store.find("response", "other", &id).await.unwrap().is_none());
        assert!(store.find("file", &owner, &id).await.unwrap().is_none());
        let others = Key::new("response", "other", &id);
        assert!(!store.change(vec![Change::Remove(others)]).await.unwrap());
        assert!(store.change(vec![Change::Remove(key.clone())]).await.unwrap());
        assert!(!store.change(vec![Change::Remove(key)]).await.unwrap());
    }
}

#[tokio::test]
async fn a_change_is_made_whole_or_not_at_all() {
    for store in stores() {
        let owner = unique("me");
        let [one, two] = ["one", "two"].map(|id| Key::new("response", &owner, id));
        assert!(store.change(vec![Change::Add(object(&one, "1"))]).await.unwrap());
        let both = vec![Change::Add(object(&two, "2")), Change::Add(object(&one, "3"))];
        assert!(!store.change(both).await.unwrap());
        assert!(store.find("response", &owner, "two").await.unwrap().is_none());
        let read = store.find("response", &owner, "one").await.unwrap().unwrap();
        let update =
            |body: &str| Change::Update(Object { body: body.as_bytes().to_vec(), ..read.clone() });
        assert!(store.change(vec![update("4")]).await.unwrap());
        assert!(!store.change(vec![update("5")]).await.unwrap(), "it was changed meanwhile");
        let read = store.find("response", &owner, "one").await.unwrap().unwrap();
        assert_eq!((read.body.as_slice(), read.revision), (&b"4"[..], 1));
    }
}

#[tokio::test]
async fn parts_are_listed_in_order_and_go_with_the_whole() {
    for store in stores() {
        let (owner, parent) = (unique("me"), unique("conv"));
        let whole = Key::new("conversation", &owner, &parent);
        let mut changes = vec![Change::Add(object(&whole, ""))];
        changes.extend((0..5).map(|i| {
            Change::Put(object(&Key::part("item", &owner, &parent, &format!("i{i}")), ""))
        }));
        assert!(store.change(changes).await.unwrap());
        let page = async |after: Option<&str>, limit, ascending| {
            let after = after.map(str::to_owned);
            let request = PageRequest { after, limit, ascending, before: None };
            let page = store.list("item", &owner, &parent, &request).await.unwrap();
            let ids = page.objects.into_iter().map(|object| object.key.id);
            (ids.collect::<Vec<_>>().join(" "), page.has_more)
        };
        assert_eq!(page(None, 2, true).await, ("i0 i1".to_owned(), true));
        assert_eq!(page(Some("i1"), 5, true).await, ("i2 i3 i4".to_owned(), false));
        assert_eq!(page(Some("i3"), 2, false).await, ("i2 i1".to_owned(), true));
        assert!(store.change(vec![Change::Remove(whole)]).await.unwrap());
        assert_eq!(page(None, 5, true).await, (String::new(), false));
    }
}

#[tokio::test]
async fn what_has_expired_is_not_there() {
    for store in stores() {
        let owner = unique("me");
        let (old, kept) = (unique("old"), unique("kept"));
        for (id, expires) in [(&old, now_ms() - 1), (&kept, now_ms() + 60_000)] {
            let object = Object::new(Key::new("response", &owner, id), Some(expires), vec![1]);
            assert!(store.change(vec![Change::Put(object)]).await.unwrap());
        }
        let there = async |id: &str| store.find("response", &owner, id).await.unwrap().is_some();
        assert!(!there(&old).await && there(&kept).await);
        store.remove_expired().await.unwrap();
        assert!(!there(&old).await && there(&kept).await);
    }
}

fn lines(count: i64) -> Vec<NewLine> {
    let line = |number: i64| NewLine {
        number,
        custom_id: format!("c{number}"),
        model: "m".to_owned(),
        body: vec![7],
    };
    (0..count).map(line).collect()
}

#[tokio::test]
async fn a_line_is_answered_once_by_who_holds_it() {
    for store in stores() {
        let (batch, model) = (unique("batch"), unique("model"));
        let models = [model.clone()];
        let lines = lines(3).into_iter().map(|line| NewLine { model: model.clone(), ..line });
        store.add_lines(&batch, 1, now_ms() + 60_000, lines.collect()).await.unwrap();
        let later = now_ms() + 60_000;
        let first = store.claim_lines("a", later, &models, 1, 2).await.unwrap();
        assert_eq!(first.iter().map(|line| line.number).collect::<Vec<_>>(), [0, 1]);
        let second = store.claim_lines("b", now_ms() - 1, &models, 1, 5).await.unwrap();
        assert_eq!(second.iter().map(|line| line.number).collect::<Vec<_>>(), [2]);
        // The lease of b is over: a takes its line.
        let taken = store.claim_lines("a", later, &models, 1, 5).await.unwrap();
        assert_eq!(taken.iter().map(|line| line.number).collect::<Vec<_>>(), [2]);
        let answer = async |holder: &str, number| {
            let state = LineState::Answered;
            store.answer_line(holder, &batch, number, state, vec![1]).await.unwrap()
        };
        assert!(!answer("b", 2).await);
        assert!(answer("a", 2).await && answer("a", 0).await);
        assert!(!answer("a", 2).await, "it is answered already");
        let counts = store.count_lines(&batch).await.unwrap();
        assert_eq!((counts.waiting, counts.held, counts.answered), (1, 1, 2));
        store.release_lines("a").await.unwrap();
        assert_eq!(store.count_lines(&batch).await.unwrap().held, 0);
        store.drop_lines(&batch, false).await.unwrap();
        let told = store.answered_lines(&batch, 0, 10).await.unwrap();
        let told: Vec<_> = told.iter().map(|line| (line.number, line.state)).collect();
        let (answered, dropped) = (LineState::Answered, LineState::Dropped);
        assert_eq!(told, [(0, answered), (1, dropped), (2, answered)]);
        assert!(store.claim_lines("c", later, &models, 1, 5).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn contents_are_read_chunk_by_chunk() {
    for store in stores() {
        let file = unique("file");
        store.put_chunk(&file, 0, vec![1, 2]).await.unwrap();
        store.put_chunk(&file, 1, vec![3]).await.unwrap();
        assert_eq!(store.chunk(&file, 1).await.unwrap(), Some(vec![3]));
        assert_eq!(store.chunk(&file, 2).await.unwrap(), None);
        store.drop_chunks(&file).await.unwrap();
        assert_eq!(store.chunk(&file, 0).await.unwrap(), None);
    }
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open(&StorePlace::File(path.to_owned()), 64 << 20)
}

#[tokio::test]
async fn a_file_is_there_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/store.db");
    let key = Key::new("response", "me", "a");
    open(&path).unwrap().change(vec![Change::Add(object(&key, "kept"))]).await.unwrap();
    let found = open(&path).unwrap().find("response", "me", "a").await.unwrap().unwrap();
    assert_eq!(found.body, b"kept");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "This is no database, but a letter to a friend.".repeat(50)).unwrap();
    assert!(matches!(open(&text), Err(StoreError::Foreign { .. })));
    assert!(std::fs::read_to_string(&text).unwrap().starts_with("This is no database"));
    let other = folder.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let error = open(&other).unwrap_err().to_string();
    assert!(error.contains("another program") && error.contains("1 tables"), "{error}");
    let newer = folder.path().join("newer.db");
    drop(open(&newer).unwrap());
    let version = schema::newest() + 1;
    let connection = rusqlite::Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
    drop(connection);
    assert_eq!(
        open(&newer).unwrap_err(),
        StoreError::Newer { found: version, known: schema::newest() }
    );
    let missing = open(Path::new("/proc/nowhere/store.db")).unwrap_err();
    assert!(missing.to_string().contains("/proc/nowhere/store.db"), "{missing}");
}

#[tokio::test]
async fn a_full_store_says_so_and_takes_more_once_there_is_room() {
    let store = Store::open(&StorePlace::Memory, 1 << 20).unwrap();
    let body = "x".repeat(300_000);
    let add = async |id: &str| {
        let key = Key::new("response", "me", id);
        store.change(vec![Change::Add(object(&key, &body))]).await
    };
    let mut full = None;
    for at in 0..5 {
        if let Err(error) = add(&format!("a{at}")).await {
            full = Some((at, error));
            break;
        }
    }
    let (at, error) = full.unwrap();
    assert!(at > 1 && matches!(error, StoreError::Full(_)), "{at}: {error}");
    assert!(store.find("response", "me", "a0").await.unwrap().is_some());
    store.remove_oldest("response", 2).await.unwrap();
    assert!(store.find("response", "me", "a0").await.unwrap().is_none());
    assert!(add("b").await.unwrap());
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let place = StorePlace::Postgres("postgres://nobody@127.0.0.1:1/none".to_owned());
    let store = Store::open(&place, 0).unwrap();
    let error = store.check().await.unwrap_err().to_string();
    assert!(error.contains("not available") && error.contains("refused"), "{error}");
    let place = StorePlace::Postgres("postgres://host:port:x/".to_owned());
    assert!(matches!(Store::open(&place, 0), Err(StoreError::Place(_))));
}

#[tokio::test]
async fn a_key_is_needed_for_what_it_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let key = Key::new("response", "me", "a");
    let locked = open(&path).unwrap().with_key(&[1; 32]);
    locked.change(vec![Change::Add(object(&key, "a secret letter"))]).await.unwrap();
    locked.put_chunk("f", 0, b"a secret letter".to_vec()).await.unwrap();
    let found = locked.find("response", "me", "a").await.unwrap().unwrap();
    assert_eq!(found.body, b"a secret letter");
    assert_eq!(locked.chunk("f", 0).await.unwrap().unwrap(), b"a secret letter");
    drop(locked);
    for store in [open(&path).unwrap(), open(&path).unwrap().with_key(&[2; 32])] {
        let error = store.find("response", "me", "a").await.unwrap_err();
        assert!(matches!(error, StoreError::Locked(_)), "{error}");
    }
    // The log and its index go with the last connection, which closes on a thread of its own: a file may
    // be gone between its listing and its reading, and what it held is then in the database.
    let mut found = 0;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let Ok(bytes) = std::fs::read(file.unwrap().path()) else { continue };
        found += bytes.len();
        assert!(!bytes.windows(6).any(|part| part == b"secret"), "it is there in the open");
    }
    assert!(found > 0, "nothing was kept");
}
