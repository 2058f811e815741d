use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

struct TestSession {
    open: AtomicBool,
    number: usize,
    removed: Mutex<Option<Removal>>,
}

impl PooledSession for TestSession {
    type Error = String;

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    fn end_reason(&self) -> String {
        "closed".to_owned()
    }

    fn removed(&self, removal: Removal) {
        *self.removed.lock() = Some(removal);
    }
}

type TestPool = Pool<TestSession, u32>;

const KEY: Key = [1; 32];

fn session(number: usize) -> TestSession {
    TestSession {
        open: AtomicBool::new(true),
        number,
        removed: Mutex::new(None),
    }
}

async fn get(pool: &TestPool, key: Key, opened: &Arc<AtomicUsize>) -> Arc<TestSession> {
    let opened = opened.clone();
    let open = move |note: u32| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok((session(opened.fetch_add(1, Ordering::SeqCst)), note + 1))
    };
    pool.get(key, full, open).await.unwrap()
}

fn full() -> String {
    "full".to_owned()
}

#[tokio::test]
async fn session_is_shared_by_key_and_reopened_after_its_end() {
    let (pool, opened) = (TestPool::default(), Arc::default());
    let (one, two, other) = tokio::join!(
        get(&pool, KEY, &opened),
        get(&pool, KEY, &opened),
        get(&pool, [2; 32], &opened)
    );
    assert_eq!(one.number, two.number);
    assert_ne!(one.number, other.number);
    one.open.store(false, Ordering::SeqCst);
    assert_ne!(get(&pool, KEY, &opened).await.number, one.number);
    assert_eq!(*one.removed.lock(), Some(Removal::Ended));
    assert_eq!(opened.load(Ordering::SeqCst), 3);
    assert_eq!(pool.open_sessions().len(), 2);
    pool.clear();
    assert!(pool.open_sessions().is_empty());
    assert_eq!(*other.removed.lock(), Some(Removal::Shutdown));
}

#[tokio::test]
async fn note_is_kept_for_the_next_opening_and_dropped_with_a_failure() {
    let pool = TestPool::default();
    let get = async |succeeds: bool| {
        let seen = Arc::new(AtomicUsize::new(usize::MAX));
        let noted = seen.clone();
        let open = move |note: u32| async move {
            noted.store(note as usize, Ordering::SeqCst);
            let opened = succeeds.then(|| (session(0), note + 1));
            opened.ok_or("no".to_owned())
        };
        let got = pool.get(KEY, full, open).await;
        if let Ok(session) = &got {
            pool.replace(KEY, session);
        }
        pool.forgive(KEY);
        seen.load(Ordering::SeqCst)
    };
    let seen = [
        get(true).await,
        get(true).await,
        get(false).await,
        get(true).await,
    ];
    assert_eq!(seen, [0, 1, 2, 0]);
}

