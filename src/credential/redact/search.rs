//! The search for many patterns at once, over patterns that stay on their locked page. A crate's
//! automaton would copy the secrets to ordinary memory.
//!
//! Every pattern has at least `window` bytes. A match whose first `window` bytes have no escape in
//! them is found as Wu and Manber do it: a table says, for two bytes of the input, how far the
//! search may jump. Any other match is found from its first escape, which is less than `window`
//! bytes away from its start.

use std::cell::Cell;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use memchr::{memchr, memchr_iter};

use super::encodings::{self, Encoded};
use super::escapes::{Escape, Escaping, Occurrence};
use crate::keyring::Secret;

/// Places of the jump table.
const TABLE: usize = 2048;
/// The set of bytes that patterns contain.
const BYTES: Range<usize> = 0..32;
/// The set of the pairs of bytes that patterns begin with, by their place in the jump table.
const PAIRS: Range<usize> = 32..32 + TABLE / 8;
const JUMPS: Range<usize> = PAIRS.end..PAIRS.end + TABLE;
/// The jump over a pair that is in no pattern: the window less one byte.
const FULL_JUMP: u8 = u8::MAX;
const LONGEST_WINDOW: usize = 200;
/// Comparisons that a search may make per byte of its input, and in addition. Keys need far fewer;
/// a secret that repeats itself, in an input made for it, would need as many as both are long.
const WORK_PER_BYTE: usize = 64;
const WORK: usize = 64 << 10;

/// Each secret in each of its encodings. All that is derived from the secrets lies on locked pages.
#[derive(Default)]
pub struct RedactionPatterns {
    known: Option<Patterns>,
    /// There was no memory for the patterns, so every text is replaced as a whole.
    unavailable: bool,
}

struct Patterns {
    /// The two sets, the jump table, then the patterns.
    pages: Secret,
    /// Sorted by their bytes.
    list: Vec<Pattern>,
    window: usize,
}

#[derive(Clone)]
struct Pattern {
    place: Range<usize>,
    escapable: bool,
}

impl RedactionPatterns {
    pub fn new<'a>(secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        RedactionPatterns::default().with(secrets)
    }

    /// These patterns, and those of more secrets.
    pub fn with<'a>(&self, secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        let new: Vec<Encoded> = secrets.flat_map(encodings::of).collect();
        let new = new
            .iter()
            .map(|encoded| (encoded.bytes.as_slice(), encoded.escapable));
        let old = self.known.iter().flat_map(|old| {
            old.list
                .iter()
                .map(move |pattern| (old.bytes(pattern), pattern.escapable))
        });
        let mut all: Vec<(&[u8], bool)> = old.chain(new).collect();
        // Of two equal ones the escapable one stays: it finds more.
        all.sort_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
        all.dedup_by(|later, kept| later.0 == kept.0);
        match Patterns::new(&all) {
            Ok(known) if !self.unavailable => RedactionPatterns {
                known,
                unavailable: false,
            },
            Ok(_) | Err(_) => RedactionPatterns::unavailable(),
        }
    }

    pub(super) fn unavailable() -> Self {
        RedactionPatterns {
            known: None,
            unavailable: true,
        }
    }

    pub(super) fn are_unavailable(&self) -> bool {
        self.unavailable
    }
}

impl Patterns {
    /// `None` where there is nothing to find.
    fn new(all: &[(&[u8], bool)]) -> io::Result<Option<Self>> {
        let Some(shortest) = all.iter().map(|(bytes, _)| bytes.len()).min() else {
            return Ok(None);
        };
        let window = shortest.min(LONGEST_WINDOW);
        let mut head = zeroize::Zeroizing::new([0; JUMPS.end]);
        head[JUMPS].fill(FULL_JUMP);
        for (bytes, _) in all {
            for byte in *bytes {
                head[BYTES][usize::from(byte / 8)] |= 1 << (byte % 8);
            }
            let first = place(bytes[0], bytes[1]);
            head[PAIRS][first / 8] |= 1 << (first % 8);
            for (at, pair) in bytes[..window].windows(2).enumerate() {
                let jump = &mut head[JUMPS][place(pair[0], pair[1])];
                *jump = (*jump).min((window - 2 - at) as u8);
            }
        }
        let mut end = head.len();
        let list = all
            .iter()
            .map(|(bytes, escapable)| {
                let start = end;
                end += bytes.len();
                Pattern {
                    place: start..end,
                    escapable: *escapable,
                }
            })
            .collect();
        let parts = std::iter::once(&head[..]).chain(all.iter().map(|(bytes, _)| *bytes));
        let pages = Secret::concat(&parts.collect::<Vec<_>>())?;
        Ok(Some(Patterns {
            pages,
            list,
            window,
        }))
    }

