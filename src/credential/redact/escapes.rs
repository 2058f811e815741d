//! Escapes of JSON strings and of URLs, decoded one by one. A text matches however its encoder
//! chose what to escape.

/// How single characters of a text may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escaping {
    Json,
    Percent,
}

/// One escape at the beginning of an input.
pub(super) enum Escape {
    /// It stands for the first `len` of these bytes, and takes `size` bytes of the input.
    Of {
        bytes: [u8; 4],
        len: usize,
        size: usize,
    },
    /// The input ends within it.
    Incomplete,
    Invalid,
}

/// Whether a text occurs at a place.
pub(super) enum Occurrence {
    /// Yes, and it ends here.
    Until(usize),
    /// The input ends before it does.
    Undecided,
    No,
}

impl Escaping {
    /// The byte that every escape begins with. It stands for itself only if it is escaped.
    pub(super) fn introducer(self) -> u8 {
        match self {
            Escaping::Json => b'\\',
            Escaping::Percent => b'%',
        }
    }

    /// Decodes the escape that `input` begins with.
    pub(super) fn decode(self, input: &[u8]) -> Escape {
        match self {
            Escaping::Json => json(input),
            Escaping::Percent => match digits(input, 1, 2) {
                Digits::Value(value) => single(value as u8, 3),
                Digits::Incomplete => Escape::Incomplete,
                Digits::Invalid => Escape::Invalid,
            },
        }
    }

    /// Compares the rest of a text with the input from `at` on. Also returns how many bytes of the
    /// input it has looked at.
    pub(super) fn compare(self, text: &[u8], input: &[u8], at: usize) -> (Occurrence, usize) {
        let mut end = at;
        let occurrence = self.advance(text, input, &mut end);
        (occurrence, end - at)
    }

    fn advance(self, mut text: &[u8], input: &[u8], at: &mut usize) -> Occurrence {
        while let Some(expected) = text.first() {
            let Some(byte) = input.get(*at) else {
                return Occurrence::Undecided;
            };
            if *byte != self.introducer() {
                if byte != expected {
                    return Occurrence::No;
                }
                (text, *at) = (&text[1..], *at + 1);
                continue;
            }
            match self.decode(&input[*at..]) {
                Escape::Of { bytes, len, size } if text.starts_with(&bytes[..len]) => {
                    (text, *at) = (&text[len..], *at + size);
                }
                Escape::Incomplete => return Occurrence::Undecided,
                Escape::Of { .. } | Escape::Invalid => return Occurrence::No,
            }
        }
        Occurrence::Until(*at)
    }
}

fn single(byte: u8, size: usize) -> Escape {
    Escape::Of {
        bytes: [byte, 0, 0, 0],
        len: 1,
        size,
    }
}

fn json(input: &[u8]) -> Escape {
    match input.get(1) {
        None => Escape::Incomplete,
        Some(byte @ (b'"' | b'\\' | b'/')) => single(*byte, 2),
        Some(b'b') => single(8, 2),
        Some(b'f') => single(12, 2),
        Some(b'n') => single(b'\n', 2),
        Some(b'r') => single(b'\r', 2),
        Some(b't') => single(b'\t', 2),
        Some(b'u') => unicode(input),
        Some(_) => Escape::Invalid,
    }
}

/// `\uXXXX`, or two of them for a character outside of the basic plane.
fn unicode(input: &[u8]) -> Escape {
    let first = match digits(input, 2, 4) {
        Digits::Value(value) => value,
        Digits::Incomplete => return Escape::Incomplete,
        Digits::Invalid => return Escape::Invalid,
    };
    let mut size = 6;
    let mut code = first;
    if (0xD800..0xDC00).contains(&first) {
        let pair = &input[6..];
        if !b"\\u".starts_with(&pair[..pair.len().min(2)]) {
            return Escape::Invalid;
        }
        match digits(pair, 2, 4) {
            Digits::Value(second) if (0xDC00..0xE000).contains(&second) => {
                code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                size = 12;
            }
            Digits::Incomplete => return Escape::Incomplete,
            Digits::Value(_) | Digits::Invalid => return Escape::Invalid,
        }
    }
    let Some(character) = char::from_u32(code) else {
        return Escape::Invalid;
    };
    let mut bytes = [0; 4];
    let len = character.encode_utf8(&mut bytes).len();
    Escape::Of { bytes, len, size }
}

enum Digits {
    Value(u32),
    Incomplete,
    Invalid,
}

/// `count` hexadecimal digits from `start` on.
fn digits(input: &[u8], start: usize, count: usize) -> Digits {
    let mut value = 0;
    for at in start..start + count {
        let Some(byte) = input.get(at) else {
            return Digits::Incomplete;
        };
        let Some(digit) = char::from(*byte).to_digit(16) else {
            return Digits::Invalid;
        };
        value = value * 16 + digit;
    }
    Digits::Value(value)
}
