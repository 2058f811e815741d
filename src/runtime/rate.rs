//! How often whom: sliding windows of calls, exact however many come at once. They survive a restart in `rate-state.json`, and processes
//! of the command line share that file.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::auth::rate::Rate;
use crate::clock::unix_millis;
use crate::files;

/// No window is longer.
const DAY: u64 = 86_400_000;
const SECOND: u64 = 1000;
/// Windows of subjects that left are thrown out, but not before there are this many.
const MANY: usize = 10_000;

/// A limit that is used up.
#[derive(Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub pattern: String,
    pub count: usize,
    pub rate: Rate,
}

pub struct Windows {
    calls: Mutex<Calls>,
    file: PathBuf,
    dirty: AtomicBool,
}

#[derive(Default)]
struct Calls {
    /// By `<subject> <pattern>`.
    windows: HashMap<String, Window>,
    /// How many there may be before somebody looks for those that can go.
    many: usize,
}

#[derive(Default)]
struct Window {
    /// In milliseconds, oldest first.
    times: VecDeque<u64>,
    /// The longest that anybody looks back: one subject may have tokens with different limits.
    length: u64,
}

impl Window {
    /// How many calls the last so many milliseconds had.
    fn count(&mut self, length: u64, now: u64) -> usize {
        self.length = self.length.max(length);
        let begin = |length: u64| now.saturating_sub(length);
        while self
            .times
            .front()
            .is_some_and(|at| *at <= begin(self.length))
        {
            self.times.pop_front();
        }
        self.times.len() - self.times.partition_point(|at| *at <= begin(length))
    }
}

/// The file, as existing deployments write it: Unix seconds.
#[derive(Default, Serialize, Deserialize)]
struct State {
    calls: BTreeMap<String, Vec<u64>>,
}

impl Windows {
    pub fn new(ati_dir: &Path) -> Self {
        Windows {
            calls: Mutex::default(),
            file: ati_dir.join("rate-state.json"),
            dirty: AtomicBool::new(false),
        }
    }

