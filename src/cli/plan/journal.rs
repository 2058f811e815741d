//! What became of the steps of a plan: a file of JSON lines next to it. A line is on the disk
//! before a step begins and after it has ended, so that a run that was killed can be continued.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::error::{Code, Failure};
use crate::telemetry::audit::timestamp;
use crate::text::clip_chars;

/// Bytes of a journal that is read again, and of one result in it.
const LONGEST: u64 = 256 << 20;
const LONGEST_RESULT: usize = 16 << 20;
/// Characters of an error in it.
const LONGEST_ERROR: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It hasn't begun, or it failed.
    New,
    /// It has begun, and whether it took effect isn't known.
    Unknown,
    Done,
}

pub struct Journal {
    file: File,
    pub path: PathBuf,
    states: Vec<State>,
    /// Results that later steps need, by step from 0.
    pub results: BTreeMap<usize, Value>,
}

impl Journal {
    /// Opens the journal of a plan with this digest. That of another plan, or of a run that has
    /// finished, is begun anew; with `keep` only that of another plan is.
    pub fn open(path: &Path, digest: &str, steps: usize, keep: bool) -> Result<Self, Failure> {
        let failed = |e: io::Error| {
            let message = format!("the journal {}", path.display());
            Failure::new(Code::ExecutionFailed, message)
                .because(e)
                .hint("nothing was run; --journal names a place where it can be written")
        };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(path);
        let file = file.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = "this plan is being executed by another process";
                return Err(Failure::new(Code::ExecutionFailed, message));
            }
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        let mut text = Vec::new();
        let read = (&file).take(LONGEST).read_to_end(&mut text);
        read.map_err(failed)?;
        let mut journal = Journal {
            file,
            path: path.to_path_buf(),
            states: vec![State::New; steps],
            results: BTreeMap::new(),
        };
        if journal.replay(&text, digest, keep) {
            // A line that was cut off by the end of the last run stays on a line of its own.
            if text.last().is_some_and(|byte| *byte != b'\n') {
                journal.append("\n").map_err(failed)?;
            }
            return Ok(journal);
        }
        journal.states.fill(State::New);
        journal.results.clear();
        journal.file.set_len(0).map_err(failed)?;
        journal.file.rewind().map_err(failed)?;
        let header = json!({"plan": digest, "steps": steps, "at": now()});
        journal.append(&format!("{header}\n")).map_err(failed)?;
        sync_folder(path).map_err(failed)?;
        Ok(journal)
    }

    /// True where the lines are of an unfinished run of this plan.
    fn replay(&mut self, text: &[u8], digest: &str, keep: bool) -> bool {
        let lines = text.split(|byte| *byte == b'\n');
        let mut lines = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        if !lines.next().is_some_and(|header| header["plan"] == digest) {
            return false;
        }
        let mut finished = false;
        for line in lines {
            let Some(state) = line["state"].as_str() else {
                continue;
            };
            let step = line["step"].as_u64().and_then(|n| usize::try_from(n).ok());
            let step = step.and_then(|n| n.checked_sub(1));
            let step = step.filter(|step| *step < self.states.len());
            match (state, step) {
                ("finished", _) => finished = true,
                (_, None) => {}
                ("begun" | "unknown", Some(step)) => self.states[step] = State::Unknown,
                ("done", Some(step)) => {
                    self.states[step] = State::Done;
                    if let Some(result) = line.get("result") {
                        self.results.insert(step, result.clone());
                    }
                }
                (_, Some(step)) => self.states[step] = State::New,
            }
        }
        !finished || keep
    }

    pub fn state(&self, step: usize) -> State {
        self.states[step]
    }

    /// Whether an earlier run left something.
    pub fn is_resumed(&self) -> bool {
        self.states.iter().any(|state| *state != State::New)
    }

    /// Before the step's call is made.
    pub fn begun(&mut self, step: usize) -> Result<(), Failure> {
        self.record(json!({"step": step + 1, "state": "begun", "at": now()}))
    }

    pub fn done(&mut self, step: usize, result: Option<&Value>) -> Result<(), Failure> {
        let mut line = json!({"step": step + 1, "state": "done", "at": now()});
        let result = result.filter(|result| result.to_string().len() <= LONGEST_RESULT);
        if let Some(result) = result {
            line["result"] = result.clone();
        }
        self.record(line)
    }

    /// `is_known`: the call has failed for certain, rather than had no answer.
    pub fn failed(&mut self, step: usize, error: &str, is_known: bool) -> Result<(), Failure> {
        let state = if is_known { "failed" } else { "unknown" };
        let error = clip_chars(error, LONGEST_ERROR);
        self.record(json!({"step": step + 1, "state": state, "at": now(), "error": error}))
    }

    pub fn skipped(&mut self, step: usize) -> Result<(), Failure> {
        self.record(json!({"step": step + 1, "state": "skipped", "at": now()}))
    }

    pub fn finished(&mut self) -> Result<(), Failure> {
        self.record(json!({"state": "finished", "at": now()}))
    }

    fn record(&mut self, line: Value) -> Result<(), Failure> {
        let written = self.append(&format!("{line}\n"));
        written.map_err(|e| {
            let message = format!("the journal {}", self.path.display());
            Failure::new(Code::ExecutionFailed, message).because(e)
        })
    }

    fn append(&mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }
}

fn now() -> String {
    timestamp(SystemTime::now())
}

/// So that a new file has its name after a crash, too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, digest: &str) -> Journal {
        Journal::open(path, digest, 3, false).unwrap()
    }

    fn states(journal: &Journal) -> [State; 3] {
        [0, 1, 2].map(|step| journal.state(step))
    }

    #[test]
    fn journal_of_a_run_that_was_killed_says_what_has_begun_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.json.journal");
        let mut journal = open(&path, "a");
        assert!(!journal.is_resumed());
        journal.begun(0).unwrap();
        journal.done(0, Some(&json!({"id": 7}))).unwrap();
        journal.begun(1).unwrap();
        drop(journal);
        // The last line was half written.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"step\":3,\"sta").unwrap();
        let mut journal = open(&path, "a");
        assert_eq!(states(&journal), [State::Done, State::Unknown, State::New]);
        assert_eq!(journal.results[&0], json!({"id": 7}));
        journal.begun(1).unwrap();
        journal.failed(1, "no", true).unwrap();
        drop(journal);
        assert_eq!(
            states(&open(&path, "a")),
            [State::Done, State::New, State::New]
        );
        // Another plan has another journal.
        assert_eq!(states(&open(&path, "b")), [State::New; 3]);
    }

    #[test]
    fn journal_of_a_finished_run_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j");
        let mut journal = open(&path, "a");
        journal.begun(0).unwrap();
        journal.done(0, Some(&json!(1))).unwrap();
        journal.finished().unwrap();
        drop(journal);
        let kept = Journal::open(&path, "a", 3, true).unwrap();
        assert_eq!(kept.results[&0], json!(1));
        drop(kept);
        let journal = open(&path, "a");
        assert!(!journal.is_resumed() && journal.results.is_empty());
        // Only one process at a time.
        assert!(Journal::open(&path, "a", 3, false).is_err());
    }
}
