//! Servers that are slow, stop listening, talk beside the point, or break off: what becomes of calls, and of everybody else's.

use std::sync::Barrier;

use super::*;

fn hello(_: &Received, message: &Value, stream: &mut TcpStream) -> bool {
    stream.write_all(told(message, "hello").as_bytes()).is_ok()
}

fn body(request: &Received) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

#[test]
fn a_server_that_answers_late_which_era_it_is_of_is_used_all_the_same() {
    // It says nothing to the first question until it hears the second, as one does that takes long to start.
    let proxy = started(with("late", ""));
    assert_eq!(result(&proxy, "s:echo", json!({"text": "hello"})), "hello");
}

#[test]
fn a_server_that_never_answers_which_era_it_is_of_is_asked_once() {
    let upstream = particular_server(
        |_, message, _| (message["method"] == "server/discover").then_some(true),
        hello,
    );
    let proxy = started(over_http(&upstream, ""));
    assert_eq!(result(&proxy, "s:who", json!({})), "hello");

    // Known from then on, also to whoever comes later.
    let asked = || {
        let all = upstream.received();
        let discover = |one: &&Received| body(one)["method"] == "server/discover";
        all.iter().filter(discover).count()
    };
    assert_eq!(asked(), 1);
    eventually("the cache", || {
        proxy.path("cache/tools/s.json").exists().then_some(())
    });
    let run = ati(proxy.dir.path(), &["run", "s:who"]);
    assert!(stdout(&run).contains("hello"), "{}", stderr(&run));
    assert_eq!(asked(), 1);
}

#[test]
#[ignore = "takes half a minute"]
fn a_server_that_never_gets_ready_is_left_alone_afterwards() {
    let upstream = Upstream::answering(|_, _| true);
    let proxy = over_http(&upstream, "").start();
    eventually("the second question", || {
        upstream
            .saw(|one| body(one)["method"] == "initialize")
            .then_some(())
    });
    let line = proxy.log.wait_for("its tools can't be listed");
    assert!(
        line.to_string().contains("was not ready within 30 s"),
        "{line}"
    );
    // The next attempt is two seconds away.
    eventually("no connection is left", || {
        (upstream.open_connections() == 0).then_some(())
    });
}

#[test]
fn a_banner_on_stdout_is_no_reason_to_give_up() {
    let proxy = started(with("banner", ""));
    // Some lines with every call, and more than a thousand in the end.
    for _ in 0..150 {
        assert_eq!(result(&proxy, "s:echo", json!({"text": "x"})), "x");
    }
    // One that dies in the middle has died: what may be done again is done again.
    let pid = result(&proxy, "s:pid", json!({})).as_u64().unwrap();
    let slow = {
        let edge = proxy.edge;
        std::thread::spawn(move || {
            let body = json!({"tool_name": "s:slow", "args": {"ms": 500}}).to_string();
            Client::connect(edge).send("POST", "/call", &[], body.as_bytes())
        })
    };
    proxy.settles(r#"ati_in_flight{route="/call"}"#, 1.0);
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let answer = slow.join().unwrap();
    assert_eq!(answer.json()["result"], "done", "{}", answer.text());
}

#[test]
fn a_server_that_stops_listening_is_replaced() {
    let setup = with("good", "");
    let gate = setup.path().join("deaf-once");
    let setup = setup.manifest(
        "s",
        &manifest(
            "s",
            "deaf",
            &format!("[provider.mcp_env]\nDEAF_ONCE = \"{}\"", gate.display()),
        ),
    );
    let proxy = started(setup.conf("[tools]\ntimeout_seconds = 1\n"));
    // From its first call on it reads no more.
    let error = failure(&proxy, "s:echo", json!({"text": "x"}));
    assert!(error.contains("did not answer within 1 s"), "{error}");
    eventually("another server", || {
        let answer = proxy.call(None, "s:echo", json!({"text": "still here"}));
        (answer.status == 200).then_some(())
    });
}

#[test]
fn a_stream_that_breaks_at_once_is_asked_for_ever_more_rarely() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = times.clone();
    let way = move |request: &Received, _: &Value, stream: &mut TcpStream| {
        (request.method == "GET").then(|| {
            noted.lock().unwrap().push(Instant::now());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
            let rest = "connection: close\r\n\r\noops\n";
            let _ = stream.write_all(format!("{head}{rest}").as_bytes());
            false
        })
    };
    let upstream = particular_server(way, hello);
    let proxy = started(over_http(&upstream, ""));
    eventually("three times", || {
        (times.lock().unwrap().len() >= 3).then_some(())
    });
    let times = times.lock().unwrap().clone();
    assert!(
        times[1] - times[0] >= Duration::from_millis(900),
        "{times:?}"
    );
    assert!(
        times[2] - times[1] >= Duration::from_millis(1900),
        "{times:?}"
    );
    assert_eq!(result(&proxy, "s:who", json!({})), "hello");
}

