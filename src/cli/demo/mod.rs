//! `ati demo`: a throwaway proxy. Each line that it prints can be pasted into a terminal, and
//! `--check` runs them all. `--upstream` is the upstream alone, for `ati init --example`.

mod keys;
mod upstream;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Format, output};
use crate::auth::keys::{generate_secret, shared_secret};
use crate::auth::signature::{HEADER, Mode, SigningKey};
use crate::auth::token::{Claims, DEFAULT_AUDIENCE, Namespace, Signer};
use crate::clock::unix_now;
use crate::config::{Environment, Flags};
use crate::error::{Cause, Code, Failure};
use crate::files;
use crate::keyring::{SIGNING_SECRET, Secret, SessionKey};
use crate::server::{Addresses, Server, Start};
use keys::DemoStore;

/// The credential that the upstream expects. Its value is no secret, and still no caller sees it.
pub const DEMO_KEY: &str = "the-operators-key";

/// Where the upstream of `ati init --example` listens.
pub const EXAMPLE_UPSTREAM: &str = "127.0.0.1:18090";

/// Seconds for which printed signatures and tokens are valid.
const LIFETIME: u64 = 3600;

#[derive(clap::Args)]
pub struct Args {
    /// Send the printed requests, compare the answers with what is expected, and exit 0 or 1
    #[arg(long)]
    check: bool,

    /// Run only the demo's upstream, an API that wants a key, for the example of `ati init`
    #[arg(
        long,
        value_name = "IP:PORT",
        num_args = 0..=1,
        default_missing_value = EXAMPLE_UPSTREAM,
        conflicts_with = "check"
    )]
    upstream: Option<SocketAddr>,
}

/// One request to try: a line to paste, and the answer that is expected.
struct Step {
    title: &'static str,
    address: SocketAddr,
    path: &'static str,
    headers: Vec<(HeaderName, String)>,
    /// A request with a body is a POST.
    body: Option<&'static str>,
    status: u16,
    shows: &'static str,
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    if let Some(address) = args.upstream {
        return run_upstream(address, asked);
    }
    let dir = Folder::create()?;
    let signing = generate_secret().map_err(broken)?;
    let jwt = generate_secret().map_err(broken)?;
    write_keyring(&dir.0, &signing)?;
    let upstream = upstream::start((Ipv4Addr::LOCALHOST, 0).into()).map_err(broken)?;
    write_manifests(&dir.0, upstream)?;
    let store = DemoStore::create(&dir.0)?;

    let flags = Flags {
        port: Some(0),
        ati_dir: Some(dir.0.clone()),
        sig_verify_mode: Some(Mode::Enforce),
        sig_drift_seconds: Some(LIFETIME),
        enable_passthrough: true,
        admin: Some("127.0.0.1:0".to_owned()),
        ..Flags::default()
    };
    let env = Environment {
        secret: Some(jwt.clone()),
        database_url: Some(store.url.clone()),
        admin_token: store.admin_token(),
        ..Environment::default()
    };
    let server = Server::prepare(flags, env, Start::Fresh)?;
    let steps = steps(server.addresses(), &signing, &jwt, &store)?;
    if !args.check {
        output::lines_or_value(
            asked,
            || {
                introduce(&steps);
                output::line("\nIt serves until Ctrl-C; its log is below.\n");
            },
            || steps.iter().map(Step::as_json).collect(),
        );
        server.run(std::future::pending())?;
        return Ok(0);
    }

    let shows_lines = matches!(asked, None | Some(Format::Text));
    if shows_lines {
        introduce(&steps);
        output::line("");
    }
    let (done, finished) = tokio::sync::oneshot::channel();
    let checker = std::thread::spawn(move || {
        let check = |step: &Step| {
            let outcome = step.check();
            if shows_lines {
                outcome.print(step);
            }
            (step.as_json(), outcome)
        };
        let checked: Vec<(Value, Outcome)> = steps.iter().map(check).collect();
        let _ = done.send(());
        checked
    });
    server.run(async {
        let _ = finished.await;
    })?;
    let checked = checker.join().map_err(|_| broken("the check panicked"))?;
    let (all, good) = (
        checked.len(),
        checked.iter().filter(|(_, outcome)| outcome.good).count(),
    );
    output::lines_or_value(
        asked,
        || output::line(&format!("\n{good} of {all} as promised")),
        || {
            checked
                .iter()
                .map(|(step, outcome)| outcome.added_to(step))
                .collect()
        },
    );
    Ok(u8::from(good < all))
}

