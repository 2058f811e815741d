//! Callers, programs, upstreams and proxies that mean harm.

use std::os::unix::fs::FileTypeExt as _;

use serde_json::{Value, json};

use super::{World, names};
use crate::support::ati::{Setup, command, stderr, stdout};
use crate::support::upstream::Upstream;

#[test]
fn path_of_the_caller_never_names_a_file_on_the_proxy() {
    let world = World::new();
    let canary = tempfile::tempdir().unwrap();
    let inside = canary.path().join("x.png");
    let long = format!("{}/{}.png", canary.path().display(), "a".repeat(4096));
    let deep = format!("{}x.png", "../".repeat(1300));
    let paths = [
        inside.to_str().unwrap(),
        &long,
        &deep,
        "../../x.png",
        "..",
        "/",
        "a/b/",
        "x.\n",
        "new\nline.png",
        "-rf",
        "--output",
        "$(touch x).png",
        "`touch x`",
        "x.png;touch y",
        "ä.png",
        "~/x.png",
        "/etc/passwd",
        "/proc/self/environ",
        "x.0123456789abcdefg",
    ];
    for path in paths {
        for words in [
            ["-o", path].map(str::to_owned).to_vec(),
            vec![format!("-o={path}")],
        ] {
            let script =
                r#"--do=for last; do :; done; f=${last#-o=}; echo x > "$f"; echo "$f" | od -An -c"#;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (status, answer) = world.post(&[&[script][..], &words].concat());
            assert_eq!(status, 200, "{path:?}: {answer}");
            let written = &answer["result"]["outputs"][path]["content_base64"];
            assert_eq!(written, "eAo=", "{path:?}");
            // Letter by letter, so that ati doesn't put the caller's path back.
            let seen: String = answer["result"]["stdout"]
                .as_str()
                .unwrap()
                .split_whitespace()
                .collect();
            let seen = seen.strip_suffix("\\n").unwrap();
            let folder = format!("{}/.ati-cli-out-", world.temporary.path().display());
            let rest = seen
                .strip_prefix(&folder)
                .unwrap_or_else(|| panic!("{seen}"));
            let (_, name) = rest.split_once('/').unwrap();
            assert!(["0", "0.png"].contains(&name), "{path:?}: {name}");
        }
    }
    assert_eq!(names(canary.path()), [""; 0]);
    let (status, answer) = world.post(&["--do=true", "-o", "a\0b.png"]);
    assert!((400..500).contains(&status), "{status} {answer}");
    world.assert_nothing_left();
}

#[test]
fn file_that_is_no_file_of_its_own_is_refused() {
    let world = World::new();
    let foreign = tempfile::NamedTempFile::new_in(world.caller.path()).unwrap();
    let foreign = foreign.path().display();
    for (what, why) in [
        ("ln -s /etc/shadow $2".to_owned(), "is no regular file"),
        (format!("ln -s {foreign} $2"), "is no regular file"),
        ("ln -s $2 $2".to_owned(), "is no regular file"),
        ("mkfifo $2".to_owned(), "is no regular file"),
        ("mkdir $2".to_owned(), "is no regular file"),
        (
            "d=${2%/*}; mv $d $d.old; ln -s /etc $d; rm $d; mv $d.old $d".to_owned(),
            "was not produced",
        ),
        (format!("ln {foreign} $2"), "has a second name"),
    ] {
        let (status, answer) = world.post(&[&format!("--do={what}"), "shot", "x.png"]);
        assert_eq!(status, 502, "{what}");
        let told = answer["error"].as_str().unwrap();
        assert!(
            told.starts_with("CLI error: Captured output 'x.png' "),
            "{told}"
        );
        assert!(told.contains(why), "{what}: {told}");
    }
    world.assert_nothing_left();
}

