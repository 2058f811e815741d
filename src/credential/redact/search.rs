//! The search for many patterns at once, over patterns that stay on their locked page. A crate's automaton would copy the
//! secrets to ordinary memory.
//!
//! Patterns without escapes are found as Wu and Manber do it: a table says, for two bytes of the input, how far the search
//! may jump. Patterns with escapes are found from their first escape, which no pattern without escapes has.

use std::ops::Range;

use memchr::{memchr, memchr_iter};

use super::encodings::{self, Encoded};
use super::escapes::{Escape, Escaping, Occurrence};
use crate::keyring::Secret;

/// Places of the jump table.
const TABLE: usize = 2048;
/// Bytes of the set of bytes that escapable patterns contain.
const SET: usize = 32;
/// A jump must fit in a byte.
const LONGEST_WINDOW: usize = 200;

/// Each secret in each of its encodings. All that is derived from the secrets lies on locked pages.
#[derive(Default)]
pub struct RedactionPatterns(Option<Patterns>);

struct Patterns {
    /// The set, the table, then the patterns.
    pages: Secret,
    /// Sorted by their bytes.
    list: Vec<Pattern>,
    /// Every pattern has at least this many bytes; this many are compared at first.
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
        let mut all: Vec<(&[u8], bool)> = new
            .iter()
            .map(|encoded| (encoded.bytes.as_slice(), encoded.escapable))
            .collect();
        if let Some(old) = &self.0 {
            all.extend(
                old.list
                    .iter()
                    .map(|pattern| (old.bytes(pattern), pattern.escapable)),
            );
        }
        // Of two equal ones the escapable one stays: it finds more.
        all.sort_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
        all.dedup_by(|later, kept| later.0 == kept.0);
        RedactionPatterns(Patterns::new(&all))
    }
}

