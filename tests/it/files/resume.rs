//! Downloads that break off.

use std::io::Write;

use serde_json::json;

use super::{bytes, content, download, refusal};
use crate::support::ati::Setup;
use crate::support::upstream::{Received, Upstream};

const SIZE: usize = 300_000;
const PIECE: usize = 100_000;

/// Sends `PIECE` bytes of the rest, and closes the connection.
fn breaking(
    headers: &'static str,
    body: impl Fn(&Received) -> (Vec<u8>, bool) + Send + Sync + 'static,
) -> Upstream {
    Upstream::answering(move |received, stream| {
        let (body, with_ranges) = body(received);
        let range = received.header("range").filter(|_| with_ranges);
        let from: usize = range.map_or(0, |range| range[6..range.len() - 1].parse().unwrap());
        let (status, more) = match range {
            None => (200, String::new()),
            Some(_) => (
                206,
                format!(
                    "content-range: bytes {from}-{}/{}\r\n",
                    body.len() - 1,
                    body.len()
                ),
            ),
        };
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}{more}\r\n",
            body.len() - from
        );
        let end = body.len().min(from + PIECE);
        let sent =
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body[from..end]).is_ok();
        sent && end == body.len()
    })
}

#[test]
fn download_that_breaks_off_goes_on_where_it_broke() {
    let files = breaking("etag: \"v1\"\r\ncontent-type: a/b\r\n", |_| {
        (bytes(SIZE), true)
    });
    let proxy = Setup::new().start();
    let response = download(
        &proxy,
        json!({"url": files.url(), "headers": {"x-own": "1"}}),
    );
    assert_eq!(content(&response), bytes(SIZE));
    assert_eq!(response.json()["result"]["content_type"], "a/b");
    let seen = files.received();
    let asked: Vec<_> = seen
        .iter()
        .map(|one| {
            (
                one.header("range"),
                one.header("if-range"),
                one.header("x-own"),
            )
        })
        .collect();
    let expected = [
        (None, None, Some("1")),
        (Some("bytes=100000-"), Some("\"v1\""), Some("1")),
        (Some("bytes=200000-"), Some("\"v1\""), Some("1")),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn file_that_changed_meanwhile_is_fetched_anew() {
    // The second version is shorter than a piece.
    let files = breaking("etag: \"v1\"\r\n", |received| {
        match received.header("range") {
            None => (bytes(SIZE), true),
            Some(_) => (b"new".to_vec(), false),
        }
    });
    let proxy = Setup::new().start();
    let response = download(&proxy, json!({"url": files.url()}));
    assert_eq!(content(&response), b"new");
    assert_eq!(files.received().len(), 2);
}

#[test]
fn download_without_a_strong_validator_fails_where_it_breaks() {
    for headers in [
        "",
        "etag: W/\"v1\"\r\n",
        "etag: \"v1\"\r\naccept-ranges: none\r\n",
    ] {
        let files = breaking(headers, |_| (bytes(SIZE), true));
        let proxy = Setup::new().start();
        let (status, text) = refusal(&download(&proxy, json!({"url": files.url()})));
        assert_eq!(status, 502);
        assert!(
            text.starts_with("Download failed: HTTP request failed: "),
            "{text}"
        );
        assert_eq!(files.received().len(), 1, "{headers}");
    }
}

#[test]
fn rest_that_belongs_to_another_file_is_refused() {
    let files = Upstream::answering(|received, stream| {
        let text = match received.header("range") {
            None => "HTTP/1.1 200 X\r\ncontent-length: 10\r\netag: \"v1\"\r\n\r\n01234",
            Some(_) => {
                "HTTP/1.1 206 X\r\ncontent-length: 4\r\ncontent-range: bytes 6-9/10\r\n\r\n6789"
            }
        };
        let _ = stream.write_all(text.as_bytes());
        false
    });
    let proxy = Setup::new().start();
    let expected = "Download failed: the connection broke after 5 bytes, and the rest can't be \
                    had: the server sent another part of it";
    let response = download(&proxy, json!({"url": files.url()}));
    assert_eq!(refusal(&response), (502, expected.to_owned()));
}

#[test]
fn download_that_breaks_off_again_and_again_ends() {
    let files = breaking("etag: \"v1\"\r\n", |_| (bytes(9 * PIECE), true));
    let proxy = Setup::new().start();
    let (status, text) = refusal(&download(&proxy, json!({"url": files.url()})));
    assert_eq!(status, 502, "{text}");
    assert_eq!(files.received().len(), 6);
}
