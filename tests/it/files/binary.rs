//! `PUT /files` and `GET /files/{id}`.

use std::process::Command;

use serde_json::{Value, json};

use super::wire::{send, stored, storing};
use super::{DOWNLOAD, UPLOAD, bytes, refusal, server, sha256};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::http::Response;
use crate::support::skip::skip;
use crate::support::tokens::{bearer, claims, key_pair};
use crate::support::upstream::Upstream;

const SPOOLED: usize = 3 << 20;
const NO_FILE: &str = "No such file: it was used already, its time is over, or it never was there";

fn put(proxy: &Proxy, headers: &[(&str, &str)], content: &[u8]) -> Value {
    let answer = proxy.client().send("PUT", "/files", headers, content);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

fn get(proxy: &Proxy, headers: &[(&str, &str)], id: &Value) -> Response {
    let path = format!("/files/{}", id.as_str().unwrap());
    proxy.client().send("GET", &path, headers, b"")
}

#[test]
fn file_is_put_and_taken_once() {
    let proxy = storing("").start();
    for size in [1, 1000, SPOOLED] {
        let content = bytes(size);
        let file = put(&proxy, &[("content-type", "image/png")], &content);
        assert_eq!(file["size_bytes"], json!(size));
        assert_eq!(file["sha256"], json!(sha256(&content)));
        let id = &file["file"];
        assert_eq!(id.as_str().unwrap().len(), 32);
        assert!(
            file["expires_at"].as_str().unwrap().ends_with('Z'),
            "{file}"
        );
        let got = get(&proxy, &[], id);
        assert_eq!((got.status, &got.body), (200, &content));
        assert_eq!(got.header("content-type"), Some("image/png"));
        assert_eq!(
            got.header("content-length"),
            Some(size.to_string().as_str())
        );
        assert_eq!(got.header("x-ati-sha256"), Some(sha256(&content).as_str()));
        assert_eq!(got.header("x-ati-files"), Some("1"));
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(got.header("content-disposition"), Some("attachment"));
        let again = get(&proxy, &[], id);
        assert_eq!(
            (again.status, &again.json()["error"]),
            (404, &json!(NO_FILE))
        );
    }
    proxy.settles("ati_file_spool_bytes", 0.0);
    let head = proxy.client().send("HEAD", "/files/0", &[], b"");
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
    assert_eq!(proxy.client().get("/files").header("allow"), Some("PUT"));
}

#[test]
fn upload_takes_the_id_in_place_of_the_content() {
    let proxy = storing("").start();
    let content = bytes(SPOOLED);
    let headers = [
        ("x-ati-filename", "a%20b.png"),
        ("content-type", "image/png"),
    ];
    let file = put(&proxy, &headers, &content);
    let id = &file["file"];
    // What could never be uploaded doesn't use the file up.
    let wrong = json!({"file": id, "destination": "none"});
    assert_eq!(proxy.call(None, UPLOAD, wrong).status, 403);
    let answer = proxy.call(None, UPLOAD, json!({"file": id}));
    assert_eq!(stored(&answer), content);
    let result = answer.json()["result"].clone();
    assert!(
        result["url"].as_str().unwrap().ends_with("-a%20b.png"),
        "{result}"
    );
    assert_eq!(result["content_type"], "image/png");
    let again = refusal(&proxy.call(None, UPLOAD, json!({"file": id})));
    assert_eq!(again, (404, NO_FILE.to_owned()));
    let both = json!({"file": id, "content_base64": "QQ==", "filename": "f"});
    assert_eq!(proxy.call(None, UPLOAD, both).status, 400);
    assert_eq!(proxy.call(None, UPLOAD, json!({"file": 5})).status, 400);
    assert_eq!(
        proxy.call(None, UPLOAD, json!({"filename": "f"})).status,
        400
    );
    proxy.settles("ati_file_spool_bytes", 0.0);
}

#[test]
fn download_is_delivered_as_a_file() {
    let content = bytes(SPOOLED);
    let sent = content.clone();
    let files = server(move |_| (200, "content-type: video/mp4\r\n".into(), sent.clone()));
    let proxy = storing("").start();
    let answer = proxy.call(
        None,
        DOWNLOAD,
        json!({"url": files.url(), "delivery": "file"}),
    );
    assert_eq!(answer.header("x-ati-warning"), None);
    let result = answer.json()["result"].clone();
    assert!(result["content_base64"].is_null(), "{result}");
    assert_eq!(result["sha256"], json!(sha256(&content)));
    let got = get(&proxy, &[], &result["file"]);
    assert_eq!(got.body, content);
    assert_eq!(got.header("content-type"), Some("video/mp4"));
    assert_eq!(get(&proxy, &[], &result["file"]).status, 404);
    // It can be uploaded again without a detour.
    let args = json!({"url": files.url(), "delivery": "file"});
    let id = proxy.call(None, DOWNLOAD, args).json()["result"]["file"].clone();
    let answer = proxy.call(None, UPLOAD, json!({"file": id, "filename": "f"}));
    assert_eq!(stored(&answer), content);
    let wrong = json!({"url": files.url(), "delivery": "post"});
    assert_eq!(proxy.call(None, DOWNLOAD, wrong).status, 400);
}

#[test]
fn file_of_another_caller_is_not_there() {
    let (signer, public) = key_pair();
    let proxy = storing("").jwt(&public).start();
    let token = |subject: &str, job: Option<&str>| {
        let mut claims = claims();
        claims.sub = subject.to_owned();
        claims.job_id = job.map(str::to_owned);
        bearer(&signer, &claims)
    };
    let (own, renewed) = (token("a", Some("1")), token("a", Some("1")));
    let file = put(&proxy, &[("authorization", &own)], b"content");
    for other in [
        token("b", Some("1")),
        token("a", Some("2")),
        token("a", None),
    ] {
        let headers = [("authorization", other.as_str())];
        assert_eq!(get(&proxy, &headers, &file["file"]).status, 404);
        let answer = proxy.call(Some(&other), UPLOAD, json!({"file": file["file"]}));
        assert_eq!(answer.status, 404);
    }
    // A sandbox gets new tokens while it runs.
    let headers = [("authorization", renewed.as_str())];
    assert_eq!(get(&proxy, &headers, &file["file"]).body, b"content");
}

#[test]
fn file_that_is_not_used_goes_after_its_time() {
    let proxy = storing("[files]\nttl_seconds = 1\n").start();
    let file = put(&proxy, &[], &bytes(SPOOLED));
    proxy.settles("ati_file_spool_bytes", 0.0);
    assert_eq!(get(&proxy, &[], &file["file"]).status, 404);
}

#[test]
fn file_of_a_process_that_ended_is_told_to_be_gone() {
    let mut proxy = storing("").start();
    let file = put(&proxy, &[], &bytes(SPOOLED));
    let mut former = proxy.upgrade();
    former.wait();
    let answer = proxy.call(None, UPLOAD, json!({"file": file["file"], "filename": "f"}));
    assert_eq!(refusal(&answer), (404, NO_FILE.to_owned()));
}

#[test]
fn process_that_is_killed_leaves_no_file() {
    let spools = tempfile::tempdir().unwrap();
    let mut proxy = storing("")
        .env("TMPDIR", spools.path().to_str().unwrap())
        .start();
    put(&proxy, &[], &bytes(SPOOLED));
    assert_eq!(proxy.metric("ati_file_spool_bytes"), Some(SPOOLED as f64));
    let names = || std::fs::read_dir(spools.path()).unwrap().count();
    // It has no name even while it is there.
    assert_eq!(names(), 0);
    proxy.signal("KILL");
    proxy.wait();
    assert_eq!(names(), 0);
}

#[test]
fn route_at_the_same_path_goes_first() {
    let upstream = Upstream::echo();
    let route = "path_prefix = '/files'\nstrip_prefix = false\n";
    let proxy = Setup::new().route("store", &upstream.url(), route).start();
    let answer = proxy.client().send("PUT", "/files", &[], b"content");
    assert_eq!(
        (answer.status, &answer.json()["target"]),
        (200, &json!("/files"))
    );
    assert_eq!(proxy.client().get("/files/x").json()["target"], "/files/x");
    assert_eq!(proxy.client().get("/health").header("x-ati-files"), None);
    let plain = Setup::new().start();
    assert_eq!(
        plain.client().get("/health").header("x-ati-files"),
        Some("1")
    );
}

/// A proxy whose temporary files are on a disk of 4 MiB.
fn with_small_disk(setup: Setup) -> Option<Proxy> {
    let disk = setup.dir.path().join("disk");
    std::fs::create_dir_all(&disk).unwrap();
    let disk = disk.to_str().unwrap().to_owned();
    let mount = format!("mount -t tmpfs -o size=4m tmpfs {disk}");
    let able = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount])
        .status();
    if !able.is_ok_and(|status| status.success()) {
        skip("no disk can be mounted");
        return None;
    }
    let ordinary = setup.command();
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"])
        .arg(ordinary.get_program())
        .args(ordinary.get_args())
        .env_clear()
        .envs(
            ordinary
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("TMPDIR", &disk);
    Some(setup.start_with(command))
}

#[test]
fn disk_that_is_full_fails_the_transfer_and_no_other_call() {
    let content = bytes(8 << 20);
    let files = server(move |_| (200, String::new(), content.clone()));
    let Some(proxy) = with_small_disk(storing("")) else {
        return;
    };
    let small = bytes(1 << 20);
    for _ in 0..2 {
        let answer = send(&proxy, "PUT", "/files", &[], &bytes(8 << 20));
        assert_eq!(answer.status, 507, "{}", answer.text());
        assert!(answer.text().contains("No space left"), "{}", answer.text());
        let answer = proxy.call(None, DOWNLOAD, json!({"url": files.url()}));
        assert_eq!(answer.status, 507, "{}", answer.text());
        eventually("room for a small file", || {
            let answer = send(&proxy, "PUT", "/files", &[], &small);
            (answer.status == 201).then_some(())
        });
        proxy.client().get("/health");
    }
}