    fn bytes(&self, pattern: &Pattern) -> &[u8] {
        &self.pages.expose()[pattern.place.clone()]
    }

    fn contain(&self, byte: u8) -> bool {
        self.pages.expose()[BYTES][usize::from(byte / 8)] & (1 << (byte % 8)) != 0
    }

    /// False only where no pattern begins with these two bytes.
    fn may_begin_with(&self, first: u8, second: u8) -> bool {
        let place = place(first, second);
        self.pages.expose()[PAIRS][place / 8] & (1 << (place % 8)) != 0
    }

    /// The leftmost match from `from` on whose window has no escape in it.
    fn literal(&self, text: &Text<'_>, from: usize) -> Step {
        let (input, complete) = (text.input, text.complete);
        let jumps = &self.pages.expose()[JUMPS];
        let full = self.window - 1;
        let jump = |at: usize| jumps[place(input[at + full - 1], input[at + full])];
        let mut at = from;
        while at + self.window <= input.len() {
            // Four places at a time, where all of them may be jumped over.
            if at + 3 * full + self.window <= input.len()
                && jump(at) & jump(at + full) & jump(at + 2 * full) & jump(at + 3 * full)
                    == FULL_JUMP
            {
                at += 4 * full;
                continue;
            }
            match jump(at) {
                0 => match self.literal_at(text, at) {
                    Step::End => at += 1,
                    found => return found,
                },
                FULL_JUMP => at += full,
                jump => at += usize::from(jump),
            }
        }
        if complete {
            return Step::End;
        }
        let begins = |at: &usize| {
            let rest = &input[*at..];
            let next = self
                .list
                .partition_point(|pattern| self.bytes(pattern) < rest);
            let next = self.list.get(next);
            next.is_some_and(|pattern| self.bytes(pattern).starts_with(rest))
        };
        (at..input.len())
            .find(begins)
            .map_or(Step::End, Step::Undecided)
    }

    /// The longest match at one place whose window has no escape in it.
    fn literal_at(&self, text: &Text<'_>, at: usize) -> Step {
        let (input, complete) = (text.input, text.complete);
        let rest = &input[at..];
        let window = &rest[..self.window];
        let first = self
            .list
            .partition_point(|pattern| &self.bytes(pattern)[..self.window] < window);
        let mut longest = Step::End;
        for pattern in &self.list[first..] {
            let bytes = self.bytes(pattern);
            if &bytes[..self.window] != window {
                break;
            }
            // Eight bytes at a time, roughly.
            if text.is_too_costly(bytes.len().min(rest.len()) / 8) {
                return Step::GiveUp(at);
            }
            if rest.starts_with(bytes) {
                longest = longest.or_longer(Step::Match(at..at + bytes.len()));
            } else if !complete && bytes.starts_with(rest) {
                return Step::Undecided(at);
            }
            for escaping in [Escaping::Json, Escaping::Percent] {
                // An introducer never stands for itself.
                if pattern.escapable && memchr(escaping.introducer(), window).is_none() {
                    let after = at + self.window;
                    let (occurrence, cost) = escaping.compare(&bytes[self.window..], input, after);
                    if text.is_too_costly(cost) {
                        return Step::GiveUp(at);
                    }
                    longest = longest.or_longer(occurrence.step(at, complete));
                }
            }
        }
        longest
    }

    /// The leftmost match from `from` on whose window has an escape in it.
    fn escaped(&self, escaping: Escaping, text: &Text<'_>, from: usize) -> Step {
        let (input, complete) = (text.input, text.complete);
        let mut earliest = from;
        for escape in memchr_iter(escaping.introducer(), &input[from..]) {
            let at = from + escape;
            let decoded = match escaping.decode(&input[at..]) {
                Escape::Of { bytes, .. } if self.contain(bytes[0]) => Some(Some(bytes[0])),
                // It may turn out to stand for any byte.
                Escape::Incomplete if !complete => Some(None),
                Escape::Of { .. } | Escape::Incomplete | Escape::Invalid => None,
            };
            if let Some(decoded) = decoded {
                for start in earliest.max((at + 1).saturating_sub(self.window))..=at {
                    let may_begin = match (&input[start..at], decoded) {
                        ([first, second, ..], _) => self.may_begin_with(*first, *second),
                        ([first], Some(second)) => self.may_begin_with(*first, second),
                        ([_] | [], _) => true,
                    };
                    if may_begin {
                        let head = &input[start..at];
                        match self.escaped_at(escaping, text, start, head, decoded) {
                            Step::End => {}
                            found => return found,
                        }
                    }
                }
            }
            // A later match has its first escape after this one.
            earliest = at + 1;
        }
        Step::End
    }

