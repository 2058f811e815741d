//! Finds the end of a body in bytes that pass by.

use super::Doubt;
use super::answer::Framing;

/// Of all chunks of a body together. Extensions carry nothing that ati uses.
const LONGEST_EXTENSIONS: u32 = 16 << 10;
/// Of all trailers of a body together.
const LONGEST_TRAILERS: u32 = 16 << 10;
/// Digits of a chunk's size: those of 64 bits.
const LONGEST_SIZE: u8 = 16;

/// What [`Body::feed`] did with its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fed {
    /// How many of the bytes belong to the body. With `done`, what is left over came behind it.
    pub taken: usize,
    /// Whether the body is complete.
    pub done: bool,
}

/// Follows a body to its end. It holds no bytes.
#[derive(Debug, Clone)]
pub struct Body {
    state: State,
    extensions: u32,
    trailers: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    Length(u64),
    UntilClose,
    /// Digits of a chunk's size so far, and their value.
    Size(u8, u64),
    /// White space behind a size. Some servers pad sizes to a fixed width.
    Padding(u64),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// The beginning of a line behind the last chunk.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
}

impl Body {
    pub fn new(framing: Framing) -> Self {
        Body {
            state: match framing {
                Framing::None | Framing::Length(0) => State::Done,
                Framing::Length(length) => State::Length(length),
                Framing::UntilClose => State::UntilClose,
                Framing::Chunked => State::Size(0, 0),
            },
            extensions: 0,
            trailers: 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether trailers have come.
    pub fn has_trailers(&self) -> bool {
        self.trailers > 0
    }

    /// For a body that is passed on as it comes, chunks and trailers included.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<Fed, Doubt> {
        self.feed(bytes, |_| ())
    }

    /// Gives each piece of the content to `content`, without the bytes that frame it. After an
    /// error, and once the body is done, nothing more may be fed.
    pub fn feed(&mut self, bytes: &[u8], mut content: impl FnMut(&[u8])) -> Result<Fed, Doubt> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let rest = &bytes[at..];
            at += match self.state {
                State::Length(left) => {
                    let taken = part(left, rest);
                    content(&rest[..taken]);
                    self.state = match left - taken as u64 {
                        0 => State::Done,
                        left => State::Length(left),
                    };
                    taken
                }
                State::UntilClose => {
                    content(rest);
                    rest.len()
                }
                State::Data(left) => {
                    let taken = part(left, rest);
                    content(&rest[..taken]);
                    self.state = match left - taken as u64 {
                        0 => State::DataCr,
                        left => State::Data(left),
                    };
                    taken
                }
                _ => {
                    self.state = self.step(rest[0])?;
                    1
                }
            };
        }
        Ok(Fed {
            taken: at,
            done: self.is_done(),
        })
    }

    /// The connection has ended. That completes a body that ends with it, and no other.
    pub fn end(&mut self) -> Result<(), Doubt> {
        match self.state {
            State::Done | State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            _ => Err(Doubt::Truncated),
        }
    }

    /// One byte of what frames chunks.
    fn step(&mut self, byte: u8) -> Result<State, Doubt> {
        Ok(match (self.state, byte) {
            (State::Size(digits, size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if digits == LONGEST_SIZE {
                    return Err(Doubt::ChunkSize);
                }
                let digit = match byte {
                    b'0'..=b'9' => byte - b'0',
                    _ => (byte | 0x20) - b'a' + 10,
                };
                State::Size(digits + 1, size << 4 | u64::from(digit))
            }
            (State::Size(1.., size) | State::Padding(size), b'\r') => State::SizeLf(size),
            (State::Size(1.., size) | State::Padding(size), b' ' | b'\t') => {
                self.count_extension()?;
                State::Padding(size)
            }
            (State::Size(1.., size) | State::Padding(size), b';') => State::Extension(size),
            (State::Size(..) | State::Padding(_), _) => return Err(Doubt::ChunkSize),
            (State::Extension(size), b'\r') => State::SizeLf(size),
            (State::Extension(size), byte) if is_text(byte) => {
                self.count_extension()?;
                State::Extension(size)
            }
            (State::Extension(_), _) => return Err(Doubt::ChunkExtension),
            (State::SizeLf(0), b'\n') => State::Trailer,
            (State::SizeLf(size), b'\n') => State::Data(size),
            (State::SizeLf(_), _) => return Err(Doubt::ChunkSize),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0, 0),
            (State::DataCr | State::DataLf, _) => return Err(Doubt::ChunkEnd),
            (State::Trailer, b'\r') => State::LastLf,
            (State::Trailer | State::TrailerName, byte) if is_token(byte) => {
                self.count_trailer()?;
                State::TrailerName
            }
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if is_text(byte) => {
                self.count_trailer()?;
                State::TrailerValue
            }
            (State::TrailerLf, b'\n') => State::Trailer,
            (State::LastLf, b'\n') => State::Done,
            (
                State::Trailer
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::LastLf,
                _,
            ) => return Err(Doubt::Trailer),
            (State::Done | State::Length(_) | State::UntilClose | State::Data(_), _) => self.state,
        })
    }

    fn count_extension(&mut self) -> Result<(), Doubt> {
        self.extensions += 1;
        if self.extensions > LONGEST_EXTENSIONS {
            return Err(Doubt::ChunkExtension);
        }
        Ok(())
    }

    fn count_trailer(&mut self) -> Result<(), Doubt> {
        self.trailers += 1;
        if self.trailers > LONGEST_TRAILERS {
            return Err(Doubt::LongTrailers);
        }
        Ok(())
    }
}

fn part(left: u64, rest: &[u8]) -> usize {
    usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()))
}

/// What a header's value may have.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// What a header's name may have.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
