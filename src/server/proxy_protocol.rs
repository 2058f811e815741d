//! The PROXY protocol, version 2: what a proxy in front of us says about the caller, before the caller's first byte.

use std::net::SocketAddr;

use ppp::v2::{Addresses, Command, Header, PROTOCOL_PREFIX, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The prefix, version and command, family and protocol, and the length of the rest.
const MINIMUM_LENGTH: usize = 16;
/// Addresses and what vendors add to them take a few hundred bytes.
const LONGEST: usize = 2048;

/// Why a connection ends before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it ended in its PROXY header")]
    Truncated,
    #[error("it doesn't begin with a PROXY header of version 2")]
    Missing,
    #[error("its PROXY header is of version 1; only version 2 is spoken here")]
    VersionOne,
    #[error("its PROXY header is longer than 2048 bytes")]
    TooLong,
    #[error("its PROXY header can't be read")]
    Malformed,
}

/// What a proxy says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It is the proxy's own: a health check.
    Proxy,
    Caller(SocketAddr),
    /// It is a caller's, whose address isn't told or isn't an IP address.
    Unknown,
}

/// Reads not a byte too many.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Source, Fault> {
    let mut bytes = vec![0; MINIMUM_LENGTH];
    fill(stream, &mut bytes[..PROTOCOL_PREFIX.len()]).await?;
    if !bytes.starts_with(PROTOCOL_PREFIX) {
        return Err(if bytes.starts_with(b"PROXY ") {
            Fault::VersionOne
        } else {
            Fault::Missing
        });
    }
    fill(stream, &mut bytes[PROTOCOL_PREFIX.len()..]).await?;
    let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if length > LONGEST {
        return Err(Fault::TooLong);
    }
    bytes.resize(MINIMUM_LENGTH + length, 0);
    fill(stream, &mut bytes[MINIMUM_LENGTH..]).await?;
    parse(&bytes)
}

async fn fill(stream: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> Result<(), Fault> {
    let read = stream.read_exact(bytes).await;
    read.map(drop).map_err(|_| Fault::Truncated)
}

fn parse(bytes: &[u8]) -> Result<Source, Fault> {
    let header = Header::try_from(bytes).map_err(|_| Fault::Malformed)?;
    if header.command == Command::Local {
        return Ok(Source::Proxy);
    }
    let caller = |address| Ok(Source::Caller(address));
    match (header.protocol, header.addresses) {
        (Protocol::Datagram, _) => Err(Fault::Malformed),
        (_, Addresses::IPv4(v4)) => caller((v4.source_address, v4.source_port).into()),
        (_, Addresses::IPv6(v6)) => caller((v6.source_address, v6.source_port).into()),
        (_, Addresses::Unspecified | Addresses::Unix(_)) => Ok(Source::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = PROTOCOL_PREFIX.to_vec();
        bytes.extend([0x20 | command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    async fn read_all(mut bytes: &[u8]) -> (Result<Source, Fault>, usize) {
        let result = read(&mut bytes).await;
        (result, bytes.len())
    }

    #[tokio::test]
    async fn what_proxies_send_is_understood() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 0x01]);
        v6[32..34].copy_from_slice(&[0, 80]);
        let with_tlv = [&v4[..], &[0x04, 0, 2, 0, 0]].concat();
        for (command, family, rest, expected) in [
            (1, 0x11, &v4[..], "192.0.2.7:12345"),
            (1, 0x11, &with_tlv, "192.0.2.7:12345"),
            (1, 0x21, &v6, "[2001::]:80"),
            (1, 0x31, &[7; 216], "unknown"),
            (1, 0x00, &[], "unknown"),
            (0, 0x00, &[], "proxy"),
            (0, 0x11, &v4, "proxy"),
        ] {
            let mut bytes = header(command, family, rest);
            bytes.extend(b"GET /");
            let (result, left) = read_all(&bytes).await;
            let text = match result.unwrap() {
                Source::Proxy => "proxy".to_owned(),
                Source::Unknown => "unknown".to_owned(),
                Source::Caller(address) => address.to_string(),
            };
            assert_eq!(text, expected, "{command} {family:x}");
            assert_eq!(left, 5, "{command} {family:x}");
        }
    }

    #[tokio::test]
    async fn everything_else_is_a_fault_with_a_name() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];
        let good = header(1, 0x11, &v4);
        for end in 0..good.len() {
            assert_eq!(
                read_all(&good[..end]).await.0,
                Err(Fault::Truncated),
                "{end}"
            );
        }
        for (bytes, fault) in [
            (
                b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
                Fault::Missing,
            ),
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
                Fault::VersionOne,
            ),
            (header(1, 0x11, &[0; 2049]), Fault::TooLong),
            (header(1, 0x11, &[0; 11]), Fault::Malformed),
            (header(1, 0x21, &[0; 12]), Fault::Malformed),
            (header(1, 0x12, &v4), Fault::Malformed),
            (header(2, 0x11, &v4), Fault::Malformed),
            (header(1, 0x51, &v4), Fault::Malformed),
            (header(0x11, 0x11, &v4), Fault::Malformed),
        ] {
            assert_eq!(read_all(&bytes).await.0, Err(fault));
        }
    }
}