    /// The longest match at one place that has this literal head, and then an escape for this byte.
    fn escaped_at(
        &self,
        escaping: Escaping,
        text: &Text<'_>,
        start: usize,
        head: &[u8],
        decoded: Option<u8>,
    ) -> Step {
        let is_before = |pattern: &Pattern| {
            let (begin, tail) = self.bytes(pattern).split_at(head.len());
            match begin.cmp(head) {
                Ordering::Equal => decoded.is_some_and(|byte| tail[0] < byte),
                order => order.is_lt(),
            }
        };
        let first = self.list.partition_point(is_before);
        let mut longest = Step::End;
        for pattern in &self.list[first..] {
            match self.bytes(pattern).strip_prefix(head) {
                Some(tail) if decoded.is_none_or(|byte| tail[0] == byte) => {
                    if pattern.escapable {
                        let after = start + head.len();
                        let (occurrence, cost) = escaping.compare(tail, text.input, after);
                        if text.is_too_costly(cost) {
                            return Step::GiveUp(start);
                        }
                        longest = longest.or_longer(occurrence.step(start, text.complete));
                    }
                }
                _ => break,
            }
        }
        longest
    }
}

impl Occurrence {
    fn step(self, start: usize, complete: bool) -> Step {
        match self {
            Occurrence::Until(end) => Step::Match(start..end),
            Occurrence::Undecided if !complete => Step::Undecided(start),
            Occurrence::Undecided | Occurrence::No => Step::End,
        }
    }
}

/// The place of two bytes in the jump table.
fn place(first: u8, second: u8) -> usize {
    ((usize::from(first) << 3) ^ usize::from(second)) % TABLE
}

/// What comes next in an input.
#[derive(Clone)]
pub(super) enum Step {
    Match(Range<usize>),
    /// A match may begin here: that depends on bytes that are not there yet.
    Undecided(usize),
    /// The search has become too costly here: all that follows has to go.
    GiveUp(usize),
    /// No further match.
    End,
}

impl Step {
    fn start(&self) -> usize {
        match self {
            Step::Match(found) => found.start,
            Step::Undecided(start) | Step::GiveUp(start) => *start,
            Step::End => usize::MAX,
        }
    }

    /// The one that begins first. Of two that begin at one place, the longer one, which the
    /// undecided one may become.
    fn or_longer(self, other: Step) -> Step {
        let end = |step: &Step| match step {
            Step::Match(found) => found.end,
            Step::Undecided(_) | Step::GiveUp(_) | Step::End => usize::MAX,
        };
        let order = |step: &Step| (step.start(), std::cmp::Reverse(end(step)));
        if order(&other) < order(&self) {
            other
        } else {
            self
        }
    }
}

/// The input of a search, and how much the search may still cost.
struct Text<'a> {
    input: &'a [u8],
    /// Nothing follows the input.
    complete: bool,
    work_left: Cell<usize>,
}

impl Text<'_> {
    fn is_too_costly(&self, work: usize) -> bool {
        match self.work_left.get().checked_sub(work) {
            Some(left) => {
                self.work_left.set(left);
                false
            }
            None => true,
        }
    }
}

/// A pass over one input. Each kind of pattern keeps its next match, so that no part is searched
/// twice in vain.
pub(super) struct Search<'a> {
    patterns: Option<&'a Patterns>,
    text: Text<'a>,
    /// Literal, JSON-escaped, percent-escaped; `None` before the first search.
    next: [Option<Step>; 3],
}

impl<'a> Search<'a> {
    pub(super) fn new(patterns: &'a RedactionPatterns, input: &'a [u8], complete: bool) -> Self {
        Search {
            patterns: patterns.known.as_ref(),
            text: Text {
                input,
                complete,
                work_left: Cell::new(WORK_PER_BYTE * input.len() + WORK),
            },
            next: [const { None }; 3],
        }
    }

    /// The leftmost, and then longest, match from `from` on. `from` never goes back.
    pub(super) fn next(&mut self, from: usize) -> Step {
        let Some(patterns) = self.patterns else {
            return Step::End;
        };
        let mut best = Step::End;
        for (kind, next) in self.next.iter_mut().enumerate() {
            let step = match next.take().filter(|step| step.start() >= from) {
                Some(step) => step,
                None => match kind {
                    0 => patterns.literal(&self.text, from),
                    1 => patterns.escaped(Escaping::Json, &self.text, from),
                    _ => patterns.escaped(Escaping::Percent, &self.text, from),
                },
            };
            best = best.or_longer(step.clone());
            *next = Some(step);
        }
        best
    }
}
