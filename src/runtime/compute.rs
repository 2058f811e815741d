//! Threads for work whose cost a caller, a manifest or a server chooses: parsing of big texts,
//! validation, `extract`. On a worker it would keep every request of that worker waiting.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// Jobs that wait for a thread. What they hold in memory is bounded with them.
const MOST_WAITING: usize = 1024;
/// Of these, the jobs of one owner.
const MOST_WAITING_OF_ONE: usize = 256;
/// A lower priority than the workers': one that has something to do goes first. Not the lowest, so
/// that big calls get on while an edge is busy.
const NICE: i32 = 10;

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ComputeError {
    /// Too many jobs wait, or no thread can be started.
    #[error("too many calls wait to be worked on")]
    Full,
    /// The time was over before the result was there.
    #[error("the call's time was over before it was worked on")]
    TimedOut,
    /// The job panicked.
    #[error("the work on a call ended without a result")]
    Failed,
}

/// A pool of a bounded number of threads with a bounded queue. Each owner has a queue of its own,
/// and the owners take turns: one that sends many jobs waits for itself, and others don't. Threads
/// are started when they are needed first.
pub struct ComputePool {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    most_threads: usize,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// The owners that have jobs, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    jobs: HashMap<Arc<str>, VecDeque<Job>>,
    waiting: usize,
    running: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Default for ComputePool {
    /// As many threads as there are cores.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ComputePool::new(cores.max(2))
    }
}

impl ComputePool {
    pub fn new(most_threads: usize) -> Self {
        ComputePool {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                ready: Condvar::new(),
                most_threads,
            }),
        }
    }

    /// Jobs that wait, and jobs that are worked on.
    pub fn load(&self) -> (usize, usize) {
        let queue = self.shared.queue.lock();
        (queue.waiting, queue.running)
    }

    /// Gives the result of `work`, unless `time` is over before. A job that hasn't begun when its
    /// time is over, or when this future is dropped, is never begun.
    pub async fn run<T: Send + 'static>(
        &self,
        owner: &str,
        time: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let (sender, result) = oneshot::channel();
        let job = move || {
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        };
        self.push(owner, Box::new(job))?;
        match tokio::time::timeout(time, result).await {
            Ok(result) => result.map_err(|_| ComputeError::Failed),
            Err(_) => Err(ComputeError::TimedOut),
        }
    }

    fn push(&self, owner: &str, job: Job) -> Result<(), ComputeError> {
        let mut queue = self.shared.queue.lock();
        let own = queue.jobs.get(owner).map_or(0, VecDeque::len);
        if queue.waiting >= MOST_WAITING || own >= MOST_WAITING_OF_ONE {
            return Err(ComputeError::Full);
        }
        if queue.idle <= queue.waiting && queue.threads < self.shared.most_threads {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("ati-compute".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    tracing::error!(%error, "no thread can be started for the work on calls");
                    return Err(ComputeError::Full);
                }
                Err(_) => {}
            }
        }
        queue.push(owner, job);
        drop(queue);
        self.shared.ready.notify_one();
        Ok(())
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.ready.notify_all();
    }
}

impl Shared {
    /// What a thread does.
    fn work(&self) {
        // Where the system refuses it, as the shipped unit does, the thread works at the priority
        // of the others.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut queue = self.queue.lock();
        while !queue.closed {
            let Some(job) = queue.pop() else {
                queue.idle += 1;
                self.ready.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            queue.running += 1;
            drop(queue);
            // A panic ends the job, which its caller notices, and not the thread.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = self.queue.lock();
            queue.running -= 1;
        }
        queue.threads -= 1;
    }
}

impl Queue {
    fn push(&mut self, owner: &str, job: Job) {
        self.waiting += 1;
        match self.jobs.get_mut(owner) {
            Some(jobs) => jobs.push_back(job),
            None => {
                let owner: Arc<str> = owner.into();
                self.turns.push_back(owner.clone());
                self.jobs.insert(owner, VecDeque::from([job]));
            }
        }
    }

    /// The first job of the owner whose turn it is.
    fn pop(&mut self) -> Option<Job> {
        let owner = self.turns.pop_front()?;
        let jobs = self.jobs.get_mut(&owner)?;
        let job = jobs.pop_front();
        if jobs.is_empty() {
            self.jobs.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        self.waiting -= 1;
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    /// Keeps a thread of the pool busy until the sender is dropped.
    async fn block(pool: &Arc<ComputePool>) -> mpsc::Sender<()> {
        let (release, blocked) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let busy = pool.clone();
        tokio::spawn(async move {
            let work = move || {
                let _ = begun.send(());
                let _ = blocked.recv();
            };
            busy.run("busy", LONG, work).await
        });
        begins.await.unwrap();
        release
    }

    #[tokio::test]
    async fn owners_take_turns_however_many_jobs_one_of_them_has() {
        let pool = Arc::new(ComputePool::new(1));
        let release = block(&pool).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut jobs = Vec::new();
        for owner in ["many", "many", "many", "few"] {
            let (pool, order) = (pool.clone(), order.clone());
            jobs.push(tokio::spawn(async move {
                let work = move || order.lock().push(owner);
                pool.run(owner, LONG, work).await
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.load(), (4, 1));
        drop(release);
        for job in jobs {
            assert_eq!(job.await.unwrap(), Ok(()));
        }
        assert_eq!(*order.lock(), ["many", "few", "many", "many"]);
    }

    #[tokio::test]
    async fn job_whose_time_is_over_is_never_begun() {
        let pool = Arc::new(ComputePool::new(1));
        let release = block(&pool).await;
        let late = pool.run("late", Duration::from_millis(1), || panic!("it was begun"));
        assert_eq!(late.await, Err::<(), _>(ComputeError::TimedOut));
        drop(release);
        assert_eq!(pool.run("next", LONG, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn queue_of_one_owner_is_bounded_and_leaves_room_for_others() {
        let pool = Arc::new(ComputePool::new(1));
        let release = block(&pool).await;
        for _ in 0..MOST_WAITING_OF_ONE {
            pool.push("many", Box::new(|| {})).unwrap();
        }
        let one_more = pool.run("many", LONG, || {}).await;
        assert_eq!(one_more, Err(ComputeError::Full));
        pool.push("other", Box::new(|| {})).unwrap();
        drop(release);
    }

    #[tokio::test]
    async fn panic_in_a_job_leaves_its_thread_alive() {
        let pool = ComputePool::new(1);
        let failed = pool.run("a", LONG, || panic!("on purpose")).await;
        assert_eq!(failed, Err::<(), _>(ComputeError::Failed));
        assert_eq!(pool.run("a", LONG, || 7).await, Ok(7));
        assert_eq!(pool.shared.queue.lock().threads, 1);
    }
}
