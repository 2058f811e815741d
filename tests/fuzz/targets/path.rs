//! Input: a path; a line break; a host. Whatever is let through has no dot segment in any reading,
//! and no path that a rule denies reaches an upstream in another spelling.
#![no_main]

use std::sync::LazyLock;

use ati::egress;
use ati::keyring::Keyring;
use ati::route::{Match, Table, normalise};
use ati_fuzz::{file, first_line, percent_decoded};
use libfuzzer_sys::fuzz_target;

/// Name, fields of the manifest, denied paths as the upstream sees them.
const ROUTES: [(&str, &str, &[&str]); 6] = [
    (
        "svc",
        "path_prefix = '/svc'",
        &["/admin", "*/private/*", "/*.php"],
    ),
    (
        "keep",
        "path_prefix = '/keep'\nstrip_prefix = false",
        &["/keep/secret"],
    ),
    (
        "api",
        "path_prefix = '/api'\npath_replace = ['/v1', '/v2']",
        &["/v2/internal"],
    ),
    (
        "cut",
        "path_prefix = '/cut'\npath_replace = ['/x', '']",
        &["/secret", "/a/b"],
    ),
    ("deep", "path_prefix = '/svc/deep/er'", &["/admin"]),
    ("host", "host_match = 'api.example'", &["/admin", "/svc/x"]),
];

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let manifests: Vec<_> = ROUTES
        .iter()
        .map(|(name, fields, deny)| {
            let text = format!(
                "[provider]\nname = '{name}'\nhandler = 'passthrough'\n\
                 base_url = 'http://127.0.0.1:1/base'\n{fields}\ndeny_paths = {deny:?}\n"
            );
            let path = file(&format!("{name}.toml"), text.as_bytes());
            ati::config::read_manifest(&path).expect("the manifest is read")
        })
        .collect();
    let mut problems = Vec::new();
    let (keyring, egress) = (Keyring::empty(), egress::Settings::default());
    let table = Table::build(
        &manifests,
        true,
        &keyring,
        &egress,
        &mut problems,
        &mut Vec::new(),
    );
    assert!(problems.is_empty(), "{problems:?}");
    table
});

/// Whether a star pattern matches, the simple way.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| fits(rest, &text[skipped..])),
        Some((byte, rest)) => text.first() == Some(byte) && fits(rest, &text[1..]),
    }
}

fn covers(rule: &str, path: &[u8]) -> bool {
    fits(rule.as_bytes(), path) || fits(format!("{rule}/*").as_bytes(), path)
}

/// As the laxest server reads a decoded path: backslashes are slashes, parameters are cut off, and
/// slashes that meet are one.
fn lax(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for segment in path.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = segment
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default();
        if !name.is_empty() {
            out.push(b'/');
            out.extend_from_slice(name);
        }
    }
    if out.is_empty() {
        out.push(b'/');
    }
    out
}

fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|byte| matches!(byte, b'/' | b'\\'))
        .any(|segment| {
            let name = segment
                .split(|byte| *byte == b';')
                .next()
                .unwrap_or_default();
            matches!(name, b"." | b"..")
        })
}

fn collapsed(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for byte in path {
        if *byte != b'/' || out.last() != Some(&b'/') {
            out.push(*byte);
        }
    }
    out
}

fn check_no_dot_segments(path: &[u8], decodings: usize) {
    let mut reading = path.to_vec();
    for level in 0..=decodings {
        let shown = String::from_utf8_lossy(&reading);
        assert!(!has_dot_segment(&reading), "{shown} at level {level}");
        reading = percent_decoded(&reading);
    }
}

fuzz_target!(|data: &[u8]| {
    let (received, host) = first_line(data);
    let (Ok(received), Ok(host)) = (str::from_utf8(received), str::from_utf8(host)) else {
        return;
    };
    let Ok(path) = normalise(received) else {
        return;
    };
    assert!(path.starts_with('/') && !path.contains("//") && !path.contains('\\'));
    assert!(!path.bytes().any(|byte| byte.is_ascii_control()));
    assert_eq!(
        path.as_bytes(),
        collapsed(&percent_decoded(received.as_bytes()))
    );
    check_no_dot_segments(path.as_bytes(), 2);

    let Match::Route(route) = TABLE.find(Some(host), &path) else {
        return;
    };
    let Ok(forwarded) = route.rewrite(received, &path) else {
        return;
    };
    let sent = forwarded.path.as_bytes();
    assert!(sent.starts_with(b"/") && forwarded.decoded.starts_with('/'));
    assert_eq!(
        forwarded.decoded.as_bytes(),
        collapsed(&percent_decoded(sent))
    );
    check_no_dot_segments(sent, 3);

    let (_, _, deny) = ROUTES
        .iter()
        .find(|(name, ..)| *name == route.name)
        .expect("known");
    let once = percent_decoded(sent);
    let twice = percent_decoded(&once);
    for reading in [once, twice] {
        for reading in [collapsed(&reading), lax(&reading)] {
            let denied = deny.iter().find(|rule| covers(rule, &reading));
            let shown = String::from_utf8_lossy(&reading);
            assert_eq!(
                denied, None,
                "{received} was sent as {}, read as {shown}",
                forwarded.path
            );
        }
    }
    let target = route.target(&forwarded.path, Some("a=b"), &route.attachment, true);
    assert_eq!(target, format!("/base{}?a=b", forwarded.path).as_bytes());
});
