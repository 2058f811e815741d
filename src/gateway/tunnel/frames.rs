//! Where frames begin, so that ati's Close never lands inside one.

/// Follows one direction of a WebSocket.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The header of the current frame, as far as it was read.
    header: Vec<u8>,
    /// Payload bytes of the current frame that are still to come.
    payload: u64,
}

impl Frames {
    pub fn at_boundary(&self) -> bool {
        self.header.is_empty() && self.payload == 0
    }

    pub fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len() as u64);
                self.payload -= skipped;
                bytes = &bytes[skipped as usize..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if let Some(payload) = payload_length(&self.header) {
                self.payload = payload;
                self.header.clear();
            }
        }
    }
}

/// The length of the payload, once the header is complete (RFC 6455, 5.2).
fn payload_length(header: &[u8]) -> Option<u64> {
    let second = *header.get(1)?;
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    if header.len() < 2 + extended + mask {
        return None;
    }
    let length = header[2..2 + extended]
        .iter()
        .fold(0u64, |length, byte| (length << 8) | u64::from(*byte));
    Some(if extended == 0 {
        u64::from(second & 0x7f)
    } else {
        length
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(length: usize, masked: bool) -> Vec<u8> {
        let mask = if masked { 0x80 } else { 0 };
        let mut frame = vec![0x82];
        match length {
            0..=125 => frame.push(mask | length as u8),
            126..=65535 => {
                frame.push(mask | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            _ => {
                frame.push(mask | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(if masked { &[1, 2, 3, 4][..] } else { &[] });
        frame.resize(frame.len() + length, 7);
        frame
    }

    #[test]
    fn frame_boundaries_are_found_in_pieces_of_any_size() {
        for masked in [false, true] {
            for length in [0, 1, 125, 126, 65_535, 65_536, 100_000] {
                let bytes = [frame(length, masked), frame(3, masked)].concat();
                for chunk in [1, 2, 7, 4096, bytes.len()] {
                    let mut frames = Frames::default();
                    let mut boundaries = 0;
                    for part in bytes.chunks(chunk) {
                        frames.follow(part);
                        boundaries += usize::from(frames.at_boundary());
                    }
                    assert!(frames.at_boundary(), "{length} by {chunk}");
                    assert!(chunk > 1 || boundaries == 2, "{length}: {boundaries}");
                }
            }
        }
    }
}
