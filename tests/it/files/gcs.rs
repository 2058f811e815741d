//! Uploads to Google Cloud Storage: a stand-in that checks the signed request for a token, and the
//! token.

use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{bytes, refusal, sha256, upload, with_destinations};
use crate::support::ati::{Proxy, Setup};
use crate::support::tokens::{bearer_of, key_pair};
use crate::support::upstream::{Received, Upstream};

/// A key of a service account: the private half as PEM, the public one as ring wants it.
struct RsaKey {
    private: String,
    public: Vec<u8>,
}

fn rsa_key() -> RsaKey {
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key.pem");
    let path = path.to_str().unwrap();
    openssl(&[
        "genpkey",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-out",
        path,
    ]);
    RsaKey {
        private: std::fs::read_to_string(path).unwrap(),
        public: openssl(&["rsa", "-in", path, "-RSAPublicKey_out", "-outform", "DER"]),
    }
}

#[derive(Default)]
struct Seen {
    exchanges: AtomicUsize,
    /// Tokens with a lower number are refused.
    accepted: AtomicUsize,
    /// Who asked for tokens.
    issuers: Mutex<Vec<String>>,
}

/// Google's token endpoint and storage, at one address.
fn google(key: Vec<u8>, seen: Arc<Seen>) -> Upstream {
    super::server(move |received| {
        let (status, body) = match received.target.as_str() {
            "/token" => exchange(received, &key, &seen),
            _ => store(received, &seen),
        };
        (status, String::new(), body.to_string().into_bytes())
    })
}

fn exchange(received: &Received, key: &[u8], seen: &Seen) -> (u16, Value) {
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&received.body)
        .into_owned()
        .collect();
    let get = |name: &str| form.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert_eq!(
        get("grant_type"),
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    let assertion = get("assertion");
    let (text, signature) = assertion.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key);
    if key.verify(text.as_bytes(), &signature).is_err() {
        return (
            400,
            json!({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}),
        );
    }
    let part = |n: usize| -> Value {
        let part = text.split('.').nth(n).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    assert_eq!(
        (part(0)["alg"].as_str(), part(0)["kid"].as_str()),
        (Some("RS256"), Some("k1"))
    );
    let claims = part(1);
    let host = received.header("host").unwrap();
    assert_eq!(claims["aud"], format!("http://{host}/token"));
    assert_eq!(
        claims["scope"],
        "https://www.googleapis.com/auth/devstorage.read_write"
    );
    assert_eq!(
        claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
        3600
    );
    seen.issuers
        .lock()
        .unwrap()
        .push(claims["iss"].as_str().unwrap().to_owned());
    let nth = 1 + seen.exchanges.fetch_add(1, Ordering::SeqCst);
    (
        200,
        json!({"access_token": format!("planted-token-{nth}"), "expires_in": 3600}),
    )
}

fn store(received: &Received, seen: &Seen) -> (u16, Value) {
    let token = received.header("authorization").unwrap();
    let nth: usize = token
        .strip_prefix("Bearer planted-token-")
        .unwrap()
        .parse()
        .unwrap();
    if nth < seen.accepted.load(Ordering::SeqCst) {
        return (401, json!({"error": {"message": "expired"}}));
    }
    assert_eq!(received.method, "POST");
    (
        200,
        json!({"kind": "storage#object", "size": received.body.len().to_string()}),
    )
}

fn account(key: &RsaKey, google: &Upstream, email: &str) -> String {
    json!({"type": "service_account", "client_email": email, "private_key": key.private,
        "private_key_id": "k1", "token_uri": format!("{}/token", google.url())})
    .to_string()
}

fn setup(google: &Upstream, credentials: &Value) -> Setup {
    let destination = format!(
        "[provider.upload_destinations.g]\nkind = 'gcs'\nbucket = 'my-bucket'\nendpoint = '{}'\n",
        google.url()
    );
    with_destinations(&destination, credentials)
}

fn good(proxy: &Proxy, body: &[u8]) -> Value {
    let response = upload(proxy, "g", "a b.csv", body);
    assert_eq!(response.status, 200, "{}", response.text());
    response.json()["result"].clone()
}

