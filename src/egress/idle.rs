//! Idle connections of one thread, for the next request to the same place. There are no locks and
//! no task for each connection: whether a connection is still good is looked at when it is taken.

use std::collections::HashMap;
use std::future::{Future as _, poll_fn};
use std::hash::Hash;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Instant;

use tokio::io::{AsyncRead, ReadBuf};

/// How many connections a pool keeps. One more pushes out the oldest.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub per_key: usize,
    pub total: usize,
}

/// A connection that can be kept.
pub trait Quiet {
    /// Whether it is open and nothing came from the other side. An idle connection on which bytes
    /// arrive belongs to no request, and its next answer might not be one.
    fn is_quiet(&mut self) -> bool;
}

/// [`Quiet`] for a stream. There is no system call while Tokio knows of no event on it. Polled
/// without the task's budget: once that is spent, every stream looks quiet.
pub fn is_quiet(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    let mut read = ReadBuf::new(&mut byte);
    let read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut read));
    let read = pin!(tokio::task::coop::unconstrained(read));
    read.poll(&mut Context::from_waker(Waker::noop()))
        .is_pending()
}

impl Quiet for tokio::net::TcpStream {
    fn is_quiet(&mut self) -> bool {
        // Not limited by Tokio's budget of a task, as polling is.
        let read = self.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

pub struct IdlePool<K, C> {
    bounds: Bounds,
    kept: HashMap<K, Vec<Kept<C>>, foldhash::fast::RandomState>,
    total: usize,
}

struct Kept<C> {
    connection: C,
    since: Instant,
    until: Instant,
}

impl<K: Hash + Eq + Clone, C: Quiet> IdlePool<K, C> {
    pub fn new(bounds: Bounds) -> Self {
        IdlePool {
            bounds,
            kept: HashMap::default(),
            total: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.total
    }

    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The connection that was used last, if it is still good. Others that are not are closed.
    pub fn take(&mut self, key: &K, now: Instant) -> Option<C> {
        let kept = self.kept.get_mut(key)?;
        while let Some(mut newest) = kept.pop() {
            self.total -= 1;
            if newest.until > now && newest.connection.is_quiet() {
                return Some(newest.connection);
            }
        }
        None
    }

    /// Keeps a connection until then. It must be at the end of an answer whose framing was exact.
    pub fn put(&mut self, key: &K, connection: C, now: Instant, until: Instant) {
        if self.bounds.per_key == 0 || self.bounds.total == 0 || until <= now {
            return;
        }
        if self.total >= self.bounds.total {
            self.drop_oldest();
        }
        let newest = Kept {
            connection,
            since: now,
            until,
        };
        self.total += 1;
        let Some(kept) = self.kept.get_mut(key) else {
            self.kept.insert(key.clone(), vec![newest]);
            return;
        };
        if kept.len() >= self.bounds.per_key {
            kept.remove(0);
            self.total -= 1;
        }
        kept.push(newest);
    }

    /// Closes what has idled for too long or was closed by its server, and forgets keys without
    /// connections. Returns how many connections are left.
    pub fn sweep(&mut self, now: Instant) -> usize {
        self.kept.retain(|_, kept| {
            kept.retain_mut(|kept| kept.until > now && kept.connection.is_quiet());
            !kept.is_empty()
        });
        self.total = self.kept.values().map(Vec::len).sum();
        self.total
    }

    /// Closes all.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.total = 0;
    }

    fn drop_oldest(&mut self) {
        // The first of each key is its oldest.
        let first = |kept: &Vec<Kept<C>>| kept.first().map(|kept| kept.since);
        let keys = self.kept.iter_mut();
        let oldest = keys
            .filter_map(|(_, kept)| Some((first(kept)?, kept)))
            .min_by_key(|(since, _)| *since);
        if let Some((_, kept)) = oldest {
            kept.remove(0);
            self.total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    /// A connection with a number, and whether it is quiet.
    #[derive(Clone)]
    struct Fake(u32, Rc<Cell<bool>>);

    impl Quiet for Fake {
        fn is_quiet(&mut self) -> bool {
            self.1.get()
        }
    }

    impl Quiet for tokio::io::DuplexStream {
        fn is_quiet(&mut self) -> bool {
            is_quiet(self)
        }
    }

    fn fake(number: u32) -> Fake {
        Fake(number, Rc::new(Cell::new(true)))
    }

    const BOUNDS: Bounds = Bounds {
        per_key: 2,
        total: 3,
    };
    const LONG: Duration = Duration::from_secs(60);

    fn drain(pool: &mut IdlePool<&'static str, Fake>, key: &'static str, at: Instant) -> Vec<u32> {
        let taken = std::iter::from_fn(|| pool.take(&key, at));
        taken.map(|connection| connection.0).collect()
    }

    #[test]
    fn newest_connection_of_the_same_key_is_taken_first() {
        let (mut pool, now) = (IdlePool::new(BOUNDS), Instant::now());
        pool.put(&"a", fake(1), now, now + LONG);
        pool.put(&"a", fake(2), now, now + LONG);
        pool.put(&"b", fake(3), now, now + LONG);
        assert_eq!(pool.len(), 3);
        assert_eq!(drain(&mut pool, "a", now), [2, 1]);
        assert_eq!(drain(&mut pool, "b", now), [3]);
        assert!(pool.is_empty() && pool.take(&"c", now).is_none());
    }

    #[test]
    fn full_pool_drops_the_oldest_connection() {
        let (mut pool, now) = (IdlePool::new(BOUNDS), Instant::now());
        let at = |second| now + Duration::from_secs(second);
        pool.put(&"a", fake(1), at(0), now + LONG);
        pool.put(&"a", fake(2), at(1), now + LONG);
        pool.put(&"a", fake(3), at(2), now + LONG);
        assert_eq!(pool.len(), 2, "per key");
        pool.put(&"b", fake(4), at(3), now + LONG);
        pool.put(&"b", fake(5), at(4), now + LONG);
        assert_eq!(pool.len(), 3, "in total");
        assert_eq!(drain(&mut pool, "a", at(5)), [3]);
        assert_eq!(drain(&mut pool, "b", at(5)), [5, 4]);
    }

    #[test]
    fn connection_that_is_old_or_not_quiet_is_neither_taken_nor_kept() {
        let (mut pool, now) = (IdlePool::new(BOUNDS), Instant::now());
        let noisy = fake(2);
        pool.put(&"a", fake(1), now, now + LONG);
        pool.put(&"a", noisy.clone(), now, now + LONG);
        noisy.1.set(false);
        assert_eq!(drain(&mut pool, "a", now), [1]);
        pool.put(&"a", fake(3), now, now + LONG);
        assert!(drain(&mut pool, "a", now + LONG).is_empty());
        assert!(pool.is_empty());

        noisy.1.set(true);
        pool.put(&"a", noisy.clone(), now, now + LONG);
        pool.put(&"a", fake(4), now, now + LONG);
        pool.put(&"b", fake(5), now, now + LONG / 2);
        noisy.1.set(false);
        assert_eq!(pool.sweep(now + LONG / 2), 1);
        assert_eq!(pool.kept.len(), 1, "a key without connections is forgotten");
        assert_eq!(drain(&mut pool, "a", now), [4]);
        pool.put(&"a", fake(6), now, now);
        assert!(pool.is_empty(), "a connection that may not idle isn't kept");
    }

    #[tokio::test]
    async fn more_noisy_connections_than_a_task_may_poll_are_neither_taken_nor_kept() {
        let bounds = Bounds {
            per_key: 1000,
            total: 1000,
        };
        let (mut pool, now) = (IdlePool::new(bounds), Instant::now());
        let mut servers = Vec::new();
        for sweeps in [false, true] {
            // The first is quiet. Tokio's budget for one poll of a task is 128.
            for number in 0..300 {
                let (client, mut server) = tokio::io::duplex(8);
                if number > 0 {
                    server.write_all(b"!").await.unwrap();
                }
                servers.push(server);
                pool.put(&"a", client, now, now + LONG);
            }
            tokio::task::yield_now().await;
            if sweeps {
                assert_eq!(pool.sweep(now), 1);
            }
            let mut quiet = pool.take(&"a", now).unwrap();
            assert!(pool.is_empty(), "sweeps: {sweeps}, left: {}", pool.len());
            assert!(is_quiet(&mut quiet));
        }
    }

    #[tokio::test]
    async fn connection_is_quiet_until_its_server_writes_or_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for writes in [true, false] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            assert!(client.is_quiet() && is_quiet(&mut client));
            if writes {
                server.write_all(b"!").await.unwrap();
            } else {
                drop(server);
            }
            client.readable().await.unwrap();
            let noticed = if writes {
                !client.is_quiet()
            } else {
                !is_quiet(&mut client)
            };
            assert!(noticed, "writes: {writes}");
        }
    }
}
