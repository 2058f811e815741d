//! Confirmations of an upload whose file was put before the call.

use serde_json::{Value, json};

use super::*;
use crate::support::ati::{command, stderr, stdout};

const UPLOAD: &str = "file_manager:upload";

/// A proxy that stores files on its disk, and has uploads confirmed.
fn storing() -> Proxy {
    let setup = Setup::new();
    let text = format!(
        "[provider]\nname = 'file_manager'\nhandler = 'file_manager'\n\
         upload_default_destination = 'disk'\n\
         [provider.upload_destinations.disk]\nkind = 'local'\ndirectory = '{}'\n",
        setup.path().join("store").display()
    );
    setup
        .manifest("file_manager", &text)
        .conf("[policy]\nrequire_confirmation = ['effects.network']\n")
        .start()
}

fn put(proxy: &Proxy, name: &str, content: &[u8]) -> Value {
    let headers = [("x-ati-filename", name)];
    let answer = proxy.client().send("PUT", "/files", &headers, content);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["file"].take()
}

#[test]
fn upload_is_confirmed_for_its_file_and_not_for_the_id() {
    let proxy = storing();
    let asked = proxy.call(None, UPLOAD, json!({"file": put(&proxy, "a.txt", b"one")}));
    let token = confirmation(&asked);
    let again = |file: &Value| confirmed(&proxy, None, UPLOAD, json!({"file": file}), &token);
    for other in [put(&proxy, "a.txt", b"two"), put(&proxy, "b.txt", b"one")] {
        let refused = again(&other);
        assert_eq!(refused.status, 403, "{}", refused.text());
        assert!(error(&refused).contains("the arguments differ"));
    }
    let done = again(&put(&proxy, "a.txt", b"one"));
    assert_eq!(done.status, 200, "{}", done.text());
    let replayed = again(&put(&proxy, "a.txt", b"one"));
    assert_eq!(replayed.status, 403, "{}", replayed.text());
}

#[test]
fn command_uploads_a_file_with_yes_or_with_a_token() {
    let proxy = storing();
    let file = proxy.path("report.txt");
    std::fs::write(&file, "content").unwrap();
    let run = |words: &[&str]| {
        let mut command = command(&proxy.path(""));
        command.env("ATI_PROXY_URL", format!("http://{}", proxy.edge));
        let words = ["-J", "run"].iter().chain(words);
        let path = file.to_str().unwrap();
        let tool = [UPLOAD, "--path", path];
        command.args(words).args(tool).output().unwrap()
    };
    let asked = run(&[]);
    assert_eq!(asked.status.code(), Some(6), "{}", stderr(&asked));
    let text = stderr(&asked);
    let failure = text.lines().rev().find(|it| it.starts_with("{\"error\""));
    let failure: Value = serde_json::from_str(failure.unwrap()).unwrap();
    let token = failure["error"]["confirmation"]["token"].as_str().unwrap();
    for words in [&["--confirm", token][..], &["--yes"]] {
        let done = run(words);
        assert!(done.status.success(), "{}", stderr(&done));
        let result: Value = serde_json::from_str(&stdout(&done)).unwrap();
        assert_eq!(result["size_bytes"], 7, "{result}");
    }
    let replayed = run(&["--confirm", token]);
    assert_eq!(replayed.status.code(), Some(6), "{}", stderr(&replayed));
}
