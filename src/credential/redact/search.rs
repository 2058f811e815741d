//! The search for many patterns at once, over patterns that stay on their locked page. A crate's
//! automaton would copy the secrets to ordinary memory.
//!
//! Every pattern has at least `window` bytes. A match whose first `window` bytes have no escape in
//! them is found as Wu and Manber do it: a table says, for two bytes of the input, how far the
//! search may jump. Any other match is found from its first escape, which is less than `window`
//! bytes away from its start. A byte that could begin an escape counts as one here: it may also
//! stand for itself.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;

use memchr::memchr3_iter;
use zeroize::Zeroizing;

use super::encodings;
use super::escapes::{Escaped, Look, Occurrence};
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
    list: Vec<Range<usize>>,
    window: usize,
    /// Whether one of them has a space in it.
    spaces: bool,
}

impl RedactionPatterns {
    pub fn new<'a>(secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        RedactionPatterns::default().with(secrets)
    }

    /// These patterns, and those of more secrets.
    pub fn with<'a>(&self, secrets: impl Iterator<Item = &'a [u8]>) -> Self {
        let new: Vec<Zeroizing<Vec<u8>>> = secrets.flat_map(encodings::of).collect();
        let old = self
            .known
            .iter()
            .flat_map(|old| old.list.iter().map(move |pattern| old.bytes(pattern)));
        let mut all: Vec<&[u8]> = old
            .chain(new.iter().map(|bytes| bytes.as_slice()))
            .collect();
        all.sort_unstable();
        all.dedup();
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

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.known.is_none() && !self.unavailable
    }

    pub(super) fn are_unavailable(&self) -> bool {
        self.unavailable
    }

    /// Whether a text is shorter than every pattern, as most headers are. An escape is never
    /// shorter than what it stands for.
    pub(super) fn are_too_long_for(&self, text: &[u8]) -> bool {
        let known = self.known.as_ref();
        known.is_some_and(|patterns| text.len() < patterns.window)
    }
}

impl Patterns {
    /// `None` where there is nothing to find.
    fn new(all: &[&[u8]]) -> io::Result<Option<Self>> {
        let Some(shortest) = all.iter().map(|bytes| bytes.len()).min() else {
            return Ok(None);
        };
        let window = shortest.min(LONGEST_WINDOW);
        let mut head = Zeroizing::new([0; JUMPS.end]);
        head[JUMPS].fill(FULL_JUMP);
        for bytes in all {
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
            .map(|bytes| {
                let start = end;
                end += bytes.len();
                start..end
            })
            .collect();
        let parts = std::iter::once(&head[..]).chain(all.iter().copied());
        let pages = Secret::concat(&parts.collect::<Vec<_>>())?;
        Ok(Some(Patterns {
            pages,
            list,
            window,
            spaces: all.iter().any(|bytes| bytes.contains(&b' ')),
        }))
    }

    fn bytes(&self, pattern: &Range<usize>) -> &[u8] {
        &self.pages.expose()[pattern.clone()]
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
        let (input, complete) = (text.input.bytes, text.complete);
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
        let (input, complete) = (text.input.bytes, text.complete);
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
            let tail = &bytes[self.window..];
            let occurrence = text.input.compare(tail, at + self.window);
            if text.is_too_costly(0) {
                return Step::GiveUp(at);
            }
            longest = longest.or_longer(occurrence.step(at, complete));
        }
        longest
    }

    /// The leftmost match from `from` on whose window has an escape in it.
    fn escaped(&self, text: &Text<'_>, from: usize) -> Step {
        let input = &text.input;
        let [first, second, third] = input.introducers();
        let mut earliest = from;
        for escape in memchr3_iter(first, second, third, &input.bytes[from..]) {
            let at = from + escape;
            if at < earliest {
                continue;
            }
            if let Some(end) = self.harmless_run(input, at) {
                earliest = end;
                continue;
            }
            let candidates = self.candidates(text, at);
            let first_start = earliest.max((at + 1).saturating_sub(self.window));
            if text.is_too_costly(0) {
                // The escape may be within a secret that began before it.
                return Step::GiveUp(first_start);
            }
            if candidates.iter().any(Option::is_some) {
                for start in first_start..=at {
                    let mut longest = Step::End;
                    for decoded in candidates.into_iter().flatten() {
                        longest = longest.or_longer(self.escaped_at(text, start..at, decoded));
                    }
                    if !matches!(longest, Step::End) {
                        return longest;
                    }
                }
            }
            // A later match has its first escape after this one.
            earliest = at + 1;
        }
        Step::End
    }

