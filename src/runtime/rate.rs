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

impl CallTimes {
    /// The first of the limits that one more call would exceed.
    fn exceeded<'a>(
        &mut self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)>,
        now: u64,
    ) -> Option<RateExceeded> {
        let mut exceeded: Option<RateExceeded> = None;
        for (pattern, rate) in limits {
            let window = self.windows.entry(key(subject, pattern)).or_default();
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
        exceeded
    }
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
        if let Some(exceeded) = calls.exceeded(subject, limits.clone(), now) {
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

    /// Whether a call would be admitted now. It isn't counted.
    pub fn would_admit<'a>(
        &self,
        subject: &str,
        limits: impl Iterator<Item = &'a (String, Rate)>,
        now: u64,
    ) -> Result<(), RateExceeded> {
        match self.calls.lock().exceeded(subject, limits, now) {
            Some(exceeded) => Err(exceeded),
            None => Ok(()),
        }
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
mod tests;
