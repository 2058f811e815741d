//! Rate limits: sliding windows of calls for each subject and limit, exact however many calls come
//! at once. They survive a restart in `rate-state.json`, and processes of the command line share
//! that file.
//!
//! The file has whole seconds, for readers of existing deployments. Limits per second need more: it
//! has the milliseconds of the last calls too, under a key that those readers ignore.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::auth::rate::Rate;
use crate::clock::unix_millis;
use crate::files;

/// The longest window, in milliseconds.
const DAY: u64 = 86_400_000;
const SECOND: u64 = 1000;
/// Calls that are this old, in milliseconds, are in the file by their second only.
const RECENT: u64 = 2 * SECOND;
/// Windows without recent calls are removed once there are more than this.
const SWEEP_ABOVE: usize = 10_000;
/// Damaged files that are kept. After that, the newest replaces the last.
const MOST_DAMAGED: usize = 10;

/// The limit that a call exceeds.
#[derive(Debug, PartialEq, Eq)]
pub struct RateExceeded {
    pub pattern: String,
    pub count: usize,
    pub rate: Rate,
    /// Milliseconds until no limit is exceeded, if no further calls are made.
    pub wait: u64,
}

pub struct RateWindows {
    calls: Mutex<CallTimes>,
    file: PathBuf,
    dirty: AtomicBool,
}

#[derive(Default)]
struct CallTimes {
    /// By `<subject> <pattern>`.
    windows: HashMap<String, Window>,
    /// Windows without recent calls are looked for once there are more than this.
    sweep_above: usize,
}

#[derive(Default)]
struct Window {
    /// In milliseconds, oldest first.
    times: VecDeque<u64>,
    /// The longest of the limits that count here, in milliseconds: one subject may have tokens with
    /// different limits.
    length: u64,
}

impl Window {
    /// How many calls there were in the last `length` milliseconds.
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

    /// How long until fewer than `limit` calls are in the last `length` milliseconds.
    fn wait(&self, limit: usize, length: u64, now: u64) -> u64 {
        let oldest_kept = self.times.len().checked_sub(limit);
        // No call ever passes a limit of none: the caller may as well wait for a whole window.
        let at = oldest_kept.and_then(|index| self.times.get(index));
        at.map_or(length, |at| (at + length).saturating_sub(now))
    }
}

/// `rate-state.json`, as existing deployments write it: Unix seconds.
#[derive(Default, Serialize, Deserialize)]
struct RateFile {
    /// Rounded up, so that a call counts for too long, and never too short.
    calls: BTreeMap<String, Vec<u64>>,
    /// The last calls of some windows, in milliseconds, in the order of `calls`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    recent_ms: BTreeMap<String, Vec<u64>>,
}

impl RateFile {
    /// The times of one window, in milliseconds: exact where they are known, else the end of the
    /// second.
    fn times(&self, key: &str) -> Vec<u64> {
        let seconds = self.calls.get(key).map_or(&[][..], Vec::as_slice);
        let mut times: Vec<u64> = seconds.iter().map(|at| at.saturating_mul(SECOND)).collect();
        times.sort_unstable();
        let mut recent = self.recent_ms.get(key).cloned().unwrap_or_default();
        recent.sort_unstable();
        for (at, exact) in times.iter_mut().rev().zip(recent.into_iter().rev()) {
            // Otherwise another program changed the one list and not the other.
            if exact.div_ceil(SECOND).saturating_mul(SECOND) == *at {
                *at = exact;
            }
        }
        times.sort_unstable();
        times
    }
}

impl RateWindows {
    pub fn new(ati_dir: &Path) -> Self {
        RateWindows {
            calls: Mutex::default(),
            file: ati_dir.join("rate-state.json"),
            dirty: AtomicBool::new(false),
        }
    }