    /// What may stand at a place, of the bytes that secrets have: the byte itself and what its
    /// escapes mean. `Some(None)` is any byte.
    fn candidates(&self, text: &Text<'_>, at: usize) -> [Option<Option<u8>>; 4] {
        let known = |byte: u8| Some(byte).filter(|byte| self.contain(*byte)).map(Some);
        let own = known(text.input.bytes[at]);
        match text.input.look(at) {
            Look::Plain => [own, None, None, None],
            Look::Escape(reading) => [own, known(reading.first()), None, None],
            Look::Several => {
                let readings = text.input.readings(at);
                if readings.incomplete && !text.complete {
                    return [Some(None), None, None, None];
                }
                let mut found = [None; 4];
                for reading in &readings.list {
                    let byte = known(reading.first());
                    if byte.is_none() || found.contains(&byte) {
                        continue;
                    }
                    match found.iter_mut().find(|free| free.is_none()) {
                        Some(free) => *free = byte,
                        None => return [Some(None), None, None, None],
                    }
                }
                found
            }
        }
    }

    /// The end of a run of backslashes with an escape after it that no secret has in it: most
    /// escapes of most texts are of that kind.
    fn harmless_run(&self, input: &Escaped<'_>, at: usize) -> Option<usize> {
        if self.contain(b'\\') {
            return None;
        }
        let (length, escape) = input.run(at)?;
        let harmless = escape.is_none_or(|reading| !self.contain(reading.first()));
        harmless.then_some(at + length)
    }

    /// The longest match that begins with these literal bytes of the input, and then has an escape
    /// for this byte, or for any.
    fn escaped_at(&self, text: &Text<'_>, head: Range<usize>, decoded: Option<u8>) -> Step {
        let (start, after) = (head.start, head.end);
        let head = &text.input.bytes[head];
        let may_begin = match (head, decoded) {
            ([first, second, ..], _) => self.may_begin_with(*first, *second),
            ([first], Some(second)) => self.may_begin_with(*first, second),
            ([_] | [], _) => true,
        };
        if !may_begin {
            return Step::End;
        }
        let is_before = |pattern: &Range<usize>| {
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
                    let occurrence = text.input.compare(tail, after);
                    if text.is_too_costly(0) {
                        return Step::GiveUp(start);
                    }
                    longest = longest.or_longer(occurrence.step(start, text.complete));
                }
                _ => break,
            }
        }
        longest
    }
}

impl Occurrence {
    fn step(self, start: usize, complete: bool) -> Step {
        match self.until {
            _ if self.undecided && !complete => Step::Undecided(start),
            Some(end) => Step::Match(start..end),
            None => Step::End,
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
    input: Escaped<'a>,
    /// Nothing follows the input.
    complete: bool,
    /// The steps that the search may take.
    budget: usize,
}

impl Text<'_> {
    /// After so many steps more than those that comparisons took.
    fn is_too_costly(&self, steps: usize) -> bool {
        self.input.spend(steps);
        self.input.spent() > self.budget
    }
}

/// A pass over one input. Each kind of pattern keeps its next match, so that no part is searched
/// twice in vain.
pub(super) struct Search<'a> {
    patterns: Option<&'a Patterns>,
    text: Text<'a>,
    /// Literal and escaped; `None` before the first search.
    next: [Option<Step>; 2],
}

impl<'a> Search<'a> {
    pub(super) fn new(patterns: &'a RedactionPatterns, input: &'a [u8], complete: bool) -> Self {
        let patterns = patterns.known.as_ref();
        let spaces = patterns.is_some_and(|patterns| patterns.spaces);
        Search {
            patterns,
            text: Text {
                input: Escaped::new(input, spaces),
                complete,
                budget: WORK_PER_BYTE * input.len() + WORK,
            },
            next: [const { None }; 2],
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
                    _ => patterns.escaped(&self.text, from),
                },
            };
            best = best.or_longer(step.clone());
            *next = Some(step);
        }
        best
    }
}
