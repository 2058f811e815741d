//! Transfers take as much memory as they take for a small file: proxy and command alike.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::wire::storing;
use super::{DOWNLOAD, UPLOAD};
use crate::support::ati::{Proxy, command};
use crate::support::http::Client;
use crate::support::upstream::Upstream;

/// MiB that a process may have in RAM at its peak, the program itself included.
const MOST: u64 = 96;
/// What twenty transfers may take besides the program: buffers, and threads that write files. Their
/// number depends on the disk, the size of files doesn't matter.
const MOST_FOR_TWENTY: u64 = 128;
const PIECE: usize = 1 << 20;

/// A piece of the file that is transferred: every one is another.
fn piece(n: u64) -> Vec<u8> {
    let mut piece = vec![0x5a; PIECE];
    piece[..8].copy_from_slice(&n.to_le_bytes());
    piece
}

fn write_file(path: &Path, mib: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    for n in 0..mib {
        file.write_all(&piece(n)).unwrap();
    }
}

fn assert_whole(path: &Path, mib: u64) {
    let mut file = std::fs::File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), mib * PIECE as u64);
    let mut read = vec![0; PIECE];
    for n in 0..mib {
        file.read_exact(&mut read).unwrap();
        assert!(read == piece(n), "piece {n}");
    }
}

fn source(mib: u64) -> Upstream {
    Upstream::answering(move |_, stream| {
        let length = mib * PIECE as u64;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).is_ok()
            && (0..mib).all(|n| stream.write_all(&piece(n)).is_ok())
    })
}

/// The peak of a process in MiB; None once it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024)
}

/// Waits for the command, and returns its peak.
fn watch(mut child: Child) -> u64 {
    let mut most = 0;
    loop {
        most = most.max(peak(child.id()).unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return most;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn spawn(dir: &Path, proxy: &str, words: &[&str]) -> Child {
    let mut ati = command(&dir.join("ati"));
    ati.arg("run").args(words).env("ATI_PROXY_URL", proxy);
    ati.stdout(Stdio::null()).spawn().unwrap()
}

fn stored_path(proxy: &Proxy) -> std::path::PathBuf {
    let found = Command::new("find")
        .arg(proxy.path("store"))
        .args(["-type", "f"])
        .output();
    String::from_utf8(found.unwrap().stdout)
        .unwrap()
        .trim_end()
        .into()
}

/// A proxy in front of `proxy` that hides its `X-Ati-Files`, so that commands send JSON.
fn hiding(proxy: &Proxy) -> Upstream {
    let edge = proxy.edge;
    Upstream::raw(move |mut caller| {
        let mut upstream = std::net::TcpStream::connect(edge).unwrap();
        let (mut from, mut to) = (caller.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let mut begin = vec![0; 4096];
        let read = upstream.read(&mut begin).unwrap_or(0);
        let text = String::from_utf8_lossy(&begin[..read]).into_owned();
        match text.contains("x-ati-files: 1") {
            true => caller.write_all(text.replace("x-ati-files", "x-ati-fixes").as_bytes()),
            false => caller.write_all(&begin[..read]),
        }
        .unwrap();
        let _ = std::io::copy(&mut upstream, &mut caller);
    })
}

/// Up and down, by JSON and as files, within the memory.
fn transfers(mib: u64) {
    let dir = tempfile::tempdir().unwrap();
    let files = source(mib);
    let (path, out) = (dir.path().join("in.bin"), dir.path().join("out.bin"));
    write_file(&path, mib);
    let limit = (mib * PIECE as u64).to_string();
    for as_json in [false, true] {
        let proxy = storing("").start();
        let older = hiding(&proxy);
        let url = match as_json {
            true => older.url(),
            false => format!("http://{}", proxy.edge),
        };
        let line = [UPLOAD, "--path", path.to_str().unwrap()];
        let command = watch(spawn(dir.path(), &url, &line));
        let after_upload = peak(proxy.pid()).unwrap();
        assert_whole(&stored_path(&proxy), mib);
        let (source, target) = (files.url(), out.to_str().unwrap());
        let line = [
            DOWNLOAD,
            "--url",
            &source,
            "--out",
            target,
            "--max_bytes",
            &limit,
        ];
        let other = watch(spawn(dir.path(), &url, &line));
        assert_whole(&out, mib);
        let proxys = peak(proxy.pid()).unwrap();
        let peaks = format!(
            "json {as_json}: upload {command}, download {other}, \
             proxy {after_upload}, then {proxys} MiB"
        );
        assert!(command.max(other).max(proxys) < MOST, "{peaks}");
        let puts =
            proxy.metric("ati_requests_total{method=\"PUT\",route=\"/files\",status=\"2xx\"}");
        assert_eq!(puts.is_none(), as_json, "{puts:?}");
        proxy.settles("ati_file_spool_bytes", 0.0);
    }
}

#[test]
fn transfers_of_64_mib_take_bounded_memory() {
    transfers(64);
}

#[test]
#[ignore = "heavy"]
fn transfers_of_1_gib_take_bounded_memory() {
    transfers(1024);
}

/// Uploads and downloads at once, with room for four of them.
fn crowd(mib: u64) {
    let files = source(mib);
    let proxy = storing(&format!(
        "[files]\nspool_bytes = {}\n",
        4 * mib * PIECE as u64
    ))
    .start();
    let before = peak(proxy.pid()).unwrap();
    let answers: Vec<(u16, bool)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..20)
            .map(|n| {
                let (files, proxy) = (&files, &proxy);
                scope.spawn(move || {
                    let mut client = proxy.client();
                    if n % 2 == 0 {
                        let args = json!({"url": files.url(), "delivery": "file",
                            "max_bytes": mib * PIECE as u64});
                        return answered(&post(&mut client, &args));
                    }
                    let length = mib * PIECE as u64;
                    let head = format!(
                        "PUT /files HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n"
                    );
                    client.write(head.as_bytes());
                    let sent = (0..mib).all(|n| client.try_write(&piece(n)).is_ok());
                    match client.try_read(false) {
                        Some(answer) => answered(&answer),
                        None => panic!("no answer; everything was sent: {sent}"),
                    }
                })
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let good = answers
        .iter()
        .filter(|(status, _)| matches!(status, 200 | 201))
        .count();
    let busy = answers
        .iter()
        .filter(|answer| **answer == (503, true))
        .count();
    assert_eq!(good + busy, 20, "{answers:?}");
    assert!((1..=4).contains(&good) && busy > 0, "{answers:?}");
    let after = peak(proxy.pid()).unwrap();
    assert!(
        after < before + MOST_FOR_TWENTY,
        "{before}, then {after} MiB"
    );
    assert_eq!(proxy.client().get("/health").status, 200);
}

fn post(client: &mut Client, args: &Value) -> crate::support::http::Response {
    let body = json!({"tool_name": DOWNLOAD, "args": args}).to_string();
    client.send("POST", "/call", &[], body.as_bytes())
}

fn answered(answer: &crate::support::http::Response) -> (u16, bool) {
    (answer.status, answer.header("retry-after").is_some())
}

#[test]
fn twenty_transfers_at_once_are_bounded_by_the_quota() {
    crowd(8);
}

#[test]
#[ignore = "heavy"]
fn twenty_transfers_of_1_gib_at_once_are_bounded_by_the_quota() {
    crowd(1024);
}
