//! The syntax of a chunked body (RFC 9112, 7.1), checked on the bytes as they arrive. Pingora's
//! parser takes a chunk without a size for the last one.

/// Where in a chunked body the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a size, after this many digits.
    Size {
        digits: u8,
    },
    /// Behind a size: an extension, up to the line's end.
    Extension,
    SizeLineFeed,
    Data,
    DataEnd,
    DataLineFeed,
    /// At the beginning of a trailer line, or of the empty line that ends the body.
    TrailerStart,
    Trailer,
    LastLineFeed,
    End,
}

/// Digits of a chunk's size: enough for 2^60 bytes.
const MOST_DIGITS: u8 = 15;

#[derive(Debug)]
pub struct ChunkCheck {
    at: At,
    size: u64,
    /// Bytes of the body so far, its framing included.
    consumed: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BadChunk;

impl ChunkCheck {
    pub fn new() -> Self {
        ChunkCheck {
            at: At::Size { digits: 0 },
            size: 0,
            consumed: 0,
        }
    }

    /// The length of the whole body on the wire, once its end was seen.
    pub fn length(&self) -> Option<u64> {
        (self.at == At::End).then_some(self.consumed)
    }

    /// Bytes behind the end belong to the next request.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), BadChunk> {
        while let Some(byte) = bytes.first().copied() {
            let length = match self.at {
                At::End => return Ok(()),
                At::Data => {
                    let length = self.size.min(bytes.len() as u64);
                    self.size -= length;
                    if self.size == 0 {
                        self.at = At::DataEnd;
                    }
                    length as usize
                }
                _ => {
                    self.at = self.next(byte)?;
                    1
                }
            };
            self.consumed += length as u64;
            bytes = &bytes[length..];
        }
        Ok(())
    }

    fn next(&mut self, byte: u8) -> Result<At, BadChunk> {
        let expect = |wanted: u8, then: At| {
            if byte == wanted {
                Ok(then)
            } else {
                Err(BadChunk)
            }
        };
        match self.at {
            At::Size { digits } => match (byte as char).to_digit(16) {
                Some(_) if digits == MOST_DIGITS => Err(BadChunk),
                Some(digit) => {
                    self.size = self.size * 16 + u64::from(digit);
                    Ok(At::Size { digits: digits + 1 })
                }
                None if digits == 0 => Err(BadChunk),
                None => match byte {
                    b'\r' => Ok(At::SizeLineFeed),
                    b';' | b' ' | b'\t' => Ok(At::Extension),
                    _ => Err(BadChunk),
                },
            },
            At::Extension => Ok(match byte {
                b'\r' => At::SizeLineFeed,
                b'\n' => return Err(BadChunk),
                _ => At::Extension,
            }),
            At::SizeLineFeed => expect(
                b'\n',
                match self.size {
                    0 => At::TrailerStart,
                    _ => At::Data,
                },
            ),
            At::DataEnd => expect(b'\r', At::DataLineFeed),
            At::DataLineFeed => expect(b'\n', At::Size { digits: 0 }),
            At::TrailerStart => Ok(match byte {
                b'\r' => At::LastLineFeed,
                _ => At::Trailer,
            }),
            At::Trailer => Ok(match byte {
                b'\n' => At::TrailerStart,
                _ => At::Trailer,
            }),
            At::LastLineFeed => expect(b'\n', At::End),
            At::Data | At::End => Ok(self.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In one piece, and byte by byte.
    fn check(body: &str) -> Result<Option<u64>, BadChunk> {
        let mut whole = ChunkCheck::new();
        let outcome = whole.feed(body.as_bytes());
        let mut slow = ChunkCheck::new();
        let slowly = body.bytes().try_for_each(|byte| slow.feed(&[byte]));
        assert_eq!(outcome, slowly, "{body:?}");
        outcome?;
        assert_eq!(whole.length(), slow.length(), "{body:?}");
        Ok(whole.length())
    }

    #[test]
    fn well_formed_body_ends_where_its_last_chunk_says() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "A;name=\"x\"\r\n0123456789\r\n000\r\n\r\n",
            "5 \r\nhello\r\n0\r\nx-trailer: 1\r\ny: 2\r\n\r\n",
        ] {
            let length = Ok(Some(body.len() as u64));
            assert_eq!(check(body), length, "{body:?}");
            assert_eq!(check(&format!("{body}GET / HTTP/1.1\r\n")), length);
        }
        assert_eq!(check("5\r\nhel"), Ok(None));
    }

    #[test]
    fn chunk_without_a_size_or_with_a_wrong_end_is_refused() {
        for body in [
            "\r\nhello\r\n0\r\n\r\n",
            ";x\r\n",
            "5\r\nhello\r\n\r\n",
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "-5\r\n",
            "5;a\nb\r\nhello\r\n",
            "1111111111111111\r\n",
            "0\r\n\rX",
        ] {
            assert_eq!(check(body), Err(BadChunk), "{body:?}");
        }
    }
}
