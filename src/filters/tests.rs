//! The order of admission, asked the way a caller would.

use super::*;
use crate::auth::keys::PrivateKey;
use crate::auth::token::{Claims, Signer};
use crate::clock::unix_now;
use crate::config::{self, Environment, Flags};
use crate::route::Builtin;

const SECRET: &str = "s3cret";

struct World {
    snapshot: Snapshot,
    signer: Signer,
    signing: signature::SigningKey,
}

fn world(mode: Mode, jwt: bool) -> World {
    let dir = tempfile::tempdir().unwrap();
    let key = PrivateKey::generate().unwrap();
    let public = dir.path().join("public.pem");
    std::fs::write(&public, key.public().to_pem()).unwrap();
    let credentials = serde_json::json!({"sandbox_signing_shared_secret": SECRET}).to_string();
    crate::files::write_atomic(
        &dir.path().join("credentials"),
        credentials.as_bytes(),
        0o600,
    )
    .unwrap();
    let flags = Flags {
        ati_dir: Some(dir.path().to_path_buf()),
        sig_verify_mode: Some(mode),
        ..Flags::default()
    };
    let env = Environment {
        public_key: jwt.then(|| public.into_os_string()),
        ..Environment::default()
    };
    let settings = config::resolve(&flags, &env).unwrap();
    let secret = crate::keyring::Secret::new(SECRET.as_bytes()).unwrap();
    World {
        snapshot: Snapshot::build(settings, None).unwrap().snapshot,
        signer: Signer::Es256(key),
        signing: signature::SigningKey::new(&secret),
    }
}

impl World {
    fn token(&self) -> String {
        let claims = Claims {
            iss: None,
            sub: "agent".into(),
            aud: "ati-proxy".into(),
            iat: unix_now(),
            exp: unix_now() + 600,
            jti: None,
            scope: "*".into(),
            job_id: None,
            sandbox_id: None,
            ati: None,
        };
        format!("Bearer {}", self.signer.issue(&claims).unwrap())
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        signed: bool,
        token: Option<&str>,
    ) -> Result<Admitted, Refusal> {
        let mut request = http::Request::builder().method(method).uri(path);
        if signed {
            let path = path.split('?').next().unwrap();
            request = request.header(
                signature::HEADER,
                self.signing.sign(unix_now(), method, path),
            );
        }
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut trail = Trail::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(admit(
            &parts,
            || None,
            &self.snapshot,
            unix_now(),
            &mut trail,
        ))
    }

    fn status(&self, method: &str, path: &str, signed: bool, token: Option<&str>) -> u16 {
        self.ask(method, path, signed, token)
            .map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }
}

#[test]
fn an_unsigned_request_without_a_token_hears_of_the_signature_only() {
    let world = world(Mode::Enforce, true);
    for path in ["/tools", "/nowhere"] {
        assert_eq!(world.status("GET", path, false, None), 403, "{path}");
        assert_eq!(world.status("GET", path, true, None), 401, "{path}");
    }
    assert_eq!(
        world.status("GET", "/tools", true, Some(&world.token())),
        200
    );
    assert_eq!(
        world.status("GET", "/nowhere", true, Some(&world.token())),
        404
    );
    assert_eq!(
        world.status("DELETE", "/tools", true, Some(&world.token())),
        405
    );
}

#[test]
fn probes_need_neither() {
    let world = world(Mode::Enforce, true);
    for path in ["/health", "/.well-known/jwks.json"] {
        assert_eq!(world.status("GET", path, false, None), 200, "{path}");
    }
    assert_eq!(world.status("POST", "/health", false, None), 405);
}

#[test]
fn an_exemption_can_not_be_borrowed() {
    let world = world(Mode::Enforce, false);
    // Exempt, and known to nobody.
    assert_eq!(world.status("GET", "/npm/left-pad", false, None), 404);
    for path in [
        "/npm/../tools",
        "/npm/%2e%2e/tools",
        "/npm/..%2ftools",
        "/npm/%252e%252e/tools",
    ] {
        assert_eq!(world.status("GET", path, false, None), 400, "{path}");
    }
    assert_eq!(world.status("GET", "/tools", false, None), 403);
    assert_eq!(world.status("GET", "//tools", false, None), 403);
}

#[test]
fn the_signature_covers_the_path_as_received() {
    let world = world(Mode::Enforce, false);
    assert_eq!(world.status("GET", "/%74ools?x=1", true, None), 200);
    assert_eq!(world.status("GET", "//tools", true, None), 200);
}

#[test]
fn log_and_warn_let_pass() {
    for mode in [Mode::Log, Mode::Warn] {
        assert_eq!(world(mode, false).status("GET", "/tools", false, None), 200);
    }
}

#[test]
fn the_pass_says_who_and_where() {
    let world = world(Mode::Enforce, true);
    let pass = world
        .ask("GET", "/tools/a:b", true, Some(&world.token()))
        .ok()
        .unwrap();
    assert_eq!(pass.target(), &Target::Builtin(Builtin::Tool));
    assert_eq!(pass.identity().subject, "agent");
}

#[test]
fn administration_lies_outside_of_the_signature() {
    let mut world = world(Mode::Enforce, true);
    assert_eq!(world.status("GET", "/admin/keys", false, None), 503);
    let settings = std::sync::Arc::get_mut(&mut world.snapshot.settings).unwrap();
    settings.admin_token = crate::keyring::Secret::new(b"adm1n").ok();
    assert_eq!(
        world.status("GET", "/admin/keys", false, Some("Bearer x")),
        401
    );
    assert_eq!(
        world.status("GET", "/admin/keys", false, Some("Bearer adm1n")),
        200
    );
}
