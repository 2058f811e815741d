use super::*;
use futures::StreamExt as _;
use std::pin::pin;

async fn collect(stream: impl Stream<Item = io::Result<Bytes>>) -> Vec<u8> {
    let mut stream = pin!(stream);
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece = piece.unwrap();
        assert!(!piece.is_empty() && piece.len() <= READ_SIZE);
        all.extend_from_slice(&piece);
    }
    all
}

fn body(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 % 251) as u8).collect()
}

#[tokio::test]
async fn content_is_equal_on_both_sides_of_the_memory_limit() {
    let quota = Quota::new(u64::MAX);
    for len in [0, 1, 99, 100, 101, 200, WRITE_SIZE, 3 * WRITE_SIZE + 7] {
        for chunk in [1, 64, 100, 1000, WRITE_SIZE + 1] {
            if len / chunk > 10_000 {
                continue;
            }
            let body = body(len);
            let mut spool = Spool::new(100, quota.clone());
            for chunk in body.chunks(chunk) {
                spool.write(chunk).await.unwrap();
            }
            assert_eq!(spool.len(), len as u64);
            let spooled = spool.finish().await.unwrap();
            assert_eq!(spooled.len(), len as u64);
            assert_eq!(spooled.in_memory().is_some(), len <= 100, "{len}");
            assert_eq!(quota.used(), if len > 100 { len as u64 } else { 0 });
            assert_eq!(collect(spooled.reader()).await, body, "{len} {chunk}");
            assert_eq!(collect(spooled.into_stream()).await, body, "{len} {chunk}");
            assert_eq!(quota.used(), 0);
        }
    }
}

#[tokio::test]
async fn quota_that_is_exhausted_refuses_and_is_given_back() {
    let quota = Quota::new(1000);
    let mut first = Spool::new(10, quota.clone());
    first.write(&body(600)).await.unwrap();
    let first = first.finish().await.unwrap();

    let mut second = Spool::new(10, quota.clone());
    second.write(&body(400)).await.unwrap();
    let refused = second.write(b"x").await;
    assert!(matches!(
        refused,
        Err(SpoolError::QuotaExceeded { limit: 1000 })
    ));
    // It lost a chunk, so it can't become a body any more.
    assert!(matches!(second.write(b"").await, Err(SpoolError::Disk(_))));
    assert!(second.finish().await.is_err());
    assert_eq!(quota.used(), 600);

    let reader = first.reader();
    drop(first);
    assert_eq!(quota.used(), 600);
    drop(reader);
    assert_eq!(quota.used(), 0);

    // What stays in memory takes nothing.
    let mut small = Spool::new(10, Quota::new(0));
    small.write(b"0123456789").await.unwrap();
    assert!(small.write(b"x").await.is_err());
}

#[tokio::test]
async fn body_in_memory_counts_against_its_budget_until_it_is_dropped() {
    let (memory, quota) = (Budget::new(1000), Quota::new(u64::MAX));
    let spool = || Spool::new(600, quota.clone()).within(&memory);
    let mut first = spool();
    first.write(&body(600)).await.unwrap();
    let mut second = spool();
    let refused = second.write(&body(500)).await.unwrap_err();
    assert!(matches!(
        refused,
        SpoolError::MemoryExceeded { limit: 1000 }
    ));
    assert!(refused.is_shortage() && !broken().is_shortage());
    let first = first.finish().await.unwrap();
    let stream = first.clone().into_stream();
    drop(first);
    assert_eq!(memory.used(), 600);
    drop(stream);
    // What is on disk counts there.
    let mut big = spool();
    big.write(&body(600)).await.unwrap();
    big.write(b"x").await.unwrap();
    assert_eq!((memory.used(), quota.used()), (0, 601));
}

#[tokio::test]
async fn no_file_is_visible_while_a_spool_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let names = || std::fs::read_dir(dir.path()).unwrap().count();
    let quota = Quota::in_dir(1 << 20, dir.path().to_path_buf());
    let mut spool = Spool::new(0, quota);
    spool.write(&body(WRITE_SIZE)).await.unwrap();
    spool.write(b"more").await.unwrap();
    assert_eq!(names(), 0);
    let spooled = spool.finish().await.unwrap();
    assert_eq!((names(), spooled.len()), (0, WRITE_SIZE as u64 + 4));
}

#[tokio::test]
async fn directory_that_is_missing_is_a_disk_error_with_its_cause() {
    let quota = Quota::in_dir(1000, "/nonexistent/spool".into());
    let mut spool = Spool::new(4, quota.clone());
    spool.write(b"fine").await.unwrap();
    let error = spool.write(b"too much").await.unwrap_err();
    assert!(std::error::Error::source(&error).is_some(), "{error}");
    assert_eq!(quota.used(), 0);
}
