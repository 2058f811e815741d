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
/// The lowest priority: a worker that has something to do goes first. At 10, Linux gives a busy
/// thread a tenth of a core next to busy workers, some milliseconds at a time, and one request in a
/// hundred waits for these; at 19 it gives a seventieth.
const NICE: i32 = 19;

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

/// How soon a job that may wait for room in the queue tries again.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// A pool of a bounded number of threads with a bounded queue. Each owner has a queue of its own,
/// and the owners take turns: one that sends many jobs waits for itself, and others don't. A job
/// can't be interrupted, so one owner never has more than half of the threads, even where no other
/// owner waits: the next one begins at once. Threads are started when they are needed first.
pub struct ComputePool {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    most_threads: usize,
    /// Of these, the threads of one owner.
    most_of_one: usize,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// The owners that have jobs, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    jobs: HashMap<Arc<str>, VecDeque<Job>>,
    waiting: usize,
    running: usize,
    /// The same by owner. An owner without running jobs isn't in it.
    running_of: HashMap<Arc<str>, usize>,
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
                most_of_one: (most_threads / 2).max(1),
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
        let (job, result) = job_of(work);
        self.push(owner, job).map_err(|_| ComputeError::Full)?;
        match tokio::time::timeout(time, result).await {
            Ok(result) => result.map_err(|_| ComputeError::Failed),
            Err(_) => Err(ComputeError::TimedOut),
        }
    }

    /// As [`ComputePool::run`], for work that must not be lost: it waits as long as it has to.
    pub async fn run_patiently<T: Send + 'static>(
        &self,
        owner: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        let (mut job, result) = job_of(work);
        while let Err(refused) = self.push(owner, job) {
            job = refused;
            tokio::time::sleep(RETRY_DELAY).await;
        }
        result.await.map_err(|_| ComputeError::Failed)
    }

    /// Drops a value that may have many parts. Where there is no room in the queue, it is dropped
    /// here.
    pub fn discard<T: Send + 'static>(&self, owner: &str, value: T) {
        let _ = self.push(owner, Box::new(move || drop(value)));
    }

    /// Gives the job back where there is no room for it.
    fn push(&self, owner: &str, job: Job) -> Result<(), Job> {
        let mut queue = self.shared.queue.lock();
        let own = queue.jobs.get(owner).map_or(0, VecDeque::len);
        if queue.waiting >= MOST_WAITING || own >= MOST_WAITING_OF_ONE {
            return Err(job);
        }
        if queue.idle <= queue.waiting && queue.threads < self.shared.most_threads {
            let shared = self.shared.clone();
            let thread = std::thread::Builder::new().name("ati-compute".to_owned());
            match thread.spawn(move || shared.work()) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => {
                    tracing::error!(%error, "no thread can be started for the work on calls");
                    return Err(job);
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
            let Some((owner, job)) = queue.begin(self.most_of_one) else {
                queue.idle += 1;
                self.ready.wait(&mut queue);
                queue.idle -= 1;
                continue;
            };
            drop(queue);
            // A panic ends the job, which its caller notices, and not the thread.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = self.queue.lock();
            queue.end(&owner);
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

    /// The first job of the owner whose turn it is. Owners with `most_of_one` running jobs are
    /// passed over: the thread that ends one of them looks here again.
    fn begin(&mut self, most_of_one: usize) -> Option<(Arc<str>, Job)> {
        let running = |owner: &Arc<str>| self.running_of.get(owner).copied().unwrap_or(0);
        let next = self.turns.iter().position(|o| running(o) < most_of_one)?;
        let owner = self.turns.remove(next)?;
        let jobs = self.jobs.get_mut(&owner)?;
        let job = jobs.pop_front()?;
        if jobs.is_empty() {
            self.jobs.remove(&owner);
        } else {
            self.turns.push_back(owner.clone());
        }
        self.waiting -= 1;
        self.running += 1;
        *self.running_of.entry(owner.clone()).or_default() += 1;
        Some((owner, job))
    }

    fn end(&mut self, owner: &Arc<str>) {
        self.running -= 1;
        if let Some(running) = self.running_of.get_mut(owner) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(owner);
            }
        }
    }
}

/// A job, and where its result comes. It isn't begun once the result isn't waited for.
fn job_of<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> (Job, oneshot::Receiver<T>) {
    let (sender, result) = oneshot::channel();
    let job = move || {
        if !sender.is_closed() {
            let _ = sender.send(work());
        }
    };
    (Box::new(job), result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    /// Keeps a thread of the pool busy until the sender is dropped.
    async fn block(pool: &Arc<ComputePool>) -> mpsc::Sender<()> {
        block_as("busy", pool).await
    }

    async fn block_as(owner: &'static str, pool: &Arc<ComputePool>) -> mpsc::Sender<()> {
        let (release, blocked) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let busy = pool.clone();
        tokio::spawn(async move {
            let work = move || {
                let _ = begun.send(());
                let _ = blocked.recv();
            };
            busy.run(owner, LONG, work).await
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
            pool.push("many", Box::new(|| {})).ok().unwrap();
        }
        let one_more = pool.run("many", LONG, || {}).await;
        assert_eq!(one_more, Err(ComputeError::Full));
        pool.push("other", Box::new(|| {})).ok().unwrap();
        // What must not be lost waits until there is room.
        let patient = pool.run_patiently("many", || 7);
        let (seven, ()) = tokio::join!(patient, async { drop(release) });
        assert_eq!(seven, Ok(7));
    }

    #[tokio::test]
    async fn owner_never_has_more_than_half_of_the_threads() {
        for (threads, most) in [(2, 1), (3, 1), (4, 2), (8, 4)] {
            let pool = Arc::new(ComputePool::new(threads));
            let mut held = Vec::new();
            for _ in 0..most {
                held.push(block_as("greedy", &pool).await);
            }
            let waiting = pool.clone();
            let more = tokio::spawn(async move { waiting.run("greedy", LONG, || ()).await });
            while pool.load() != (1, most) {
                tokio::task::yield_now().await;
            }
            // Others begin at once, though jobs of the greedy one came first.
            assert_eq!(pool.run("other", LONG, || 7).await, Ok(7));
            assert!(!more.is_finished());
            held.pop();
            assert_eq!(more.await.unwrap(), Ok(()));
        }
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
