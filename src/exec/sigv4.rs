//! AWS Signature Version 4, as S3 wants it: paths are signed as they are sent. By hand, because the
//! crates for it bring a second `hmac` and `sha2`, or an SDK.

use std::time::Duration;

use hmac::Mac as _;
use percent_encoding::utf8_percent_encode;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;
use url::Url;
use zeroize::Zeroizing;

use crate::clock::unix_now;
use crate::credential::UNRESERVED;
use crate::keyring::{Secret, keyed};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const TIMESTAMP: &[FormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

/// Signs requests of one moment.
pub struct Signer<'a> {
    id: &'a str,
    secret: &'a Secret,
    region: &'a str,
    timestamp: String,
}

impl<'a> Signer<'a> {
    pub fn now(id: &'a str, secret: &'a Secret, region: &'a str) -> Self {
        let now = i64::try_from(unix_now()).unwrap_or_default();
        Signer::at(now, id, secret, region)
    }

    fn at(unix: i64, id: &'a str, secret: &'a Secret, region: &'a str) -> Self {
        let time = OffsetDateTime::from_unix_timestamp(unix).ok();
        let timestamp = time.and_then(|time| time.format(TIMESTAMP).ok());
        Signer {
            id,
            secret,
            region,
            timestamp: timestamp.unwrap_or_default(),
        }
    }

    pub fn timestamp(&self) -> &str {
        &self.timestamp
    }

    /// The `Authorization` header. `headers` are those that are signed, in lower case and in the
    /// order of the alphabet; `payload` is the body's SHA-256.
    pub fn authorization(
        &self,
        method: &str,
        url: &Url,
        headers: &[(&str, String)],
        payload: &str,
    ) -> String {
        let names = names(headers);
        let request = canonical(method, url, url.query().unwrap_or(""), headers, payload);
        let (scope, signature) = (self.scope(), self.signature(&request));
        format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            self.id
        )
    }

    /// A URL that needs no header, and that is valid for this long.
    pub fn presigned(&self, method: &str, url: &Url, time: Duration) -> String {
        let credential = format!("{}/{}", self.id, self.scope());
        let query = format!(
            "X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}&X-Amz-Date={}&X-Amz-Expires={}\
             &X-Amz-SignedHeaders=host",
            utf8_percent_encode(&credential, UNRESERVED),
            self.timestamp,
            time.as_secs(),
        );
        let headers = [("host", host(url))];
        let request = canonical(method, url, &query, &headers, "UNSIGNED-PAYLOAD");
        let signature = self.signature(&request);
        format!("{url}?{query}&X-Amz-Signature={signature}")
    }

    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", self.day(), self.region)
    }

    fn day(&self) -> &str {
        self.timestamp.split('T').next().unwrap_or_default()
    }

    fn signature(&self, request: &str) -> String {
        let digest = hex::encode(Sha256::digest(request.as_bytes()));
        let text = [ALGORITHM, &self.timestamp, &self.scope(), &digest].join("\n");
        let secret = self.secret.expose().trim_ascii();
        let mut key = Zeroizing::new([b"AWS4".as_slice(), secret].concat());
        for part in [self.day(), self.region, "s3", "aws4_request"] {
            key = Zeroizing::new(mac(&key, part));
        }
        hex::encode(mac(&key, &text))
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mac = keyed(key).chain_update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn names(headers: &[(&str, String)]) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    names.join(";")
}

fn canonical(
    method: &str,
    url: &Url,
    query: &str,
    headers: &[(&str, String)],
    payload: &str,
) -> String {
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}:{}\n", value.trim()))
        .collect();
    let names = names(headers);
    [method, url.path(), query, &lines, &names, payload].join("\n")
}

/// The `Host` header that the client sends.
pub fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &[u8] = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    /// 2013-05-24T00:00:00Z
    const TIME: i64 = 1_369_353_600;

    /// The examples of AWS's documentation (Signature Calculations for the Authorization Header,
    /// and Authenticating Requests: Using Query Parameters).
    #[test]
    fn signatures_are_those_of_the_documented_examples() {
        let secret = Secret::new(SECRET).unwrap();
        let signer = Signer::at(TIME, ID, &secret, "us-east-1");
        assert_eq!(signer.timestamp(), "20130524T000000Z");
        let url = Url::parse("https://examplebucket.s3.amazonaws.com/test.txt").unwrap();
        let empty = hex::encode(Sha256::digest(b""));
        let headers = [
            ("host", host(&url)),
            ("range", "bytes=0-9".to_owned()),
            ("x-amz-content-sha256", empty.clone()),
            ("x-amz-date", signer.timestamp().to_owned()),
        ];
        let signed = signer.authorization("GET", &url, &headers, &empty);
        assert!(
            signed.ends_with(
                ",SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=\
                 f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
            ),
            "{signed}"
        );
        let url = signer.presigned("GET", &url, Duration::from_secs(86400));
        assert!(
            url.ends_with(
                "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
            ),
            "{url}"
        );
    }
}
