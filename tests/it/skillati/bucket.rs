//! A stand-in for Google Cloud Storage and its token endpoint, and for S3.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;
use serde_json::json;
use sha2::Digest as _;

use crate::support::upstream::{Received, Upstream};

/// Objects on a page of a listing.
const PAGE: usize = 7;

#[derive(Default)]
pub struct Bucket {
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Connections end without an answer.
    pub down: AtomicBool,
    /// So many answers are 503.
    pub busy: AtomicUsize,
    pub tokens: AtomicUsize,
    /// Tokens with a lower number are refused.
    pub accepted: AtomicUsize,
}

impl Bucket {
    pub fn of(files: &[(&str, &[u8])]) -> Arc<Self> {
        let bucket = Bucket::default();
        for (name, content) in files {
            bucket.put(name, content);
        }
        Arc::new(bucket)
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let mut objects = self.objects.lock().unwrap();
        objects.insert(name.to_owned(), content.as_ref().to_vec());
    }

    pub fn remove(&self, name: &str) {
        self.objects.lock().unwrap().remove(name);
    }

    pub fn gcs(self: &Arc<Self>) -> Upstream {
        let bucket = self.clone();
        Upstream::answering(move |received, stream| {
            if bucket.down.load(Ordering::SeqCst) {
                return false;
            }
            let (status, headers, body) = bucket.google(received);
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
        })
    }

    fn google(&self, received: &Received) -> (u16, String, Vec<u8>) {
        if received.target == "/token" {
            let number = 1 + self.tokens.fetch_add(1, Ordering::SeqCst);
            let token = format!("planted-token-{number}");
            let body = json!({"access_token": token, "expires_in": 3600});
            return (200, String::new(), body.to_string().into_bytes());
        }
        let authorization = received.header("authorization").unwrap_or_default();
        let number = authorization.strip_prefix("Bearer planted-token-");
        let number: Option<usize> = number.and_then(|number| number.parse().ok());
        if number.is_none_or(|number| number < self.accepted.load(Ordering::SeqCst)) {
            return (401, String::new(), Vec::new());
        }
        if let Some(refused) = self.is_busy() {
            return refused;
        }
        let (path, query) = received.target.split_once('?').unwrap_or_default();
        match path.strip_prefix("/storage/v1/b/skills/o") {
            Some("") => self.google_list(query),
            Some(object) => {
                assert_eq!(query, "alt=media");
                let name = percent_decode_str(&object[1..]).decode_utf8().unwrap();
                self.object(&name, received.header("if-none-match"))
            }
            None => (404, String::new(), Vec::new()),
        }
    }

    fn is_busy(&self) -> Option<(u16, String, Vec<u8>)> {
        let left = self.busy.load(Ordering::SeqCst);
        (left > 0).then(|| {
            self.busy.store(left - 1, Ordering::SeqCst);
            (503, String::new(), b"planted-busy".to_vec())
        })
    }

    fn object(&self, name: &str, known: Option<&str>) -> (u16, String, Vec<u8>) {
        let objects = self.objects.lock().unwrap();
        let Some(content) = objects.get(name) else {
            return (404, String::new(), b"No such object: planted-x".to_vec());
        };
        let tag = tag(content);
        let headers = format!("etag: {tag}\r\n");
        match known == Some(&tag) {
            true => (304, headers, Vec::new()),
            false => (200, headers, content.clone()),
        }
    }

    fn google_list(&self, query: &str) -> (u16, String, Vec<u8>) {
        let (prefix, begin) = (value(query, "prefix"), value(query, "pageToken"));
        let (page, next) = self.page(&prefix, &begin);
        let items: Vec<_> = page
            .iter()
            .map(|(name, tag)| json!({"name": name, "etag": tag}))
            .collect();
        let mut body = json!({"items": items});
        if let Some(next) = next {
            body["nextPageToken"] = next.into();
        }
        (200, String::new(), body.to_string().into_bytes())
    }

    /// Names and tags, and the name that the next page begins with.
    fn page(&self, prefix: &str, begin: &str) -> (Vec<(String, String)>, Option<String>) {
        let objects = self.objects.lock().unwrap();
        let mut matching = objects
            .range(begin.to_owned()..)
            .filter(|(name, _)| name.starts_with(prefix));
        let page = matching.by_ref().take(PAGE);
        let page = page.map(|(name, content)| (name.clone(), tag(content)));
        (
            page.collect(),
            matching.next().map(|(name, _)| name.clone()),
        )
    }

    pub fn s3(self: &Arc<Self>) -> Upstream {
        let bucket = self.clone();
        Upstream::answering(move |received, stream| {
            if bucket.down.load(Ordering::SeqCst) {
                return false;
            }
            let (status, headers, body) = bucket.amazon(received);
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
        })
    }

    fn amazon(&self, received: &Received) -> (u16, String, Vec<u8>) {
        let authorization = received.header("authorization").unwrap_or_default();
        let expected = "AWS4-HMAC-SHA256 Credential=planted-id/";
        let scope =
            "/eu-west-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date,";
        if !authorization.starts_with(expected) || !authorization.contains(scope) {
            return (403, String::new(), b"planted-secret".to_vec());
        }
        if let Some(refused) = self.is_busy() {
            return refused;
        }
        let (path, query) = match received.target.split_once('?') {
            Some((path, query)) => (path, query),
            None => (received.target.as_str(), ""),
        };
        let name = path.strip_prefix("/skills/").unwrap_or_default();
        if !name.is_empty() {
            let name = percent_decode_str(name).decode_utf8().unwrap();
            return self.object(&name, received.header("if-none-match"));
        }
        assert_eq!(value(query, "list-type"), "2");
        let (prefix, begin) = (value(query, "prefix"), value(query, "continuation-token"));
        let (page, next) = self.page(&prefix, &begin);
        let mut text = "<ListBucketResult>".to_owned();
        for (name, tag) in page {
            let tag = tag.replace('"', "&quot;");
            text += &format!("<Contents><Key>{name}</Key><ETag>{tag}</ETag></Contents>");
        }
        if let Some(next) = next {
            text += &format!("<NextContinuationToken>{next}</NextContinuationToken>");
        }
        (
            200,
            String::new(),
            (text + "</ListBucketResult>").into_bytes(),
        )
    }
}

fn tag(content: &[u8]) -> String {
    format!("\"{}\"", hex::encode(sha2::Sha256::digest(content)))
}

fn value(query: &str, name: &str) -> String {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    found
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// The private key of a service account.
pub fn rsa_key() -> String {
    let output = std::process::Command::new("openssl")
        .args([
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}
