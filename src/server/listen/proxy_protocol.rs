//! The PROXY protocol, version 2: a proxy in front of ati names the caller's address before the
//! caller's first byte.

use std::net::SocketAddr;

use ppp::v2::{Addresses, Command, Header, PROTOCOL_PREFIX, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The prefix, version and command, family and protocol, and the length of the rest.
const FIXED_LENGTH: usize = 16;
/// Addresses and the extensions that vendors add take a few hundred bytes.
const MOST_BYTES: usize = 2048;

/// Why a connection is refused for its PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    #[error("it ended in its PROXY header")]
    Truncated,
    #[error("it doesn't begin with a PROXY header of version 2")]
    Missing,
    #[error("its PROXY header is of version 1; only version 2 is spoken here")]
    VersionOne,
    #[error("its PROXY header is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("its PROXY header can't be read")]
    Malformed,
}

/// Where a connection comes from, as its PROXY header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionSource {
    /// The proxy itself, for a health check.
    Proxy,
    Caller(SocketAddr),
    /// A caller whose address is not given, or is no IP address.
    Unknown,
}

/// Reads the header and not a byte more.
pub async fn read(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<ConnectionSource, ProxyHeaderError> {
    let mut bytes = vec![0; FIXED_LENGTH];
    fill(stream, &mut bytes[..PROTOCOL_PREFIX.len()]).await?;
    if !bytes.starts_with(PROTOCOL_PREFIX) {
        return Err(if bytes.starts_with(b"PROXY ") {
            ProxyHeaderError::VersionOne
        } else {
            ProxyHeaderError::Missing
        });
    }
    fill(stream, &mut bytes[PROTOCOL_PREFIX.len()..]).await?;
    let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    if length > MOST_BYTES {
        return Err(ProxyHeaderError::TooLong);
    }
    bytes.resize(FIXED_LENGTH + length, 0);
    fill(stream, &mut bytes[FIXED_LENGTH..]).await?;
    parse(&bytes)
}

async fn fill(
    stream: &mut (impl AsyncRead + Unpin),
    bytes: &mut [u8],
) -> Result<(), ProxyHeaderError> {
    let read = stream.read_exact(bytes).await;
    read.map(drop).map_err(|_| ProxyHeaderError::Truncated)
}

fn parse(bytes: &[u8]) -> Result<ConnectionSource, ProxyHeaderError> {
    let header = Header::try_from(bytes).map_err(|_| ProxyHeaderError::Malformed)?;
    if header.command == Command::Local {
        return Ok(ConnectionSource::Proxy);
    }
    let caller = |address| Ok(ConnectionSource::Caller(address));
    match (header.protocol, header.addresses) {
        (Protocol::Datagram, _) => Err(ProxyHeaderError::Malformed),
        (_, Addresses::IPv4(v4)) => caller((v4.source_address, v4.source_port).into()),
        (_, Addresses::IPv6(v6)) => caller((v6.source_address, v6.source_port).into()),
        (_, Addresses::Unspecified | Addresses::Unix(_)) => Ok(ConnectionSource::Unknown),
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

    async fn read_all(mut bytes: &[u8]) -> (Result<ConnectionSource, ProxyHeaderError>, usize) {
        let result = read(&mut bytes).await;
        (result, bytes.len())
    }

    #[tokio::test]
    async fn valid_headers_give_the_connection_source() {
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
            let (result, rest) = read_all(&bytes).await;
            let text = match result.unwrap() {
                ConnectionSource::Proxy => "proxy".to_owned(),
                ConnectionSource::Unknown => "unknown".to_owned(),
                ConnectionSource::Caller(address) => address.to_string(),
            };
            assert_eq!(text, expected, "{command} {family:x}");
            assert_eq!(rest, 5, "{command} {family:x}");
        }
    }

    #[tokio::test]
    async fn invalid_headers_give_a_named_error() {
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];
        let good = header(1, 0x11, &v4);
        for end in 0..good.len() {
            assert_eq!(
                read_all(&good[..end]).await.0,
                Err(ProxyHeaderError::Truncated),
                "{end}"
            );
        }
        for (bytes, error) in [
            (
                b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
                ProxyHeaderError::Missing,
            ),
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
                ProxyHeaderError::VersionOne,
            ),
            (header(1, 0x11, &[0; 2049]), ProxyHeaderError::TooLong),
            (header(1, 0x11, &[0; 11]), ProxyHeaderError::Malformed),
            (header(1, 0x21, &[0; 12]), ProxyHeaderError::Malformed),
            (header(1, 0x12, &v4), ProxyHeaderError::Malformed),
            (header(2, 0x11, &v4), ProxyHeaderError::Malformed),
            (header(1, 0x51, &v4), ProxyHeaderError::Malformed),
            (header(0x11, 0x11, &v4), ProxyHeaderError::Malformed),
        ] {
            assert_eq!(read_all(&bytes).await.0, Err(error));
        }
    }
}