    /// Counts one call against every limit, or against none if it exceeds one.
    pub fn admit<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)> + Clone,
        now: u64,
    ) -> Result<(), RateExceeded> {
        if limits.clone().next().is_none() {
            return Ok(());
        }
        let mut calls = self.calls.lock();
        let mut exceeded: Option<RateExceeded> = None;
        for (pattern, rate) in limits.clone() {
            let window = calls.windows.entry(key(subject, pattern)).or_default();
            let length = rate.unit.seconds() * SECOND;
            let count = window.count(length, now);
            if count >= rate.limit as usize {
                let wait = window.wait(rate.limit as usize, length, now);
                let first = exceeded.get_or_insert_with(|| RateExceeded {
                    pattern: pattern.clone(),
                    count,
                    rate: *rate,
                    wait,
                });
                first.wait = first.wait.max(wait);
            }
        }
        if let Some(exceeded) = exceeded {
            return Err(exceeded);
        }
        for (pattern, _) in limits {
            if let Some(window) = calls.windows.get_mut(&key(subject, pattern)) {
                window.times.push_back(now);
            }
        }
        if calls.windows.len() > calls.sweep_above.max(SWEEP_ABOVE) {
            let horizon = now.saturating_sub(DAY);
            let live = |window: &Window| window.times.back().is_some_and(|at| *at > horizon);
            calls.windows.retain(|_, window| live(window));
            calls.sweep_above = 2 * calls.windows.len();
        }
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    /// Reads the file when the server starts. Without a readable one, counting begins at zero.
    pub fn load(&self) {
        match self.read() {
            Ok(state) => self.take_over(state),
            Err(e) => {
                let file = self.file.display();
                tracing::warn!(%file, error = %e, "rate state can't be read, and starts anew");
            }
        }
    }

    /// Writes the windows to the file if calls were counted since the last time. Windows of other
    /// processes stay in the file.
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

    /// As `admit`, for a process that makes one call: reads, counts and writes under a file lock,
    /// so that calls of all processes count. The time is taken under the lock: a process may wait
    /// for it, and its call must not count from an earlier time than that of others before it.
    pub fn admit_shared<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)> + Clone,
        now: impl FnOnce() -> u64,
    ) -> io::Result<Result<(), RateExceeded>> {
        if limits.clone().next().is_none() {
            return Ok(Ok(()));
        }
        self.locked(|| {
            self.take_over(self.read()?);
            let admitted = self.admit(subject, limits, now());
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

    fn read(&self) -> io::Result<RateFile> {
        match std::fs::read(&self.file) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_else(|e| {
                self.set_aside(&e);
                RateFile::default()
            })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(RateFile::default()),
            Err(e) => Err(e),
        }
    }

    /// Keeps a damaged file: a process that can damage it can lift every limit, and the
    /// file is the trace of that. Counting starts anew.
    fn set_aside(&self, error: &serde_json::Error) {
        let names = std::iter::once("damaged".to_owned())
            .chain((1..MOST_DAMAGED).map(|number| format!("damaged.{number}")));
        let mut places = names.map(|end| self.file.with_extension(format!("json.{end}")));
        let last = self
            .file
            .with_extension(format!("json.damaged.{MOST_DAMAGED}"));
        let kept = places.find(|place| !place.exists()).unwrap_or(last);
        let (file, renamed) = (self.file.display(), std::fs::rename(&self.file, &kept));
        let kept = kept.display();
        match renamed {
            Ok(()) => tracing::error!(
                %file, %kept, %error,
                "rate state is damaged: it is kept aside, and counting starts anew"
            ),
            Err(e) => tracing::error!(
                %file, %error, rename = %e,
                "rate state is damaged and can't be kept aside; counting starts anew"
            ),
        }
    }

    fn write(&self) -> io::Result<()> {
        let now = unix_millis();
        // An unreadable file is replaced.
        let mut state = self.read().unwrap_or_default();
        for (key, window) in self.calls.lock().windows.iter() {
            // A window that was only read from the file may belong to any limit.
            let length = if window.length == 0 {
                DAY
            } else {
                window.length
            };
            let live = |at: &u64| *at > now.saturating_sub(length);
            let times: Vec<u64> = window.times.iter().copied().filter(live).collect();
            let seconds = times.iter().map(|at| at.div_ceil(SECOND)).collect();
            state.calls.insert(key.clone(), seconds);
            state.recent_ms.insert(key.clone(), times);
        }
        state.calls.retain(|_, window| {
            window.retain(|at| at.saturating_mul(SECOND) > now.saturating_sub(DAY));
            !window.is_empty()
        });
        state.recent_ms.retain(|_, window| {
            window.retain(|at| *at > now.saturating_sub(RECENT));
            !window.is_empty()
        });
        let text = serde_json::to_vec(&state)?;
        files::write_atomic(&self.file, &text, 0o600)
    }

    fn take_over(&self, state: RateFile) {
        let mut calls = self.calls.lock();
        for key in state.calls.keys() {
            let window = Window {
                times: state.times(key).into(),
                length: 0,
            };
            calls.windows.insert(key.clone(), window);
        }
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
    fn windows_slide_and_each_subject_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let windows = RateWindows::new(dir.path());
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
    fn token_with_a_shorter_limit_does_not_shorten_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let windows = RateWindows::new(dir.path());
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
    fn refused_call_counts_against_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        let windows = RateWindows::new(dir.path());
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
    fn calls_of_all_processes_count_in_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let limit = limits(&[("tool:*", "5/hour")]);
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..20)
                .map(|_| {
                    scope.spawn(|| {
                        let windows = RateWindows::new(dir.path());
                        windows
                            .admit_shared("a", limit.iter(), unix_millis)
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
        // A server that starts counts them too, and keeps the windows of other subjects.
        let server = RateWindows::new(dir.path());
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

    /// As a process of its own would ask.
    fn ask_alone(dir: &Path, limit: &[(String, Rate)], now: u64) -> Result<(), RateExceeded> {
        let windows = RateWindows::new(dir);
        windows.admit_shared("a", limit.iter(), || now).unwrap()
    }

    #[test]
    fn limit_per_second_holds_across_processes_to_the_millisecond() {
        let dir = tempfile::tempdir().unwrap();
        let limit = limits(&[("tool:*", "2/s")]);
        // Later than the real clock, which decides what is old enough to leave the file.
        let begin = (unix_millis() / SECOND + 10) * SECOND + 400;
        let ask = |later| ask_alone(dir.path(), &limit, begin + later);
        assert_eq!((ask(0), ask(300)), (Ok(()), Ok(())));
        assert_eq!(ask(301).unwrap_err().wait, 699);
        assert_eq!(ask(999).unwrap_err().wait, 1);
        assert_eq!(ask(1000), Ok(()));
        assert!(ask(1299).is_err());
        assert_eq!(ask(1300), Ok(()));
    }

    #[test]
    fn file_with_whole_seconds_only_counts_each_call_to_the_end_of_its_second() {
        let dir = tempfile::tempdir().unwrap();
        let limit = limits(&[("tool:*", "1/s")]);
        let second = unix_millis() / SECOND + 10;
        let file = dir.path().join("rate-state.json");
        let text = format!("{{\"calls\":{{\"a tool:*\":[{second}]}}}}");
        for (later, passes) in [(0, false), (999, false), (1000, true)] {
            std::fs::write(&file, &text).unwrap();
            let asked = ask_alone(dir.path(), &limit, second * SECOND + later);
            assert_eq!(asked.is_ok(), passes, "{later}");
        }
        // What is written stays readable for programs that know whole seconds.
        let state: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(state["calls"]["a tool:*"], serde_json::json!([second + 1]));
    }

    #[test]
    fn milliseconds_that_do_not_fit_their_second_are_ignored() {
        let file = RateFile {
            calls: [("k".to_owned(), vec![7, 9])].into(),
            recent_ms: [("k".to_owned(), vec![6500, 7500, 8200])].into(),
        };
        assert_eq!(file.times("k"), [7000, 8200]);
        assert!(file.times("other").is_empty());
    }

    #[test]
    fn wait_is_that_of_the_limit_that_frees_last() {
        let dir = tempfile::tempdir().unwrap();
        let windows = RateWindows::new(dir.path());
        let both = limits(&[("tool:*", "1/s"), ("tool:x", "1/minute")]);
        let ask = |now| windows.admit("a", both.iter(), now);
        assert_eq!(ask(10_000), Ok(()));
        let exceeded = ask(10_250).unwrap_err();
        assert_eq!(
            (exceeded.pattern.as_str(), exceeded.wait),
            ("tool:*", 59_750)
        );
        let none = limits(&[("tool:*", "0/hour")]);
        let refused = windows.admit("b", none.iter(), 10_000).unwrap_err();
        assert_eq!((refused.count, refused.wait), (0, 3_600_000));
    }

    #[test]
    fn damaged_file_is_kept_aside_and_counting_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rate-state.json");
        let limit = limits(&[("tool:*", "1/hour")]);
        let now = unix_millis();
        for (round, damage) in ["{\"calls\":", "[]", "nonsense"].iter().enumerate() {
            std::fs::write(&path, damage).unwrap();
            match round {
                0 => RateWindows::new(dir.path()).load(),
                1 => {
                    let windows = RateWindows::new(dir.path());
                    let first = windows.admit_shared("a", limit.iter(), || now).unwrap();
                    assert_eq!(first, Ok(()));
                    assert!(
                        windows
                            .admit_shared("a", limit.iter(), || now)
                            .unwrap()
                            .is_err()
                    );
                }
                _ => {
                    let windows = RateWindows::new(dir.path());
                    windows.admit("a", limit.iter(), now).unwrap();
                    windows.save().unwrap();
                    assert!(std::fs::read_to_string(&path).unwrap().contains("a tool:*"));
                }
            }
            let name = match round {
                0 => "rate-state.json.damaged".to_owned(),
                _ => format!("rate-state.json.damaged.{round}"),
            };
            let kept = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!(kept, *damage);
        }
    }

    #[test]
    fn call_without_limits_writes_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let windows = RateWindows::new(dir.path());
        windows.admit("a", [].iter(), 1).unwrap();
        windows.admit_shared("a", [].iter(), || 1).unwrap().unwrap();
        windows.save().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
