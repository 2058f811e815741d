//! Lists, whole objects, mistakes in arguments, and options after the tool's name.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::{failure, here};
use crate::support::ati::{Proxy, Setup, command, stderr, stdout, write};
use crate::support::upstream::Upstream;

const TOOLS: &str = r#"
    [[tools]]
    name = 'bill:list'
    endpoint = '/list'
    [tools.input_schema]
    required = ['customer']
    [tools.input_schema.properties]
    customer = { type = 'string' }
    limit = { type = 'integer' }
    status = { type = 'array', items = { type = 'string' } }

    [[tools]]
    name = 'bill:make'
    endpoint = '/make'
    method = 'POST'
    [tools.input_schema]
    additionalProperties = false
    [tools.input_schema.properties]
    lines = { type = 'array', items = { type = 'object' } }
    ids = { type = 'array', items = { type = 'integer' } }
    meta = { type = 'object' }
    name = { type = 'string' }
"#;

struct Both {
    api: Upstream,
    proxy: Proxy,
    local: tempfile::TempDir,
    url: String,
}

impl Both {
    fn new() -> Self {
        let api = Upstream::answering(|_, stream| {
            let body = r#"[{"b": 1, "a": "x"}]"#;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + body).as_bytes()).is_ok()
        });
        let manifest = format!(
            "[provider]\nname = 'bill'\nbase_url = '{}'\n{TOOLS}",
            api.url()
        );
        let proxy = Setup::new().manifest("bill", &manifest).start();
        let local = tempfile::tempdir().unwrap();
        write(&local.path().join("manifests/bill.toml"), &manifest);
        let url = format!("http://{}", proxy.edge);
        Both {
            api,
            proxy,
            local,
            url,
        }
    }

    /// The command here, then through the proxy.
    fn run(&self, args: &[&str]) -> [Output; 2] {
        let proxied = [("ATI_PROXY_URL", self.url.as_str())];
        [&[][..], &proxied].map(|env| here(self.local.path(), env, args))
    }

    fn run_with_stdin(&self, args: &[&str], input: &str) -> [Output; 2] {
        let proxied = [("ATI_PROXY_URL", self.url.as_str())];
        [&[][..], &proxied].map(|env| {
            let mut child = command(self.local.path())
                .envs(env.iter().copied())
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // A command that fails early doesn't read it.
            let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
            child.wait_with_output().unwrap()
        })
    }

    /// What the upstream received for each of two runs that went well.
    fn sent(&self, outputs: [Output; 2]) -> [(String, Value); 2] {
        for output in &outputs {
            assert!(output.status.success(), "{}", stderr(output));
            assert_eq!(stderr(output), "");
        }
        let received = self.api.received();
        let last = received.len().checked_sub(2).unwrap();
        [&received[last], &received[last + 1]].map(|received| {
            let body = serde_json::from_slice(&received.body).unwrap_or_default();
            (received.target.clone(), body)
        })
    }

    /// Neither run may reach the upstream; both exit with 2 and a message with these words.
    fn refused(&self, outputs: [Output; 2], words: &str) {
        for output in &outputs {
            let (code, _, message) = failure(output);
            assert_eq!(code, 2, "{message}");
            assert!(message.contains(words), "{words}: {message}");
        }
        assert_eq!(self.api.received().len(), 0);
    }
}

#[test]
fn repeated_flag_is_a_list_and_one_value_a_list_of_one() {
    let both = Both::new();
    for (line, target) in [
        (&["--status", "open"][..], "/list?customer=c&status=open"),
        (
            &["--status", "open", "--status", "1.10"],
            "/list?customer=c&status=open&status=1.10",
        ),
        (
            &["--status", "[\"a\", 1.10]"],
            "/list?customer=c&status=a&status=1.10",
        ),
    ] {
        let line = [&["run", "bill:list", "--customer", "c"], line].concat();
        for (sent, _) in both.sent(both.run(&line)) {
            assert_eq!(sent, target);
        }
    }
    let line = ["run", "bill:make", "--ids", "5", "--lines", "{\"a\": 1}"];
    for (_, body) in both.sent(both.run(&line)) {
        assert_eq!(body, json!({"ids": [5], "lines": [{"a": 1}]}));
    }
}

#[test]
fn mistakes_are_named_and_nothing_is_sent() {
    let both = Both::new();
    for (line, words) in [
        (
            &["bill:make", "some", "words"][..],
            "Invalid arguments: 'some', 'words' belong to no argument",
        ),
        (
            &["bill:list", "-c", "x"],
            "'-c', 'x' belong to no argument; write --c value",
        ),
        (
            &["bill:list", "--custmer", "x"],
            "customer: is required (unknown argument 'custmer'; did you mean 'customer'?)",
        ),
        (
            &["bill:make", "--nme", "x"],
            "nme: is not known to this tool; did you mean 'name'?",
        ),
        (
            &["bill:list", "--customer", "a", "--customer", "b"],
            "customer: is given 2 times, and takes one value",
        ),
        (
            &["bill:make", "--lines", "[{\"a\": 1}"],
            "lines: isn't JSON: ",
        ),
        (&["bill:make", "--meta", "{\"a\""], "meta: isn't JSON: "),
        (
            &["bill:list", "--customer", "c", "--output", "yaml"],
            "--output: expected json, table, text",
        ),
    ] {
        both.refused(both.run(&[&["run"], line].concat()), words);
    }
    // A stray word may be a secret: the audit doesn't repeat it.
    let stray = ["run", "bill:make", "planted-word"];
    both.refused(both.run(&stray), "'planted-word' belongs to no argument");
    let audit = std::fs::read_to_string(both.local.path().join("audit.jsonl")).unwrap();
    assert!(
        audit.contains("words that belong to no argument"),
        "{audit}"
    );
    crate::support::ati::tells_nothing("the audit", &audit);
}

