//! Caddy, with the shipped Caddyfile, in front of real edges. Run by `make test-full`.

mod failover;
mod headers;
mod streams;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::ati::{Setup, tells_nothing};
use crate::support::eventually;
use crate::support::http::{Client, Response};
use crate::support::tokens::SIGNING;

/// A running Caddy, and a port through which clients without TLS reach it. It is killed when the
/// test ends.
struct Caddy {
    dir: TempDir,
    child: Child,
    /// A port that forwards plain bytes to Caddy over TLS.
    address: SocketAddr,
}

impl Caddy {
    fn start(edges: &[SocketAddr]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = Command::new(root.join("tests/deploy/tool"))
            .arg("caddy")
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(found.status.success(), "Caddy can't be had");
        let program = String::from_utf8(found.stdout).unwrap();

        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(at("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let edges: Vec<String> = edges.iter().map(SocketAddr::to_string).collect();
        let port = free_port();
        let mut child = Command::new(program.trim())
            .args(["run", "--adapter", "caddyfile", "--config"])
            .arg(root.join("caddy/Caddyfile"))
            .env_clear()
            .env("HOME", dir.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ATI_SITE", "localhost, 127.0.0.1")
            .env("ATI_PORT", port.to_string())
            .env("ATI_TLS", format!("{} {}", at("cert.pem"), at("key.pem")))
            .env("ATI_EDGES", edges.join(" "))
            .env("ATI_ACCESS_LOG", format!("file {}", at("access.log")))
            .env("ATI_CADDY_LOG", format!("file {}", at("caddy.log")))
            .env("ATI_CADDY_ADMIN", format!("unix/{}", at("admin.sock")))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let theirs = SocketAddr::from(([127, 0, 0, 1], port));
        eventually("Caddy's port", || {
            assert!(child.try_wait().unwrap().is_none(), "Caddy ended");
            TcpStream::connect(theirs).ok()
        });
        let address = tls_to(theirs, made.cert.der().clone());
        Caddy {
            dir,
            child,
            address,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.address)
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.client().send(method, path, headers, body)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// The records of the access log, once there are at least this many.
    fn access_log(&self, count: usize) -> Vec<Value> {
        eventually("the access log", || {
            let text = self.file("access.log");
            let lines = text.lines().map(|line| serde_json::from_str(line).ok());
            lines
                .collect::<Option<Vec<Value>>>()
                .filter(|lines| lines.len() >= count)
        })
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            tells_nothing("Caddy's access log", &self.file("access.log"));
            tells_nothing("Caddy's log", &self.file("caddy.log"));
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A port that forwards plain bytes to another one over TLS.
fn tls_to(theirs: SocketAddr, certificate: CertificateDer<'static>) -> SocketAddr {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((mut near, _)) = listener.accept().await {
                let connector = connector.clone();
                tokio::spawn(async move {
                    let far = tokio::net::TcpStream::connect(theirs).await.unwrap();
                    let name = ServerName::try_from("localhost").unwrap();
                    let mut far = connector.connect(name, far).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
    });
    address
}

fn enforcing() -> Setup {
    Setup::new()
        .credentials(&json!({
            "api_key": "planted-upstream-key", "sandbox_signing_shared_secret": SIGNING,
        }))
        .arg("--sig-verify-mode")
        .arg("enforce")
}
