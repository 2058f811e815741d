//! Escapes of JSON strings and of URLs, decoded while they are compared with a secret. A text
//! matches however its encoder chose what to escape, and through several layers: JSON in a string
//! of JSON, percent-escapes in a string of JSON.
//!
//! At one place an input can often be read in more than one way: `\\u0061` is a backslash, then
//! text, or the letter a of a string in a string. A comparison follows every reading.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Layers of escapes that are looked through. More than programs make of one value.
pub(super) const LAYERS: u32 = 5;
/// Places at which one comparison may find several readings. More of them count as too much work.
const MOST_FORKS: usize = 512;
/// Places of the cache of readings.
const MOST_KEPT: usize = 4096;

/// An input that may be escaped.
pub(super) struct Escaped<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether `+` may stand for a space, as in forms.
    spaces: bool,
    /// The steps that comparisons have taken.
    spent: Cell<usize>,
    /// A cache of readings, by place and number of layers. Of two with the same place in it, the
    /// newer stays.
    known: RefCell<Vec<Option<Known>>>,
}

struct Known {
    at: usize,
    layers: u32,
    readings: Rc<Readings>,
}

/// One way to read what begins at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// It stands for the first `len` of these bytes.
    bytes: [u8; 4],
    len: usize,
    /// Where the input goes on.
    end: usize,
}

/// The readings of a place, as far as one look shows them.
pub(super) enum Look {
    /// The byte stands for itself.
    Plain,
    /// The byte stands for itself, or begins this escape, which means no further escape.
    Escape(Reading),
    /// There may be several: [`Escaped::readings`] finds them.
    Several,
}

/// Whether a text occurs at a place.
#[derive(Default)]
pub(super) struct Occurrence {
    /// Where the longest one ends.
    pub(super) until: Option<usize>,
    /// The input ends before that is decided.
    pub(super) undecided: bool,
}

/// Every reading of a place.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) list: Vec<Reading>,
    /// The input ends before all of them are known.
    pub(super) incomplete: bool,
}

impl Reading {
    fn byte(byte: u8, end: usize) -> Self {
        Reading {
            bytes: [byte, 0, 0, 0],
            len: 1,
            end,
        }
    }

    fn character(code: u32, end: usize) -> Option<Self> {
        let mut bytes = [0; 4];
        let len = char::from_u32(code)?.encode_utf8(&mut bytes).len();
        Some(Reading { bytes, len, end })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn first(&self) -> u8 {
        self.bytes[0]
    }
}

impl Readings {
    fn add(&mut self, reading: Reading) {
        if !self.list.contains(&reading) {
            self.list.push(reading);
        }
    }
}

impl<'a> Escaped<'a> {
    pub(super) fn new(bytes: &'a [u8], spaces: bool) -> Self {
        Escaped {
            bytes,
            spaces,
            spent: Cell::new(0),
            known: RefCell::default(),
        }
    }

    pub(super) fn spent(&self) -> usize {
        self.spent.get()
    }

    pub(super) fn spend(&self, steps: usize) {
        self.spent.set(self.spent.get().saturating_add(steps));
    }

    /// Whether escapes begin with this byte.
    pub(super) fn introduces(&self, byte: u8) -> bool {
        byte == b'\\' || byte == b'%' || (byte == b'+' && self.spaces)
    }

    /// The bytes that escapes begin with.
    pub(super) fn introducers(&self) -> [u8; 3] {
        [b'\\', b'%', if self.spaces { b'+' } else { b'%' }]
    }

    /// Compares a text with the input from `at` on.
    pub(super) fn compare(&self, text: &[u8], at: usize) -> Occurrence {
        let mut found = Occurrence::default();
        let mut forks: Vec<(usize, usize)> = Vec::new();
        let mut pending = Vec::new();
        let mut next = Some((0, at));
        while let Some((index, at)) = next {
            if let Some(fork) = self.advance(text, index, at, &mut found) {
                if forks.len() >= MOST_FORKS {
                    self.spend(usize::MAX);
                    return found;
                }
                if !forks.contains(&fork) {
                    forks.push(fork);
                    let (index, at) = fork;
                    let readings = self.readings(at);
                    found.undecided |= readings.incomplete;
                    let fits = |reading: &&Reading| text[index..].starts_with(reading.bytes());
                    let fitting = readings.list.iter().filter(fits);
                    pending.extend(fitting.map(|reading| (index + reading.len, reading.end)));
                }
            }
            next = pending.pop();
        }
        found
    }

