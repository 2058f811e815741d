//! The order of admission, and the identity that each target carries, observed as a caller would.

use super::*;
use crate::auth::keys::PrivateKey;
use crate::auth::token::{Claims, Signer};
use crate::clock::unix_now;
use crate::config::{self, Environment, Flags};
use crate::route::Builtin;

const SECRET: &str = "s3cret";
const ADMIN: &str = "adm1n";
const ROUTE: &str = r#"
[provider]
name = "svc"
description = "A route"
handler = "passthrough"
base_url = "http://127.0.0.1:1"
path_prefix = "/svc"
"#;

struct World {
    snapshot: Snapshot,
    signer: Signer,
    signing: signature::SigningKey,
}

fn world(mode: Mode, jwt: bool) -> World {
    world_with(mode, jwt, Flags::default())
}

/// With a route `/svc`, and no path that is exempt from the signature.
fn world_of_routes(mode: Mode, jwt: bool, guard: Guard) -> World {
    let flags = Flags {
        enable_passthrough: true,
        sig_exempt_paths: Some("/exempt".into()),
        ..Flags::default()
    };
    let mut world = world_with(mode, jwt, flags);
    let settings = Arc::get_mut(&mut world.snapshot.settings).unwrap();
    settings.admin_token = crate::keyring::Secret::new(ADMIN.as_bytes()).ok();
    let routes = Arc::get_mut(&mut world.snapshot.routes).unwrap();
    routes.set_guards(guard);
    world
}

fn world_with(mode: Mode, jwt: bool, flags: Flags) -> World {
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
        ..flags
    };
    std::fs::create_dir(dir.path().join("manifests")).unwrap();
    std::fs::write(dir.path().join("manifests/svc.toml"), ROUTE).unwrap();
    let env = Environment {
        public_key: jwt.then(|| public.into_os_string()),
        ..Environment::default()
    };
    let settings = config::resolve(&flags, &env).unwrap();
    let secret = crate::keyring::Secret::new(SECRET.as_bytes()).unwrap();
    World {
        snapshot: Snapshot::build(
            settings,
            &crate::keyring::KeptKeys::default(),
            &Arc::default(),
        )
        .unwrap()
        .snapshot,
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
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "edge.example");
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
            Rules {
                snapshot: &self.snapshot,
                keys: None,
            },
            unix_now(),
            &mut trail,
        ))
    }

    /// A refusal's status, or the kind of the target with the subject of its identity.
    fn outcome(&self, path: &str, signed: bool, token: Option<&str>) -> String {
        let pass = match self.ask("GET", path, signed, token) {
            Ok(pass) => pass,
            Err(refusal) => return refusal.status().as_u16().to_string(),
        };
        let kind = match pass.target() {
            Target::Public(_) => "public",
            Target::Builtin { .. } => "builtin",
            Target::Admin(_) => "admin",
            Target::Upstream { .. } => "upstream",
        };
        let subject = pass.identity().map_or("-", |identity| &identity.subject);
        format!("{kind} {subject}")
    }

    fn status(&self, method: &str, path: &str, signed: bool, token: Option<&str>) -> u16 {
        self.ask(method, path, signed, token)
            .map_or_else(|refusal| refusal.status().as_u16(), |_| 200)
    }
}

#[test]
fn unsigned_request_is_told_of_the_signature_and_not_of_the_token() {
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
fn probe_without_signature_and_token_is_admitted() {
    let world = world(Mode::Enforce, true);
    for path in ["/health", "/.well-known/jwks.json"] {
        assert_eq!(world.status("GET", path, false, None), 200, "{path}");
    }
    assert_eq!(world.status("POST", "/health", false, None), 405);
}

#[test]
fn exempt_prefix_with_a_dot_segment_is_refused() {
    let world = world(Mode::Enforce, false);
    // Exempt, and without a route.
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
fn signature_of_an_encoded_path_covers_it_as_received() {
    let world = world(Mode::Enforce, false);
    assert_eq!(world.status("GET", "/%74ools?x=1", true, None), 200);
    assert_eq!(world.status("GET", "//tools", true, None), 200);
}

#[test]
fn unsigned_request_in_log_or_warn_mode_is_admitted() {
    for mode in [Mode::Log, Mode::Warn] {
        assert_eq!(world(mode, false).status("GET", "/tools", false, None), 200);
    }
}

#[test]
fn admitted_request_has_its_endpoint_and_identity() {
    let world = world(Mode::Enforce, true);
    let pass = world
        .ask("GET", "/tools/a:b", true, Some(&world.token()))
        .ok()
        .unwrap();
    let Target::Builtin { endpoint, identity } = pass.target() else {
        panic!("not a built-in endpoint with an identity");
    };
    assert_eq!(*endpoint, Builtin::Tool);
    assert_eq!(identity.subject, "agent");
}

#[test]
fn unsigned_administration_needs_the_admin_bearer_alone() {
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

/// For each guard, on an endpoint and on a route: what each combination of signature and bearer
/// leads to.
#[test]
fn guard_decides_which_identity_a_target_carries() {
    let all = |outcome: &'static str| [outcome; 4];
    let anonymous = |target| (all("403"), all(target));
    let token = |target| (all("403"), ["401", "401", target, "401"]);
    let admin = |target| (["401", "401", "401", target], ["401", "401", "401", target]);
    for (guard, path, (unsigned, signed)) in [
        (Guard::Signature, "/health", anonymous("public -")),
        (Guard::Signature, "/tools", token("builtin agent")),
        (Guard::Signature, "/admin/keys", admin("admin -")),
        (Guard::Signature, "/nowhere", token("404")),
        (Guard::Signature, "/svc/x", anonymous("upstream -")),
        (Guard::Token, "/svc/x", token("upstream agent")),
        (Guard::Admin, "/svc/x", admin("upstream -")),
    ] {
        let world = world_of_routes(Mode::Enforce, true, guard);
        let bearers = [
            None,
            Some("Bearer nonsense".to_owned()),
            Some(world.token()),
            Some(format!("Bearer {ADMIN}")),
        ];
        let outcomes = |signed| {
            bearers
                .each_ref()
                .map(|bearer| world.outcome(path, signed, bearer.as_deref()))
        };
        assert_eq!(outcomes(false), unsigned, "{guard:?} {path} unsigned");
        assert_eq!(outcomes(true), signed, "{guard:?} {path} signed");
    }
}

#[test]
fn route_request_never_carries_an_unrestricted_identity() {
    for mode in [Mode::Log, Mode::Warn, Mode::Enforce] {
        for guard in [Guard::Signature, Guard::Token] {
            let world = world_of_routes(mode, false, guard);
            assert_eq!(world.outcome("/tools", true, None), "builtin dev");
            for bearer in [None, Some("Bearer nonsense"), Some(&*world.token())] {
                let outcome = world.outcome("/svc/x", true, bearer);
                // A route that asks for a token is closed where none can be verified.
                let expected = match guard {
                    Guard::Token => "401",
                    _ => "upstream -",
                };
                assert_eq!(outcome, expected, "{mode:?} {guard:?} {bearer:?}");
            }
        }
        let world = world_of_routes(mode, true, Guard::Signature);
        assert_eq!(
            world.outcome("/svc/x", true, Some(&world.token())),
            "upstream -"
        );
    }
}