#[tokio::test]
async fn opening_goes_on_after_its_caller_has_left() {
    let (pool, opened) = (TestPool::default(), Arc::default());
    let impatient = tokio::time::timeout(Duration::from_millis(1), get(&pool, KEY, &opened));
    assert!(impatient.await.is_err());
    assert_eq!(get(&pool, KEY, &opened).await.number, 0);
    assert_eq!(opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sessions_that_end_early_twice_in_a_row_back_off() {
    let (pool, opened) = (TestPool::default(), Arc::default());
    for _ in 0..2 {
        let session = get(&pool, KEY, &opened).await;
        session.open.store(false, Ordering::SeqCst);
    }
    let third = pool
        .get(KEY, full, |note| async move { Ok((session(9), note)) })
        .await;
    assert_eq!(third.err().as_deref(), Some("closed"));
}

#[tokio::test]
async fn failed_opening_backs_off_until_it_is_forgiven() {
    let pool = TestPool::default();
    let tried = Arc::new(AtomicUsize::new(0));
    let get = async || {
        let tried = tried.clone();
        let open = move |_| async move {
            Err::<(TestSession, u32), _>(format!("no {}", tried.fetch_add(1, Ordering::SeqCst)))
        };
        pool.get(KEY, full, open).await.err().unwrap()
    };
    let mut begun = Instant::now();
    let mut error = get().await;
    assert_eq!(error, "no 0");
    for failures in 1..3 {
        // The same error without another attempt, until the back-off is over.
        let (next_begun, next) = loop {
            let at = Instant::now();
            let next = get().await;
            if next != error {
                break (at, next);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(begun.elapsed() >= failures * FIRST_RETRY);
        assert_eq!(next, format!("no {failures}"));
        (begun, error) = (next_begun, next);
    }
    pool.forgive(KEY);
    assert_eq!(get().await, "no 3");
}

#[tokio::test]
async fn session_discarded_while_it_is_opened_is_closed() {
    let (pool, opened) = (TestPool::default(), Arc::default());
    let impatient = tokio::time::timeout(Duration::from_millis(1), get(&pool, KEY, &opened));
    assert!(impatient.await.is_err());
    pool.discard(KEY);
    // It keeps its slot until it is open.
    assert_eq!(pool.slots.lock().len(), 1);
    while pool
        .slots
        .lock()
        .values()
        .any(|slot| Arc::strong_count(slot) > 1)
    {
        tokio::task::yield_now().await;
    }
    assert!(pool.open_sessions().is_empty());
    pool.discard(KEY);
    assert_eq!(pool.slots.lock().len(), 0);
    assert_eq!(get(&pool, KEY, &opened).await.number, 1);
    let left = pool.open_sessions();
    let left: Vec<usize> = left.iter().map(|(_, session)| session.number).collect();
    assert_eq!(left, [1]);
}

#[tokio::test]
async fn session_that_was_replaced_already_is_not_replaced_again() {
    let (pool, opened) = (TestPool::default(), Arc::default());
    let first = get(&pool, KEY, &opened).await;
    pool.replace(KEY, &first);
    assert_eq!(*first.removed.lock(), Some(Removal::Replaced));
    let second = get(&pool, KEY, &opened).await;
    assert_ne!(first.number, second.number);
    pool.replace(KEY, &first);
    assert_eq!(get(&pool, KEY, &opened).await.number, second.number);
}

#[tokio::test]
async fn full_pool_evicts_an_unused_session_or_refuses() {
    let pool = TestPool::default();
    let get = async |number: usize| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        let open = move |_| async move { Ok((session(number), 0)) };
        pool.get(key, full, open).await
    };
    for number in 0..MOST_SESSIONS + 10 {
        get(number).await.unwrap();
    }
    assert_eq!(pool.open_sessions().len(), MOST_SESSIONS);
    let mut used = Vec::new();
    for number in 0..MOST_SESSIONS {
        used.push(get(number).await.unwrap());
    }
    assert_eq!(get(MOST_SESSIONS).await.err(), Some(full()));
    used.pop();
    assert!(get(MOST_SESSIONS).await.is_ok());
}

/// Runtimes of one thread each, as workers have them.
fn worker_runtimes(count: usize) -> Vec<Handle> {
    let start = |number: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let handle = runtime.handle().clone();
        let thread = std::thread::Builder::new().name(format!("home-{number}"));
        thread
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .unwrap();
        handle
    };
    (0..count).map(start).collect()
}

/// The thread that a new session under this key is opened on.
async fn home_of(pool: &TestPool, key: Key) -> String {
    let (tell, told) = tokio::sync::oneshot::channel();
    let open = move |note: u32| async move {
        let thread = std::thread::current();
        let _ = tell.send(thread.name().unwrap_or_default().to_owned());
        Ok((session(0), note))
    };
    pool.get(key, full, open).await.unwrap();
    told.await.unwrap()
}

#[tokio::test]
async fn session_lives_on_the_worker_that_asks_and_otherwise_on_each_in_turn() {
    let pool = Arc::new(TestPool::default());
    let own = std::thread::current().name().unwrap().to_owned();
    assert_eq!(home_of(&pool, [0; 32]).await, own);
    let workers = worker_runtimes(2);
    pool.live_on(workers.clone());
    assert_eq!(home_of(&pool, [1; 32]).await, "home-0");
    assert_eq!(home_of(&pool, [2; 32]).await, "home-1");
    assert_eq!(home_of(&pool, [3; 32]).await, "home-0");
    let asking = pool.clone();
    let asked = workers[1].spawn(async move { home_of(&asking, [4; 32]).await });
    assert_eq!(asked.await.unwrap(), "home-1");
}