    /// Compares up to the next place that has several readings, and returns that place.
    fn advance(
        &self,
        text: &[u8],
        mut index: usize,
        mut at: usize,
        found: &mut Occurrence,
    ) -> Option<(usize, usize)> {
        loop {
            self.spend(1);
            let Some(expected) = text.get(index) else {
                found.until = found.until.max(Some(at));
                return None;
            };
            let Some(byte) = self.bytes.get(at) else {
                found.undecided = true;
                return None;
            };
            match self.look(at) {
                Look::Escape(reading) if text[index..].starts_with(reading.bytes()) => {
                    (index, at) = (index + reading.len, reading.end);
                }
                Look::Escape(_) | Look::Plain if byte == expected => {
                    (index, at) = (index + 1, at + 1);
                }
                Look::Escape(_) | Look::Plain => return None,
                Look::Several => return Some((index, at)),
            }
        }
    }

    pub(super) fn look(&self, at: usize) -> Look {
        let byte = self.bytes[at];
        if !self.introduces(byte) {
            return Look::Plain;
        }
        if byte == b'+' {
            return Look::Escape(Reading::byte(b' ', at + 1));
        }
        let escape = match byte {
            b'%' => self.plain_digits(at + 1, 2).map(|value| {
                let reading = value.map(|value| Reading::byte(value as u8, at + 3));
                reading.ok_or(())
            }),
            _ => self.plain_escape(at + 1),
        };
        match escape {
            Some(Ok(reading)) if !self.introduces(reading.first()) => Look::Escape(reading),
            Some(Err(())) => Look::Plain,
            Some(Ok(_)) | None => Look::Several,
        }
    }

    /// What follows the backslash of an escape that isn't escaped itself. `None` where one look
    /// doesn't show it.
    fn plain_escape(&self, at: usize) -> Option<Result<Reading, ()>> {
        let byte = *self.bytes.get(at)?;
        if self.introduces(byte) {
            return None;
        }
        if byte != b'u' {
            let reading = short_escape(byte).map(|byte| Reading::byte(byte, at + 1));
            return Some(reading.ok_or(()));
        }
        match self.plain_digits(at + 1, 4)? {
            Some(first @ 0xD800..0xDC00) => {
                self.bytes.get(at + 5..at + 7).filter(|it| *it == b"\\u")?;
                let second = self.plain_digits(at + 7, 4)??;
                Some(Ok(Reading::character(pair(first, second)?, at + 11)?))
            }
            Some(code) => Some(Ok(Reading::character(code, at + 5)?)),
            None => Some(Err(())),
        }
    }

    /// The value of hexadecimal digits that aren't escaped themselves; `Some(None)` where there are
    /// other characters.
    fn plain_digits(&self, start: usize, count: usize) -> Option<Option<u32>> {
        let mut value = 0;
        for at in start..start + count {
            let byte = *self.bytes.get(at)?;
            match char::from(byte).to_digit(16) {
                Some(digit) => value = value * 16 + digit,
                None if self.introduces(byte) => return None,
                None => return Some(None),
            }
        }
        Some(Some(value))
    }

    /// Every reading of what begins at `at`.
    pub(super) fn readings(&self, at: usize) -> Rc<Readings> {
        self.readings_through(at, LAYERS)
    }

    fn readings_through(&self, at: usize, layers: u32) -> Rc<Readings> {
        let layer_count = LAYERS as usize + 1;
        let size = MOST_KEPT.min((self.bytes.len() + 1) * layer_count);
        let place = (at * layer_count + layers as usize) % size;
        if let Some(Some(known)) = self.known.borrow().get(place)
            && (known.at, known.layers) == (at, layers)
        {
            return known.readings.clone();
        }
        let readings = Rc::new(self.read(at, layers));
        let mut known = self.known.borrow_mut();
        if known.is_empty() {
            known.resize_with(size, || None);
        }
        known[place] = Some(Known {
            at,
            layers,
            readings: readings.clone(),
        });
        readings
    }

    /// A byte that can only stand for itself.
    fn plain(&self, at: usize) -> Option<u8> {
        let byte = self.bytes.get(at).copied();
        byte.filter(|byte| !self.introduces(*byte))
    }