impl Patterns {
    /// `None` where there is nothing to find, or no memory to keep it in.
    fn new(all: &[(&[u8], bool)]) -> Option<Self> {
        let window = all.iter().map(|(bytes, _)| bytes.len()).min()?;
        let window = window.min(LONGEST_WINDOW);
        let mut head = zeroize::Zeroizing::new([0; SET + TABLE]);
        let (set, table) = head.split_at_mut(SET);
        table.fill((window - 1) as u8);
        for (bytes, escapable) in all {
            for (at, pair) in bytes[..window].windows(2).enumerate() {
                let jump = &mut table[place(pair[0], pair[1])];
                *jump = (*jump).min((window - 2 - at) as u8);
            }
            if *escapable {
                bytes
                    .iter()
                    .for_each(|byte| set[usize::from(byte >> 3)] |= 1 << (byte & 7));
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
        let pages = Secret::concat(&parts.collect::<Vec<_>>()).ok()?;
        Some(Patterns {
            pages,
            list,
            window,
        })
    }

    fn bytes(&self, pattern: &Pattern) -> &[u8] {
        &self.pages.expose()[pattern.place.clone()]
    }

    /// Whether an escapable pattern contains this byte.
    fn has(&self, byte: u8) -> bool {
        self.pages.expose()[usize::from(byte >> 3)] & (1 << (byte & 7)) != 0
    }

    fn table(&self) -> &[u8] {
        &self.pages.expose()[SET..SET + TABLE]
    }

    /// The leftmost literal match from `from` on.
    fn literal(&self, input: &[u8], from: usize, complete: bool) -> Step {
        let table = self.table();
        let mut at = from;
        while let Some(window) = input.get(at..at + self.window) {
            let jump = table[place(window[self.window - 2], window[self.window - 1])];
            if jump > 0 {
                at += usize::from(jump);
                continue;
            }
            match self.literal_at(input, at, complete) {
                Step::End => at += 1,
                found => return found,
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

    /// The longest literal match at one place.
    fn literal_at(&self, input: &[u8], at: usize, complete: bool) -> Step {
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
            if rest.starts_with(bytes) {
                longest = longest.or_longer(Step::Match(at..at + bytes.len()));
            } else if !complete && bytes.starts_with(rest) {
                return Step::Undecided(at);
            }
        }
        longest
    }

    /// The leftmost match from `from` on that has an escape in it.
    fn escaped(&self, escaping: Escaping, input: &[u8], from: usize, complete: bool) -> Step {
        for escape in memchr_iter(escaping.introducer(), &input[from..]) {
            match self.escaped_at(escaping, input, from, from + escape, complete) {
                Step::End => {}
                found => return found,
            }
        }
        Step::End
    }

    /// The leftmost, and then longest, match whose first escape is this one.
    fn escaped_at(
        &self,
        escaping: Escaping,
        input: &[u8],
        from: usize,
        at: usize,
        complete: bool,
    ) -> Step {
        let decoded = match escaping.decode(&input[at..]) {
            Escape::Of { bytes, .. } if self.has(bytes[0]) => Some(bytes[0]),
            Escape::Of { .. } | Escape::Invalid => return Step::End,
            Escape::Incomplete if complete => return Step::End,
            // It may turn out to stand for any byte.
            Escape::Incomplete => None,
        };
        let mut best = Step::End;
        for pattern in self.list.iter().filter(|pattern| pattern.escapable) {
            let text = self.bytes(pattern);
            // Before its first escape a text is literal, and has no introducer.
            let literal = memchr(escaping.introducer(), text).unwrap_or(text.len() - 1);
            let reachable = &text[..=literal.min(at - from)];
            let mut compare = |before: usize| {
                let (head, tail) = text.split_at(before);
                if !input[..at].ends_with(head) {
                    return;
                }
                let start = at - before;
                let step = match escaping.compare(tail, input, at) {
                    Occurrence::Until(end) => Step::Match(start..end),
                    Occurrence::Undecided if !complete => Step::Undecided(start),
                    Occurrence::Undecided | Occurrence::No => return,
                };
                best = std::mem::replace(&mut best, Step::End).or_longer(step);
            };
            match decoded {
                Some(first) => memchr_iter(first, reachable).for_each(&mut compare),
                None => (0..reachable.len()).for_each(&mut compare),
            }
        }
        best
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
    /// No further match.
    End,
}

impl Step {
    fn start(&self) -> usize {
        match self {
            Step::Match(found) => found.start,
            Step::Undecided(start) => *start,
            Step::End => usize::MAX,
        }
    }

    /// The one that begins first. Of two that begin at one place, the longer one, which the undecided one may become.
    fn or_longer(self, other: Step) -> Step {
        let end = |step: &Step| match step {
            Step::Match(found) => found.end,
            Step::Undecided(_) | Step::End => usize::MAX,
        };
        let order = |step: &Step| (step.start(), std::cmp::Reverse(end(step)));
        if order(&other) < order(&self) {
            other
        } else {
            self
        }
    }
}

/// A pass over one input. Each kind of pattern keeps its next match, so that no part is searched twice in vain.
pub(super) struct Search<'a> {
    patterns: Option<&'a Patterns>,
    input: &'a [u8],
    /// Nothing follows the input.
    complete: bool,
    /// Literal, JSON-escaped, percent-escaped; `None` before the first search.
    next: [Option<Step>; 3],
}

impl<'a> Search<'a> {
    pub(super) fn new(patterns: &'a RedactionPatterns, input: &'a [u8], complete: bool) -> Self {
        Search {
            patterns: patterns.0.as_ref(),
            input,
            complete,
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
                    0 => patterns.literal(self.input, from, self.complete),
                    1 => patterns.escaped(Escaping::Json, self.input, from, self.complete),
                    _ => patterns.escaped(Escaping::Percent, self.input, from, self.complete),
                },
            };
            best = best.or_longer(step.clone());
            *next = Some(step);
        }
        best
    }
}
