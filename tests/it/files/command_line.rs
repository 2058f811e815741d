//! `ati run` of file tools: through a proxy, an older one too, and on this machine.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::wire::storing;
use super::{DOWNLOAD, UPLOAD, bytes, server, sha256};
use crate::support::ati::{command, stderr, stdout};
use crate::support::eventually;
use crate::support::upstream::{Received, Upstream};

const SIZE: usize = 3 << 20;

/// The folder of a sandbox.
struct Sandbox(tempfile::TempDir);

impl Sandbox {
    fn new() -> Self {
        Sandbox(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, proxy: Option<&str>, words: &[&str]) -> Command {
        let mut command = command(&self.path("ati"));
        command.arg("run").args(words).current_dir(self.0.path());
        command.envs(proxy.map(|url| ("ATI_PROXY_URL", url)));
        command
    }

    /// The result of a call that went well, and wrote nothing to stderr.
    fn run(&self, proxy: Option<&str>, words: &[&str]) -> Value {
        let output = self.command(proxy, words).arg("-J").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    /// The error of one that failed, and left no file.
    fn fails(&self, proxy: Option<&str>, words: &[&str]) -> Value {
        let before = names(self.0.path());
        let output = self.command(proxy, words).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(stdout(&output), "");
        assert_eq!(names(self.0.path()), before);
        let text = stderr(&output);
        let line = text.lines().last().unwrap_or_default();
        serde_json::from_str::<Value>(line).unwrap()["error"].clone()
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "ati")
        .collect();
    names.sort();
    names
}

fn source(content: Vec<u8>) -> Upstream {
    server(move |_| (200, "content-type: video/mp4\r\n".into(), content.clone()))
}

fn file_of(result: &Value) -> Vec<u8> {
    let url = url::Url::parse(result["url"].as_str().unwrap()).unwrap();
    std::fs::read(url.to_file_path().unwrap()).unwrap()
}

#[test]
fn files_go_both_ways_through_the_proxy_and_on_this_machine() {
    let (sandbox, content) = (Sandbox::new(), bytes(SIZE));
    let files = source(content.clone());
    let proxy = storing("").start();
    let url = format!("http://{}", proxy.edge);
    let manifest = std::fs::read(proxy.path("manifests/file_manager.toml")).unwrap();
    sandbox.file("ati/manifests/file_manager.toml", &manifest);
    let path = sandbox.file("in.mp4", &content);
    for proxy in [Some(url.as_str()), None] {
        let out = sandbox.path("out");
        let line = [
            DOWNLOAD,
            "--url",
            &files.url(),
            "--out",
            out.to_str().unwrap(),
        ];
        let result = sandbox.run(proxy, &line);
        let expected = json!({"success": true, "size_bytes": SIZE, "content_type": "video/mp4",
            "source_url": files.url(), "sha256": sha256(&content), "path": out});
        assert_eq!(result, expected);
        assert_eq!(std::fs::read(&out).unwrap(), content);
        assert_eq!(names(sandbox.0.path()), ["in.mp4", "out"]);
        std::fs::remove_file(&out).unwrap();

        let result = sandbox.run(
            proxy,
            &[UPLOAD, "--path", &path, "--object-name", "x y.bin"],
        );
        assert_eq!(file_of(&result), content);
        assert_eq!(result["sha256"], json!(sha256(&content)));
        assert_eq!(result["content_type"], "application/octet-stream");
        assert!(
            result["url"].as_str().unwrap().ends_with("-x%20y.bin"),
            "{result}"
        );

        // Without --out the bytes are in the result, however many they are.
        let result = sandbox.run(proxy, &[DOWNLOAD, "--url", &files.url(), "--inline"]);
        assert_eq!(
            STANDARD.decode(result["content_base64"].as_str().unwrap()),
            Ok(content.clone())
        );
        assert_eq!(result["size_bytes"], json!(SIZE));
        let text = sandbox.command(
            proxy,
            &[DOWNLOAD, "--url", &files.url(), "--output", "text"],
        );
        let text = stdout(&{ text }.output().unwrap());
        let line = format!("content_base64: {}\n", STANDARD.encode(&content));
        assert!(text.starts_with("success: true\n") && text.ends_with(&line));
    }
    // The binary way was taken where it was to be.
    assert!(
        proxy
            .metric("ati_requests_total{method=\"PUT\",route=\"/files\",status=\"2xx\"}")
            .is_some()
    );
    assert!(
        proxy
            .metric("ati_requests_total{method=\"GET\",route=\"/files/{id}\",status=\"2xx\"}")
            .is_some()
    );
    proxy.settles("ati_file_spool_bytes", 0.0);
}

#[test]
fn failed_transfer_tells_why_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let proxy = storing("[files]\nmax_bytes = 1000\n").start();
    let url = format!("http://{}", proxy.edge);
    let files = server(|received| match received.target.as_str() {
        "/none" => (404, String::new(), b"nothing here".to_vec()),
        _ => (200, String::new(), bytes(2000)),
    });
    let remote = Some(url.as_str());
    let none = format!("{}/none", files.url());
    let big = sandbox.file("big", &bytes(2000));
    for (line, code, text) in [
        (
            vec![DOWNLOAD, "--url", &none, "--out", "out"],
            "provider.upstream_error",
            "Proxy error (404): Upstream returned status 404",
        ),
        (
            vec![DOWNLOAD, "--out", "out"],
            "input.missing_arg",
            "Missing required argument: url",
        ),
        (
            vec![DOWNLOAD, "--url", &none, "--out", "/dev/null/out"],
            "input.invalid_value",
            "/dev/null/out",
        ),
        (
            vec![UPLOAD, "--path", &big],
            "input.invalid_value",
            "Proxy error (413): Response exceeds max-bytes (1000 bytes)",
        ),
        (
            vec![UPLOAD],
            "input.missing_arg",
            "Missing required argument: path",
        ),
        (
            vec![UPLOAD, "--path", "absent"],
            "input.invalid_value",
            "absent",
        ),
        (
            vec![UPLOAD, "stray"],
            "input.invalid_value",
            "Invalid arguments",
        ),
    ] {
        let error = sandbox.fails(remote, &line);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(text), "{line:?}: {error}");
        assert_eq!(error["code"], code, "{line:?}: {error}");
    }
    let whole = format!("{}/whole", files.url());
    for (line, text) in [
        (vec![DOWNLOAD, "--url", "nope"], "Invalid URL: "),
        (
            vec![DOWNLOAD, "--url", &whole, "--max-bytes", "10"],
            "Response exceeds max-bytes (10 bytes)",
        ),
        (vec![UPLOAD, "--path", &big, "--file", "x"], "two files"),
    ] {
        // The same with and without a proxy.
        for remote in [remote, None] {
            let error = sandbox.fails(remote, &line);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(text), "{line:?}: {error}");
            assert_eq!(error["code"], "input.invalid_value", "{line:?}: {error}");
        }
    }
    let kept = [DOWNLOAD, "--url", &whole, "--delivery", "file"];
    let error = sandbox.fails(None, &kept);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("only a proxy keeps files"), "{error}");
}