    fn read(&self, at: usize, layers: u32) -> Readings {
        self.spend(1);
        let mut readings = Readings::default();
        let Some(byte) = self.bytes.get(at) else {
            readings.incomplete = true;
            return readings;
        };
        readings.add(Reading::byte(*byte, at + 1));
        if layers == 0 || !self.introduces(*byte) {
            return readings;
        }
        if let Some((length, escape)) = self.run(at) {
            let most = 1 << layers;
            let backslashes = 1..=length.min(most);
            let backslashes = backslashes.map(|count| Reading::byte(b'\\', at + count));
            readings.list.clear();
            readings.list.extend(backslashes);
            readings.list.extend(escape.filter(|_| length < most));
            self.spend(readings.list.len());
            return readings;
        }
        let inner = self.readings_through(at, layers - 1);
        readings.incomplete |= inner.incomplete;
        for reading in &inner.list {
            readings.add(*reading);
            match reading.bytes() {
                b"\\" => self.json(reading.end, layers - 1, &mut readings),
                b"%" => {
                    for (value, end) in self.digits(reading.end, 2, layers - 1, &mut readings) {
                        readings.add(Reading::byte(value as u8, end));
                    }
                }
                b"+" if self.spaces => readings.add(Reading::byte(b' ', reading.end)),
                _ => {}
            }
        }
        readings
    }

    /// The length of a run of backslashes, and the escape that its last one begins. `None` where
    /// what follows needs a closer look.
    pub(super) fn run(&self, at: usize) -> Option<(usize, Option<Reading>)> {
        let length = self.bytes[at..]
            .iter()
            .take_while(|byte| **byte == b'\\')
            .count();
        if length == 0 {
            return None;
        }
        let escape = self.plain_escape(at + length)?.ok();
        let is_simple = |reading: Reading| {
            // After further backslashes, a letter that was itself escaped begins an escape.
            let is_letter = b"bfnrtu".contains(&reading.first());
            !self.introduces(reading.first()) && (length == 1 || !is_letter)
        };
        escape.is_none_or(is_simple).then_some((length, escape))
    }

    /// The escapes whose backslash ends before `at`.
    fn json(&self, at: usize, layers: u32, readings: &mut Readings) {
        let letters = self.readings_through(at, layers);
        readings.incomplete |= letters.incomplete;
        for letter in &letters.list {
            match letter.bytes() {
                b"u" => self.unicode(letter.end, layers, readings),
                [byte] => {
                    if let Some(byte) = short_escape(*byte) {
                        readings.add(Reading::byte(byte, letter.end));
                    }
                }
                _ => {}
            }
        }
    }

    /// `\uXXXX`, or two of them for a character outside of the basic plane.
    fn unicode(&self, at: usize, layers: u32, readings: &mut Readings) {
        for (first, end) in self.digits(at, 4, layers, readings) {
            if !(0xD800..0xDC00).contains(&first) {
                let character = Reading::character(first, end);
                character.into_iter().for_each(|it| readings.add(it));
                continue;
            }
            for end in self.literal(b'\\', end, layers, readings) {
                for end in self.literal(b'u', end, layers, readings) {
                    for (second, end) in self.digits(end, 4, layers, readings) {
                        let character = pair(first, second);
                        let character = character.and_then(|code| Reading::character(code, end));
                        character.into_iter().for_each(|it| readings.add(it));
                    }
                }
            }
        }
    }

    /// Where the input goes on after this byte.
    fn literal(&self, byte: u8, at: usize, layers: u32, readings: &mut Readings) -> Vec<usize> {
        let found = self.readings_through(at, layers);
        readings.incomplete |= found.incomplete;
        let is = |reading: &&Reading| reading.bytes() == [byte];
        found.list.iter().filter(is).map(|it| it.end).collect()
    }

    /// The values of hexadecimal digits, and where the input goes on after them.
    fn digits(
        &self,
        at: usize,
        count: usize,
        layers: u32,
        readings: &mut Readings,
    ) -> Vec<(u32, usize)> {
        let mut values = vec![(0, at)];
        for _ in 0..count {
            let mut longer = Vec::new();
            for (value, at) in values {
                if let Some(byte) = self.plain(at) {
                    let digit = char::from(byte).to_digit(16);
                    longer.extend(digit.map(|digit| (value * 16 + digit, at + 1)));
                    continue;
                }
                let found = self.readings_through(at, layers);
                readings.incomplete |= found.incomplete;
                for reading in &found.list {
                    let digit = match reading.bytes() {
                        [byte] => char::from(*byte).to_digit(16),
                        _ => None,
                    };
                    longer.extend(digit.map(|digit| (value * 16 + digit, reading.end)));
                }
            }
            values = longer;
        }
        values
    }
}

/// The character that two surrogates stand for.
fn pair(first: u32, second: u32) -> Option<u32> {
    let is_pair = (0xD800..0xDC00).contains(&first) && (0xDC00..0xE000).contains(&second);
    is_pair.then(|| 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
}

/// What the letter of an escape stands for, `\u` aside.
fn short_escape(letter: u8) -> Option<u8> {
    match letter {
        b'"' | b'\\' | b'/' => Some(letter),
        b'b' => Some(8),
        b'f' => Some(12),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        _ => None,
    }
}