    /// Count one call against every limit, or against none where one is used up.
    pub fn admit<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)> + Clone,
        now: u64,
    ) -> Result<(), Exceeded> {
        if limits.clone().next().is_none() {
            return Ok(());
        }
        let mut calls = self.lock();
        for (pattern, rate) in limits.clone() {
            let window = calls.windows.entry(key(subject, pattern)).or_default();
            let count = window.count(rate.unit.seconds() * 1000, now);
            if count >= rate.limit as usize {
                return Err(Exceeded {
                    pattern: pattern.clone(),
                    count,
                    rate: *rate,
                });
            }
        }
        for (pattern, _) in limits {
            if let Some(window) = calls.windows.get_mut(&key(subject, pattern)) {
                window.times.push_back(now);
            }
        }
        if calls.windows.len() > calls.many.max(MANY) {
            let horizon = now.saturating_sub(DAY);
            let live = |window: &Window| window.times.back().is_some_and(|at| *at > horizon);
            calls.windows.retain(|_, window| live(window));
            calls.many = 2 * calls.windows.len();
        }
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// What the file says, for a process that begins. A file that can't be read limits nobody, and is said so.
    pub fn load(&self) {
        match self.read() {
            Ok(state) => self.take_over(state),
            Err(e) => {
                tracing::warn!(file = %self.file.display(), "rate state can't be read, and starts anew: {e}")
            }
        }
    }

    /// Write what changed since the last time. What others wrote about other subjects stays.
    pub fn save(&self) -> io::Result<()> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let saved = self.locked(|| self.write());
        if saved.is_err() {
            self.dirty.store(true, Ordering::Release);
        }
        saved
    }

    /// The same for a process that makes one call: what others wrote counts, and nobody writes in between.
    pub fn admit_shared<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)> + Clone,
        now: u64,
    ) -> io::Result<Result<(), Exceeded>> {
        if limits.clone().next().is_none() {
            return Ok(Ok(()));
        }
        self.locked(|| {
            self.take_over(self.read()?);
            let admitted = self.admit(subject, limits, now);
            if admitted.is_ok() {
                self.write()?;
            }
            Ok(admitted)
        })
    }

    fn locked<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let _held = files::lock(&self.file.with_file_name(".rate-state.lock"))?;
        work()
    }

    fn read(&self) -> io::Result<State> {
        match std::fs::read(&self.file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(State::default()),
            Err(e) => Err(e),
        }
    }

    fn write(&self) -> io::Result<()> {
        let horizon = unix_millis().saturating_sub(DAY);
        // An unreadable file is replaced: it counts for nobody.
        let mut state = self.read().unwrap_or_default();
        for (key, window) in self.lock().windows.iter() {
            // A second is over before anybody reads it.
            let kept = window.length > SECOND || window.length == 0;
            let seconds = window.times.iter().filter(|_| kept);
            let seconds = seconds.map(|at| at.div_ceil(1000)).collect();
            state.calls.insert(key.clone(), seconds);
        }
        state.calls.retain(|_, window| {
            window.retain(|at| at.saturating_mul(1000) > horizon);
            !window.is_empty()
        });
        let text = serde_json::to_vec(&state)?;
        files::write_atomic(&self.file, &text, 0o600)
    }

    /// Seconds were rounded up when they were written, so a call counts for a moment too long, and never too short.
    fn take_over(&self, state: State) {
        let mut calls = self.lock();
        for (key, seconds) in state.calls {
            let mut times: Vec<u64> = seconds.iter().map(|at| at.saturating_mul(1000)).collect();
            times.sort_unstable();
            let window = Window {
                times: times.into(),
                length: 0,
            };
            calls.windows.insert(key, window);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(subject: &str, pattern: &str) -> String {
    format!("{subject} {pattern}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(specs: &[(&str, &str)]) -> Vec<(String, Rate)> {
        specs
            .iter()
            .map(|(pattern, rate)| ((*pattern).to_owned(), Rate::parse(rate).unwrap()))
            .collect()
    }

    #[test]
    fn windows_slide_and_subjects_have_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let windows = Windows::new(dir.path());
        let limit = limits(&[("tool:*", "2/second")]);
        let ask = |subject: &str, now| windows.admit(subject, limit.iter(), now).is_ok();
        assert!(ask("a", 10_000) && ask("a", 10_400));
        assert!(!ask("a", 10_999));
        assert!(ask("b", 10_999));
        assert!(ask("a", 11_000));
        assert!(!ask("a", 11_399));
        assert!(ask("a", 11_400));
    }

    #[test]
    fn a_token_with_a_shorter_limit_forgives_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let windows = Windows::new(dir.path());
        let (day, second) = (
            limits(&[("tool:*", "2/day")]),
            limits(&[("tool:*", "100/second")]),
        );
        let ask = |limit: &Vec<(String, Rate)>, now| windows.admit("a", limit.iter(), now).is_ok();
        assert!(ask(&day, 1_000_000) && ask(&day, 1_000_001) && !ask(&day, 1_000_002));
        assert!(ask(&second, 1_100_000));
        assert!(!ask(&day, 1_200_000));
    }

    #[test]
    fn a_refusal_counts_against_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let windows = Windows::new(dir.path());
        let both = limits(&[("tool:*", "5/hour"), ("tool:x", "1/hour")]);
        let ask = |now| windows.admit("a", both.iter(), now);
        assert_eq!(ask(1), Ok(()));
        for now in 2..20 {
            let exceeded = ask(now).unwrap_err();
            assert_eq!((exceeded.pattern.as_str(), exceeded.count), ("tool:x", 1));
        }
        let wide = limits(&[("tool:*", "5/hour")]);
        let passed = (20..40).filter(|now| windows.admit("a", wide.iter(), *now).is_ok());
        assert_eq!(passed.count(), 4);
    }

    #[test]
    fn processes_share_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let limit = limits(&[("tool:*", "5/hour")]);
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..20)
                .map(|_| {
                    scope.spawn(|| {
                        let windows = Windows::new(dir.path());
                        windows
                            .admit_shared("a", limit.iter(), unix_millis())
                            .unwrap()
                            .is_ok()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| usize::from(thread.join().unwrap()))
                .sum()
        });
        assert_eq!(passed, 5);
        let text = std::fs::read_to_string(dir.path().join("rate-state.json")).unwrap();
        let state: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(state["calls"]["a tool:*"].as_array().unwrap().len(), 5);
        // A server that begins counts them too, and keeps what it doesn't know.
        let server = Windows::new(dir.path());
        server.load();
        assert!(server.admit("a", limit.iter(), unix_millis()).is_err());
        server.admit("b", limit.iter(), unix_millis()).unwrap();
        server.save().unwrap();
        let text = std::fs::read_to_string(dir.path().join("rate-state.json")).unwrap();
        assert!(
            text.contains("a tool:*") && text.contains("b tool:*"),
            "{text}"
        );
    }

    #[test]
    fn without_limits_nothing_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let windows = Windows::new(dir.path());
        windows.admit("a", [].iter(), 1).unwrap();
        windows.admit_shared("a", [].iter(), 1).unwrap().unwrap();
        windows.save().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