/// A proxy of the time before `/files`. What it got of an upload, and how often it was asked.
fn older_proxy(content: Vec<u8>, digest: Option<String>) -> Upstream {
    Upstream::answering(move |received: &Received, stream| {
        let answer = match received.target.as_str() {
            "/health" => json!({"status": "ok"}),
            "/call" => {
                let call: Value = serde_json::from_slice(&received.body).unwrap();
                match call["tool_name"].as_str() {
                    Some(DOWNLOAD) => {
                        assert!(call["args"].get("delivery").is_none(), "{call}");
                        let mut result = json!({"success": true, "size_bytes": content.len(),
                            "content_type": null, "source_url": call["args"]["url"],
                            "content_base64": STANDARD.encode(&content)});
                        if let Some(digest) = &digest {
                            result["sha256"] = json!(digest);
                        }
                        json!({"result": result})
                    }
                    _ => json!({"result": {"success": true, "url": "https://x/f",
                        "got": call["args"]}}),
                }
            }
            _ => panic!("an older proxy has no {}", received.target),
        };
        let text = answer.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            text.len()
        );
        stream.write_all((head + &text).as_bytes()).is_ok()
    })
}

#[test]
fn older_proxy_gets_and_sends_files_in_json() {
    let (sandbox, content) = (Sandbox::new(), bytes(SIZE));
    let proxy = older_proxy(content.clone(), None);
    let path = sandbox.file("a.png", &content);
    let result = sandbox.run(
        Some(&proxy.url()),
        &[UPLOAD, "--path", &path, "--destination", "d"],
    );
    assert_eq!(result["got"]["filename"], "a.png");
    assert_eq!(result["got"]["content_type"], "image/png");
    assert_eq!(result["got"]["destination"], "d");
    let sent = result["got"]["content_base64"].as_str().unwrap();
    assert!(STANDARD.decode(sent) == Ok(content.clone()));
    let line = [DOWNLOAD, "--url", "http://x/", "--out", "out"];
    let result = sandbox.run(Some(&proxy.url()), &line);
    assert_eq!(result["path"], "out");
    assert_eq!(result["sha256"], json!(sha256(&content)));
    assert_eq!(std::fs::read(sandbox.path("out")).unwrap(), content);
}