#[test]
fn unknown_argument_is_a_warning_where_the_schema_allows_it() {
    let both = Both::new();
    let line = ["run", "bill:list", "--customer", "c", "--limt", "3"];
    for output in both.run(&line) {
        assert!(output.status.success(), "{}", stderr(&output));
        let told = stderr(&output);
        let expected = "unknown argument 'limt'; did you mean 'limit'?";
        assert!(told.contains(expected), "{told}");
        assert!(stdout(&output).starts_with('['), "{}", stdout(&output));
    }
    assert_eq!(both.api.last().target, "/list?customer=c&limt=3");
    let odd = json!({"customer": "c", "l\r\nimt\u{e4}": 1});
    let answer = both.proxy.call(None, "bill:list", odd);
    assert_eq!(answer.status, 200);
    let told = answer.header("x-ati-warning").unwrap();
    assert_eq!(told, "unknown argument 'l??imt?'; did you mean 'limit'?");
}

#[test]
fn arguments_come_whole_from_a_file_or_standard_input() {
    let both = Both::new();
    let object = r#"{"customer": "from file", "limit": 1, "status": "open"}"#;
    let file = both.local.path().join("args.json");
    write(&file, object);
    let file = file.to_str().unwrap();
    let target = "/list?customer=from%20file&limit=1&status=open";
    let line = ["run", "--args-file", file, "bill:list"];
    for (sent, _) in both.sent(both.run(&line)) {
        assert_eq!(sent, target);
    }
    for (sent, _) in both.sent(both.run_with_stdin(&["run", "bill:list", "-"], object)) {
        assert_eq!(sent, target);
    }
    // A flag counts more, and a value is never a file's name.
    let at = format!("@{file}");
    let line = ["run", "bill:list", "-", "--customer", &at, "--Limit", "2"];
    for (sent, _) in both.sent(both.run_with_stdin(&line, object)) {
        let encoded = at.replace('@', "%40").replace('/', "%2F");
        assert_eq!(
            sent,
            format!("/list?customer={encoded}&limit=2&status=open")
        );
    }
    // Digits of the file are kept where the schema says string.
    let long = r#"{"customer": 123456789012345678901}"#;
    for (sent, _) in both.sent(both.run_with_stdin(&["run", "bill:list", "-"], long)) {
        assert_eq!(sent, "/list?customer=123456789012345678901");
    }
}

#[test]
fn whole_arguments_that_are_no_object_are_refused() {
    let both = Both::new();
    let line = ["run", "bill:list", "-"];
    for bad in ["", "[1]", "{\"customer\": ", "nothing"] {
        let words = "standard input: the arguments have to be one JSON object";
        both.refused(both.run_with_stdin(&line, bad), words);
    }
    let absent = ["run", "--args-file", "/nonexistent/args", "bill:list"];
    both.refused(both.run(&absent), "/nonexistent/args: ");
    let file = both.local.path().join("args.json");
    write(&file, "{}");
    let twice = [
        "run",
        "--args-file",
        file.to_str().unwrap(),
        "bill:list",
        "-",
    ];
    both.refused(both.run_with_stdin(&twice, "{}"), "not from both");
}

#[test]
fn options_of_ati_work_after_the_name_of_the_tool() {
    let both = Both::new();
    let line = ["run", "bill:list", "--customer", "c"];
    for output in both.run(&[&line[..], &["--output", "table"]].concat()) {
        assert!(stdout(&output).contains('┌'), "{}", stdout(&output));
    }
    for output in both.run(&[&line[..], &["--format=text"]].concat()) {
        assert_eq!(stdout(&output), "{\"b\":1,\"a\":\"x\"}\n");
    }
    for output in both.run(&[&line[..], &["--output", "text", "-J"]].concat()) {
        assert!(stdout(&output).starts_with("[\n"), "{}", stdout(&output));
    }
    for output in both.run(&[&line[..], &["--verbose"]].concat()) {
        assert!(stderr(&output).contains("mode: "), "{}", stderr(&output));
    }
    // A failure has the format too.
    for output in both.run(&["run", "bill:list", "--output", "text"]) {
        assert_eq!(output.status.code(), Some(2));
        assert!(!stderr(&output).contains("{\"error\""));
    }
    for received in both.api.received() {
        assert_eq!(received.target, "/list?customer=c");
    }
}