#[test]
fn what_is_refused_while_a_session_is_opened_is_made_anew() {
    // Only the second is good.
    let way = |request: &Received, _: &Value, stream: &mut TcpStream| {
        let refusal = b"HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n";
        let good = request.header("authorization") == Some("Bearer planted-token-2");
        (!good).then(|| stream.write_all(refusal).is_ok())
    };
    let upstream = particular_server(way, hello);
    let setup = over_http(&upstream, "");
    let count = setup.path().join("count");
    let generator = format!(
        "auth_type = \"bearer\"\n[provider.auth_generator]\ntype = \"command\"\ncommand = \"sh\"\nargs = [\"-c\", \"echo x >> {0}; echo planted-token-$(wc -l < {0})\"]\ncache_ttl_secs = 3600\n",
        count.display()
    );
    let manifest = format!(
        "[provider]\nname = \"s\"\nhandler = \"mcp\"\nmcp_transport = \"http\"\nmcp_url = \"{}/mcp\"\n{generator}",
        upstream.url()
    );
    let proxy = started(setup.manifest("s", &manifest));
    assert!(listed(&proxy).contains(&"s:who".to_owned()));
}

#[test]
fn who_may_call_a_tool_is_for_the_manifest_to_say() {
    let (signer, public) = key_pair();
    let tools = "[[tools]]\nname = \"s:echo\"\nscope = \"admin:echo\"\nhint = \"careful\"\n\n[[tools]]\nname = \"s:pid\"\n\n[[tools]]\nname = \"large\"\nscope = \"admin:large\"\n";
    let proxy = started(with("good", tools).jwt(&public));
    let token = |scope: &str| {
        let scope = scope.to_owned();
        bearer(&signer, &Claims { scope, ..claims() })
    };
    let (plain, admin) = (token("tool:s:*"), token("admin:echo"));
    let args = json!({"text": "x"});
    assert_eq!(proxy.call(Some(&plain), "s:echo", args.clone()).status, 403);
    assert_eq!(proxy.call(Some(&plain), "s:pid", json!({})).status, 200);
    // Written without the provider's name, it is meant all the same.
    assert_eq!(proxy.call(Some(&plain), "s:large", json!({})).status, 403);
    assert_eq!(proxy.call(Some(&admin), "s:echo", args).status, 200);
    let shown = proxy
        .client()
        .send("GET", "/tools/s%3Aecho", &[("authorization", &admin)], b"")
        .json();
    assert_eq!(shown["hint"], "careful");
    assert_eq!(shown["description"], "The tool echo");
    assert!(
        shown["input_schema"]["properties"]["text"].is_object(),
        "{shown}"
    );
}

#[test]
fn sixty_calls_are_under_way_at_a_time() {
    let all = Arc::new(Barrier::new(60));
    let upstream = http_server(move |_, message| {
        all.wait();
        told(message, "together")
    });
    let proxy = started(over_http(&upstream, ""));
    std::thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| assert_eq!(result(&proxy, "s:who", json!({})), "together"));
        }
    });
}

#[test]
fn a_connection_that_breaks_off_costs_only_what_may_not_be_done_twice() {
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = calls.clone();
    let list = |_: &Received, message: &Value, stream: &mut TcpStream| {
        (message["method"] == "tools/list").then(|| {
            let tool = |name: &str, hints: Value| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": hints});
            let tools = [tool("who", json!({})), tool("again", json!({"idempotentHint": true}))];
            let answer = with_result(message, "", &json!({"tools": tools}));
            stream.write_all(answer.as_bytes()).is_ok()
        })
    };
    // The first call of each is read, and the connection closed.
    let upstream = particular_server(list, move |_, message, stream| {
        let name = message["params"]["name"].as_str().unwrap().to_owned();
        let mut calls = noted.lock().unwrap();
        let first = !calls.contains(&name);
        calls.push(name);
        !first && stream.write_all(told(message, "done").as_bytes()).is_ok()
    });
    let proxy = started(over_http(&upstream, ""));
    let error = failure(&proxy, "s:who", json!({}));
    assert!(error.contains("it closed the connection"), "{error}");
    assert_eq!(result(&proxy, "s:again", json!({})), "done");
    assert_eq!(*calls.lock().unwrap(), ["who", "again", "again"]);
    // What nobody uses is closed by us, before servers do: who comes in that very moment would lose a call. The session goes on.
    upstream.wait_until_left();
    assert_eq!(result(&proxy, "s:who", json!({})), "done");
    let opened = |one: &&Received| body(one)["method"] == "initialize";
    let received = upstream.received();
    assert_eq!(received.iter().filter(opened).count(), 2);
}