#[test]
fn file_that_is_damaged_on_the_way_is_not_kept() {
    let sandbox = Sandbox::new();
    let proxy = older_proxy(bytes(SIZE), Some(sha256(b"another file")));
    let line = [DOWNLOAD, "--url", "http://x/", "--out", "out"];
    let error = sandbox.fails(Some(&proxy.url()), &line);
    assert!(
        error["message"].as_str().unwrap().contains("SHA-256"),
        "{error}"
    );
}

/// Sends SIGINT, and waits for the end.
fn interrupt(mut child: Child) -> i32 {
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let status = eventually("the end of the command", || child.try_wait().unwrap());
    status.code().expect("an exit code")
}

/// Sends the beginning of a file, and no more.
fn stalling() -> (Upstream, Arc<AtomicBool>) {
    let begun = Arc::new(AtomicBool::new(false));
    let told = begun.clone();
    let upstream = Upstream::answering(move |_, stream: &mut TcpStream| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 2 * SIZE);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&bytes(SIZE)).unwrap();
        told.store(true, Ordering::SeqCst);
        // Until the other side leaves.
        let _ = stream.read(&mut [0]);
        false
    });
    (upstream, begun)
}

#[test]
fn interrupted_download_leaves_nothing() {
    let (sandbox, proxy) = (Sandbox::new(), storing("").start());
    let url = format!("http://{}", proxy.edge);
    for remote in [Some(url.as_str()), None] {
        let (files, begun) = stalling();
        let source = files.url();
        let line = [DOWNLOAD, "--url", &source, "--out", "out"];
        let mut command = sandbox.command(remote, &line);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        eventually("the middle of the download", || {
            begun.load(Ordering::SeqCst).then_some(())
        });
        assert_eq!(interrupt(child.unwrap()), 130);
        assert_eq!(names(sandbox.0.path()), Vec::<String>::new());
        // The proxy gives the download up, too.
        files.wait_until_left();
        proxy.settles("ati_file_spool_bytes", 0.0);
    }
}

#[test]
fn interrupted_upload_ends_with_its_exit_code() {
    let sandbox = Sandbox::new();
    let begun = Arc::new(AtomicBool::new(false));
    let told = begun.clone();
    // Reads the head of the upload, and then nothing.
    let proxy = Upstream::raw(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
            head.push(byte[0]);
        }
        if head.starts_with(b"GET /health") {
            let answer = b"HTTP/1.1 200 OK\r\nx-ati-files: 1\r\nconnection: close\r\n\
                           content-length: 2\r\n\r\n{}";
            let _ = stream.write_all(answer);
            return;
        }
        assert!(head.starts_with(b"PUT /files"));
        told.store(true, Ordering::SeqCst);
        while let Ok(1..) = stream.read(&mut byte) {
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
    });
    let path = sandbox.file("big", &bytes(32 << 20));
    let proxy_url = proxy.url();
    let mut command = sandbox.command(Some(&proxy_url), &[UPLOAD, "--path", &path]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    eventually("the middle of the upload", || {
        begun.load(Ordering::SeqCst).then_some(())
    });
    assert_eq!(interrupt(child.unwrap()), 130);
    assert_eq!(names(sandbox.0.path()), ["big"]);
}