fn run_upstream(address: SocketAddr, asked: Option<Format>) -> Result<u8, Failure> {
    let failed = |e: std::io::Error| {
        Failure::new(Code::ExecutionFailed, format!("{address}: can't listen")).because(e)
    };
    let ready = |address: SocketAddr| {
        output::lines_or_value(
            asked,
            || {
                output::line(&format!(
                    "an API that wants a key serves on {address} until Ctrl-C"
                ))
            },
            || json!({"status": "serving", "address": address}),
        );
    };
    upstream::run(address, ready).map_err(failed)?;
    Ok(0)
}

fn steps(
    addresses: &Addresses,
    signing: &str,
    jwt: &str,
    store: &DemoStore,
) -> Result<Vec<Step>, Failure> {
    let edge = addresses.edge;
    let admin = addresses.admin.unwrap_or(edge);
    let secret = Secret::new(signing.as_bytes()).map_err(broken)?;
    let key = SigningKey::new(&secret);
    let token = token(jwt)?;
    let signed = |method: &str, path: &str| (HEADER, key.sign(unix_now(), method, path));
    let bearer = || (AUTHORIZATION, format!("Bearer {token}"));
    let mut steps = vec![
        Step {
            title: "The health check needs neither a signature nor a token",
            address: edge,
            path: "/health",
            headers: vec![],
            body: None,
            status: 200,
            shows: "\"auth\":\"jwt\",\"db\":\"connected\"",
        },
        Step {
            title: "A request without a signature is refused",
            address: edge,
            path: "/tools",
            headers: vec![],
            body: None,
            status: 403,
            shows: "missing_signature",
        },
        Step {
            title: "A signed request reaches the upstream; ati adds the key, which the caller never sees",
            address: edge,
            path: "/demo/anything?q=1",
            headers: vec![signed("GET", "/demo/anything")],
            body: None,
            status: 200,
            // The upstream answers 401 without the right key.
            shows: "Bearer ****(17 characters, not yours)",
        },
        Step {
            title: "A path that the operator denies stays denied, however it is encoded",
            address: edge,
            path: "/demo/%61dmin/users",
            headers: vec![signed("GET", "/demo/%61dmin/users")],
            body: None,
            status: 403,
            shows: "path denied by policy",
        },
        Step {
            title: "Tools need a token too: a signature alone is refused",
            address: edge,
            path: "/tools",
            headers: vec![signed("GET", "/tools")],
            body: None,
            status: 401,
            shows: "",
        },
        Step {
            title: "Signed and with a token: the tools that the token allows",
            address: edge,
            path: "/tools",
            headers: vec![signed("GET", "/tools"), bearer()],
            body: None,
            status: 200,
            shows: "\"name\":\"demo_greet\"",
        },
        Step {
            title: "A tool is called by name; ati adds the key here too",
            address: edge,
            path: "/call",
            headers: vec![signed("POST", "/call"), bearer()],
            body: Some(r#"{"tool_name":"demo_greet","args":{"name":"Ada"}}"#),
            status: 200,
            shows: "/greet?name=Ada",
        },
        Step {
            title: "A tool outside the token's scopes is refused",
            address: edge,
            path: "/call",
            headers: vec![signed("POST", "/call"), bearer()],
            body: Some(r#"{"tool_name":"demo_erase","args":{}}"#),
            status: 403,
            shows: "Access denied: 'demo_erase' is not in your scopes",
        },
    ];
    steps.extend(store.steps(edge, || signed("POST", "/call")));
    steps.push(Step {
        title: "The operator sees metrics on the admin listener",
        address: admin,
        path: "/metrics",
        headers: vec![],
        body: None,
        status: 200,
        shows: "ati_refusals_total{reason=\"missing_signature\"}",
    });
    Ok(steps)
}

fn token(jwt: &str) -> Result<String, Failure> {
    let now = unix_now();
    let claims = Claims {
        iss: None,
        sub: "demo-agent".into(),
        aud: DEFAULT_AUDIENCE.into(),
        iat: now,
        exp: now + LIFETIME,
        jti: None,
        scope: "tool:demo_greet help".into(),
        job_id: None,
        sandbox_id: None,
        ati: Some(Namespace {
            v: 1,
            rate: Default::default(),
            customer_id: None,
            delegation: None,
        }),
    };
    let key = shared_secret(jwt.as_bytes()).map_err(broken)?;
    Signer::Hs256(key).issue(&claims).map_err(broken)
}

fn introduce(steps: &[Step]) {
    output::line(
        "A proxy is running, with generated keys, in enforce mode. \
         Paste these lines into another terminal:",
    );
    for step in steps {
        output::line(&format!("\n# {} ({})", step.title, step.status));
        output::line(&step.curl());
    }
}

impl Step {
    fn curl(&self) -> String {
        let mut line = String::from("curl -i");
        for (name, value) in &self.headers {
            line += &format!(" -H '{name}: {value}'");
        }
        if let Some(body) = self.body {
            line += &format!(" -d '{body}'");
        }
        line + &format!(" 'http://{}{}'", self.address, self.path)
    }

    fn as_json(&self) -> Value {
        json!({"title": self.title, "command": self.curl(), "expected_status": self.status})
    }

    fn check(&self) -> Outcome {
        match self.send() {
            Ok((status, answer)) => Outcome {
                good: status == self.status
                    && answer.contains(self.shows)
                    && !answer.contains(DEMO_KEY),
                what: status.to_string(),
            },
            Err(e) => Outcome {
                good: false,
                what: e.to_string(),
            },
        }
    }

    fn send(&self) -> std::io::Result<(u16, String)> {
        let timeout = Duration::from_secs(5);
        let mut stream = TcpStream::connect_timeout(&self.address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        let body = self.body.unwrap_or_default();
        let method = self.body.map_or("GET", |_| "POST");
        let mut request = format!(
            "{method} {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.path,
            self.address,
            body.len()
        );
        for (name, value) in &self.headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream.write_all((request + "\r\n" + body).as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or(std::io::ErrorKind::InvalidData)?;
        Ok((status, answer))
    }
}

/// How a step went.
struct Outcome {
    good: bool,
    /// The status of the answer, or why there was none.
    what: String,
}

impl Outcome {
    fn print(&self, step: &Step) {
        let mark = if self.good { "ok  " } else { "FAIL" };
        output::line(&format!("{mark} {} -> {}", step.title, self.what));
    }

    fn added_to(&self, step: &Value) -> Value {
        let mut step = step.clone();
        step["answer"] = json!(self.what);
        step["ok"] = json!(self.good);
        step
    }
}

fn write_keyring(dir: &Path, signing: &str) -> Result<(), Failure> {
    let key = SessionKey::generate().map_err(broken)?;
    let json = serde_json::json!({ SIGNING_SECRET: signing, "demo_key": DEMO_KEY });
    let json = Zeroizing::new(json.to_string());
    let sealed = key.seal(json.as_bytes()).map_err(broken)?;
    let write = |name: &str, content: &[u8]| {
        files::write_atomic(&dir.join(name), content, 0o600).map_err(broken)
    };
    write("keyring.enc", &sealed)?;
    write(".keyring-key", key.to_base64().as_bytes())
}

fn write_manifests(dir: &Path, upstream: SocketAddr) -> Result<(), Failure> {
    let routes = format!(
        r#"[provider]
name = "demo"
handler = "passthrough"
base_url = "http://{upstream}"
path_prefix = "/demo"
auth_type = "bearer"
auth_key_name = "demo_key"
deny_paths = ["/admin/*"]
"#
    );
    let tools = format!(
        r#"[provider]
name = "demo_tools"
base_url = "http://{upstream}"
auth_type = "bearer"
auth_key_name = "demo_key"

[[tools]]
name = "demo_greet"
description = "Greet a person"
endpoint = "/greet"

[tools.input_schema]
type = "object"
required = ["name"]
properties.name.type = "string"

[[tools]]
name = "demo_erase"
description = "Erase everything"
endpoint = "/erase"
method = "DELETE"
"#
    );
    files::create_private_dir(&dir.join("manifests")).map_err(broken)?;
    for (name, text) in [("demo.toml", routes), ("demo_tools.toml", tools)] {
        files::write_atomic(&dir.join("manifests").join(name), text.as_bytes(), 0o600)
            .map_err(broken)?;
    }
    Ok(())
}

fn broken(cause: impl Into<Cause>) -> Failure {
    Failure::new(Code::ExecutionFailed, "the demo can't be set up").because(cause)
}

/// A private folder, removed at the end of the demo.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Failure> {
        let name = format!("ati-demo-{}", uuid::Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        files::create_private_dir(&path).map_err(broken)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
