//! Runs of generators. Calls that need the same credential at the same time share one run, which
//! ends with the last of them. A semaphore bounds how many programs run at a time.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{GeneratorRecipe, Minted};
use crate::credential::CredentialError;
use crate::runtime::Key;

type Minting = BoxFuture<'static, Result<Arc<Minted>, CredentialError>>;

pub struct GeneratorRuns {
    under_way: Mutex<HashMap<Key, WeakShared<Minting>>>,
    programs: Arc<Semaphore>,
}

impl GeneratorRuns {
    pub fn new(most_programs: usize) -> Self {
        GeneratorRuns {
            under_way: Mutex::default(),
            programs: Arc::new(Semaphore::new(most_programs.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// The run for this key that is under way, or a new one. The program starts when the run is
    /// first polled and there is room for it, and is killed when the last handle is dropped.
    pub(super) fn join(&self, key: Key, recipe: &Arc<GeneratorRecipe>) -> Shared<Minting> {
        let mut under_way = self.under_way.lock();
        let known = under_way.get(&key).and_then(WeakShared::upgrade);
        // What a finished run made may have been refused since.
        if let Some(run) = known.filter(|run| run.peek().is_none()) {
            return run;
        }
        let (recipe, programs) = (recipe.clone(), self.programs.clone());
        let run = async move {
            let room = programs.acquire_owned().await;
            let minted = recipe.mint(room).await?;
            Ok(Arc::new(minted))
        };
        let run = run.boxed().shared();
        under_way.retain(|_, other| other.upgrade().is_some());
        under_way.extend(run.downgrade().map(|weak| (key, weak)));
        run
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::catalog::Catalog;

    const MOST: usize = 4;

    /// A recipe whose program writes a line to `started`, then sleeps for so many seconds.
    fn recipe(dir: &Path, seconds: &str) -> Arc<GeneratorRecipe> {
        let catalog = Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n[provider.auth_generator]\n\
             type = 'command'\ncommand = 'sh'\n\
             args = ['-c', 'echo x >> {0}/started; sleep {seconds}; echo token']\n\
             [[tools]]\nname = 't'\n",
            dir.display()
        ));
        let script = format!(
            "echo x >> {0}/started; sleep {seconds}; echo token",
            dir.display()
        );
        Arc::new(GeneratorRecipe {
            provider: catalog.tools()[0].provider.clone(),
            args: ["-c", &script].map(|arg| arg.to_owned().into()).to_vec(),
            env: Vec::new(),
            secrets: Vec::new(),
        })
    }

    fn started(dir: &Path) -> usize {
        let text = std::fs::read_to_string(dir.join("started")).unwrap_or_default();
        text.lines().count()
    }

    /// Processes with this text in their command line, zombies aside.
    fn running(text: &str) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        let has = |line: &Vec<u8>| memchr::memmem::find(line, text.as_bytes()).is_some();
        lines.filter(has).count()
    }

    async fn until(what: &str, condition: impl Fn() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn calls_that_wait_for_the_same_share_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let runs = GeneratorRuns::new(MOST);
        let recipe = recipe(dir.path(), "0.2");
        let waiting: Vec<_> = (0..300).map(|_| runs.join([1; 32], &recipe)).collect();
        let minted = futures::future::join_all(waiting).await;
        let all =
            |made: &Result<Arc<Minted>, _>| made.as_ref().is_ok_and(|made| *made.value == b"token");
        assert!(minted.iter().all(all));
        assert_eq!(started(dir.path()), 1);
        // The run has ended: the next call has one of its own.
        runs.join([1; 32], &recipe).await.unwrap();
        assert_eq!(started(dir.path()), 2);
    }

    #[tokio::test]
    async fn programs_are_bounded_and_end_when_no_call_waits() {
        let dir = tempfile::tempdir().unwrap();
        let runs = GeneratorRuns::new(MOST);
        let recipe = recipe(dir.path(), "600");
        let waiting = (0..300u32).map(|number| {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&number.to_be_bytes());
            runs.join(key, &recipe)
        });
        let waiting = tokio::spawn(futures::future::join_all(waiting));
        until("programs start", || started(dir.path()) == MOST).await;
        let marker = dir.path().display().to_string();
        // A shell that has forked, and not yet started its `sleep`, counts twice for a moment.
        until("programs are few", || running(&marker) <= MOST).await;
        assert_eq!(started(dir.path()), MOST);
        waiting.abort();
        until("programs end", || running(&marker) == 0).await;
        // None of those that waited for room has started since.
        assert_eq!(started(dir.path()), MOST);
        until("room is free", || runs.programs.available_permits() == MOST).await;
    }

    #[tokio::test]
    async fn run_goes_on_while_one_of_its_calls_waits() {
        let dir = tempfile::tempdir().unwrap();
        let runs = GeneratorRuns::new(MOST);
        let recipe = recipe(dir.path(), "0.3");
        let (first, second) = (runs.join([1; 32], &recipe), runs.join([1; 32], &recipe));
        let first = tokio::spawn(first);
        until("the program starts", || started(dir.path()) == 1).await;
        first.abort();
        assert!(second.await.is_ok());
        assert_eq!(started(dir.path()), 1);
    }
}
