//! `ati demo`: a throwaway proxy. Each line that it prints can be pasted into a terminal, and
//! `--check` runs them all.

mod upstream;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderName;
use http::header::AUTHORIZATION;
use zeroize::Zeroizing;

use super::output;
use crate::auth::keys::{generate_secret, shared_secret};
use crate::auth::signature::{HEADER, Mode, SigningKey};
use crate::auth::token::{Claims, DEFAULT_AUDIENCE, Namespace, Signer};
use crate::clock::unix_now;
use crate::config::{Environment, Flags};
use crate::error::{Cause, Code, Failure};
use crate::files;
use crate::keyring::{SIGNING_SECRET, Secret, SessionKey};
use crate::server::{Addresses, Server, Start};

/// The credential that the upstream expects. Not secret: the demo shows it.
const DEMO_KEY: &str = "the-operators-key";

/// Seconds for which printed signatures and tokens are valid.
const LIFETIME: u64 = 3600;

#[derive(clap::Args)]
pub struct Args {
    /// Send the printed requests, compare the answers with what is expected, and exit 0 or 1
    #[arg(long)]
    check: bool,
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

pub fn run(args: &Args) -> Result<u8, Failure> {
    let dir = Folder::create()?;
    let signing = generate_secret().map_err(broken)?;
    let jwt = generate_secret().map_err(broken)?;
    write_keyring(&dir.0, &signing)?;
    write_manifests(&dir.0, upstream::start().map_err(broken)?)?;

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
        ..Environment::default()
    };
    let server = Server::prepare(flags, env, Start::Fresh)?;
    let steps = steps(server.addresses(), &signing, &jwt)?;
    introduce(&steps);
    if !args.check {
        output::line("\nIt serves until Ctrl-C; its log is below.\n");
        server.run(std::future::pending())?;
        return Ok(0);
    }

    let (done, finished) = tokio::sync::oneshot::channel();
    let checker = std::thread::spawn(move || {
        let failed = steps.iter().filter(|step| !step.check()).count();
        let _ = done.send(());
        (steps.len(), failed)
    });
    server.run(async {
        let _ = finished.await;
    })?;
    let (all, failed) = checker.join().map_err(|_| broken("the check panicked"))?;
    output::line(&format!("\n{} of {all} as promised", all - failed));
    Ok(u8::from(failed > 0))
}

fn steps(addresses: &Addresses, signing: &str, jwt: &str) -> Result<Vec<Step>, Failure> {
    let edge = addresses.edge;
    let admin = addresses.admin.unwrap_or(edge);
    let secret = Secret::new(signing.as_bytes()).map_err(broken)?;
    let key = SigningKey::new(&secret);
    let token = token(jwt)?;
    let signed = |method: &str, path: &str| (HEADER, key.sign(unix_now(), method, path));
    let bearer = || (AUTHORIZATION, format!("Bearer {token}"));
    Ok(vec![
        Step {
            title: "The health check needs neither a signature nor a token",
            address: edge,
            path: "/health",
            headers: vec![],
            body: None,
            status: 200,
            shows: "\"auth\":\"jwt\"",
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
            title: "A signed request reaches the upstream; ati adds the credential",
            address: edge,
            path: "/demo/anything?q=1",
            headers: vec![signed("GET", "/demo/anything")],
            body: None,
            status: 200,
            shows: DEMO_KEY,
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
            title: "A tool is called by name; ati adds the credential here too",
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
        Step {
            title: "The operator sees metrics on the admin listener",
            address: admin,
            path: "/metrics",
            headers: vec![],
            body: None,
            status: 200,
            shows: "ati_refusals_total{reason=\"missing_signature\"}",
        },
    ])
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

    fn check(&self) -> bool {
        let answer = self.send();
        let (good, what) = match &answer {
            Ok((status, body)) => (
                *status == self.status && body.contains(self.shows),
                format!("{status}"),
            ),
            Err(e) => (false, e.to_string()),
        };
        let mark = if good { "ok  " } else { "FAIL" };
        output::line(&format!("{mark} {} -> {what}", self.title));
        good
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