#[test]
fn upload_to_gcs_exchanges_a_signed_token_once_and_stores_the_object() {
    let (key, seen) = (rsa_key(), Arc::new(Seen::default()));
    let google = google(key.public.clone(), seen.clone());
    let credentials = json!({"gcp_credentials": account(&key, &google, "one@x")});
    let proxy = setup(&google, &credentials).start();
    let body = bytes(1 << 20);
    let result = good(&proxy, &body);
    let sent = google.last();
    let url = url::Url::parse(&format!("{}{}", google.url(), sent.target)).unwrap();
    assert_eq!(url.path(), "/upload/storage/v1/b/my-bucket/o");
    let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert_eq!(query[0], ("uploadType".to_owned(), "media".to_owned()));
    let name = &query[1].1;
    let parts: Vec<&str> = name.split('/').collect();
    assert_eq!((parts.len(), parts[0]), (3, "ati-uploads"), "{name}");
    assert!(
        parts[2].ends_with("-a b.csv") && parts[2].len() == 44,
        "{name}"
    );
    assert_eq!(sent.header("content-type"), Some("text/csv"));
    assert_eq!(
        sent.header("content-length"),
        Some(body.len().to_string().as_str())
    );
    assert_eq!(sent.body, body);
    let encoded = name.replace(' ', "%20");
    let expected = json!({"success": true, "url": format!("{}/my-bucket/{encoded}", google.url()),
        "size_bytes": body.len(), "content_type": "text/csv", "destination": "g",
        "sha256": sha256(&body)});
    assert_eq!(result, expected);
    good(&proxy, b"again");
    assert_eq!(
        seen.exchanges.load(Ordering::SeqCst),
        1,
        "the token is shared"
    );
    // A token that was revoked is replaced, and the file is sent once more.
    seen.accepted.store(2, Ordering::SeqCst);
    good(&proxy, b"and again");
    assert_eq!(google.last().body, b"and again");
    assert_eq!(seen.exchanges.load(Ordering::SeqCst), 2);
}

#[test]
fn customer_uploads_with_its_own_account() {
    let (key, seen) = (rsa_key(), Arc::new(Seen::default()));
    let google = google(key.public.clone(), seen.clone());
    let credentials = json!({"gcp_credentials": account(&key, &google, "all@x"),
        "gcp_credentials@acme": account(&key, &google, "acme@x")});
    let (signer, public) = key_pair();
    let proxy = setup(&google, &credentials).jwt(&public).start();
    for customer in [Some("acme"), None, Some("globex"), Some("acme")] {
        let token = bearer_of(&signer, customer);
        let args = json!({"filename": "x", "content_base64": "", "destination": "g"});
        assert_eq!(proxy.call(Some(&token), super::UPLOAD, args).status, 200);
    }
    assert_eq!(*seen.issuers.lock().unwrap(), ["acme@x", "all@x"]);
}

#[test]
fn account_that_is_refused_or_unreadable_fails_the_upload() {
    let (key, other) = (rsa_key(), rsa_key());
    let google = google(other.public.clone(), Arc::default());
    for (account, why) in [
        (
            account(&key, &google, "x"),
            "HTTP 400: invalid_grant: Invalid JWT Signature.",
        ),
        (
            "planted-no-json".to_owned(),
            "the credential is no service account's JSON",
        ),
        (
            json!({"client_email": "x", "private_key": "planted-no-key"}).to_string(),
            "the service account's private_key is no RSA key",
        ),
    ] {
        let proxy = setup(&google, &json!({"gcp_credentials": account})).start();
        let expected = format!("Upload failed: OAuth2 token exchange failed: {why}");
        assert_eq!(refusal(&upload(&proxy, "g", "x", b"x")), (502, expected));
    }
    let plain = json!({"client_email": "x", "private_key": key.private,
        "token_uri": "http://tokens.test/"});
    let proxy = setup(&google, &json!({"gcp_credentials": plain.to_string()})).start();
    let (status, text) = refusal(&upload(&proxy, "g", "x", b"x"));
    assert_eq!(status, 502);
    assert!(
        text.contains("token URL must use HTTPS: 'http://tokens.test/'"),
        "{text}"
    );
}