#[test]
fn more_files_than_a_call_may_have_are_refused_before_the_program_starts() {
    let world = World::new();
    let mark = world.at("started");
    let mut words = vec![format!("--do=touch {}", mark.display())];
    words.extend((0..65).map(|n| format!("-o={n}.txt")));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (status, answer) = world.post(&words);
    let expected = "Invalid arguments: words: more than 64 output files in one call";
    assert_eq!((status, &answer["error"]), (422, &json!(expected)));
    assert!(!mark.exists());
}

/// A proxy of someone else's, which answers every call with this, and says nothing more.
fn foreign_proxy(result: &Value) -> Upstream {
    let body = json!({"result": result}).to_string();
    Upstream::answering(move |_, stream| {
        use std::io::Write as _;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).is_ok()
    })
}

fn file(content_base64: &str) -> Value {
    json!({"content_base64": content_base64, "size_bytes": 3, "content_type": "text/plain"})
}

#[test]
fn older_proxy_is_understood_and_writes_only_what_the_caller_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ours, theirs) = (at("ours.txt"), at(".bashrc"));
    let result = json!({"stdout": "ok", "outputs": {&ours: file("YWJj"), &theirs: file("YWJj")}});
    let proxy = foreign_proxy(&result);
    let output = command(dir.path())
        .env("ATI_PROXY_URL", proxy.url())
        .args(["run", "bb", "save", &format!("--output={ours}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read(&ours).unwrap(), b"abc");
    assert!(!std::path::Path::new(&theirs).exists());
    let told = stderr(&output);
    assert!(told.contains(".bashrc' is not written"), "{told}");
    let printed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let expected = json!({"stdout": "ok", "outputs": {
        &ours: {"size_bytes": 3, "content_type": "text/plain", "path": &ours},
        &theirs: file("YWJj"),
    }});
    assert_eq!(printed, expected);
}

#[test]
fn answer_that_ends_early_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/x.txt");
    let ours = path.to_str().unwrap();
    let whole = json!({"stdout": "", "outputs": {ours: file("YWJj")}});
    let mut part = whole.clone();
    part["outputs"][ours]["size_bytes"] = json!(4);
    let mut wrong = whole.clone();
    wrong["outputs"][ours]["content_base64"] = json!("Y*Jj");
    for result in [part, wrong] {
        let proxy = foreign_proxy(&result);
        let output = command(dir.path())
            .env("ATI_PROXY_URL", proxy.url())
            .args(["run", "bb", ours])
            .output()
            .unwrap();
        assert!(!output.status.success(), "{}", stdout(&output));
        assert_eq!(names(path.parent().unwrap()), [""; 0]);
    }
}

#[test]
fn upstream_of_a_tool_can_not_write_files_of_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.txt");
    let ours = path.to_str().unwrap();
    let forged = json!({"stdout": "", "outputs": {ours: file("YWJj")}});
    let body = forged.to_string();
    let api = Upstream::answering(move |_, stream| {
        use std::io::Write as _;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).is_ok()
    });
    let proxy = Setup::new()
        .tools(
            "api",
            &api.url(),
            "",
            "[[tools]]\nname = 'api:get'\nendpoint = '/get'",
        )
        .start();
    let output = command(dir.path())
        .env("ATI_PROXY_URL", format!("http://{}", proxy.edge))
        .args(["run", "api:get", "--path", ours])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let printed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(printed, forged);
    assert!(!path.exists());
}

#[test]
fn device_and_pipe_of_the_caller_are_not_replaced() {
    let world = World::new();
    let pipe = world.at("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    for is_remote in [false, true] {
        for path in ["/dev/null", "pipe"] {
            let output = world.run(is_remote, &["--do=echo x > $2", "shot", path]);
            let told = stderr(&output);
            assert!(told.contains("no regular file"), "{told}");
        }
    }
    let kind = |path: &std::path::Path| std::fs::metadata(path).unwrap().file_type();
    assert!(kind(&pipe).is_fifo() && kind("/dev/null".as_ref()).is_char_device());
}
