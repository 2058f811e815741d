//! The command line and a proxy with TLS: authorities, and certificates of the caller.

use serde_json::json;
use tempfile::TempDir;

use super::{failure, here, result};
use crate::support::ati::{Proxy, Setup, write};
use crate::support::tls::Authority;

const TLS: &str = r#"
    [server.tls]
    certificate = "cert.pem"
    key = "key.pem"
"#;

fn edge(authority: &Authority, more: &str) -> (Proxy, String) {
    let (certificate, key) = authority.issue("127.0.0.1");
    let proxy = Setup::new()
        .file("cert.pem", certificate)
        .file("key.pem", key)
        .file("ca.pem", authority.pem())
        .conf(&format!("{TLS}{more}"))
        .start();
    let url = format!("https://{}", proxy.edge);
    (proxy, url)
}

/// A folder with the authority's certificate, and one of the caller with its key.
fn sandbox(authority: &Authority) -> (TempDir, [String; 3]) {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = authority.issue("sandbox");
    let files = [
        ("ca.pem", authority.pem()),
        ("cert.pem", &certificate),
        ("key.pem", &key),
    ];
    let paths = files.map(|(name, text)| {
        let path = dir.path().join(name);
        write(&path, text);
        path.to_str().unwrap().to_owned()
    });
    (dir, paths)
}

#[test]
fn proxy_of_an_unknown_authority_is_refused_until_ssl_cert_file_names_it() {
    let authority = Authority::new();
    let (_proxy, url) = edge(&authority, "");
    let (dir, [ca, ..]) = sandbox(&authority);
    let output = here(dir.path(), &[("ATI_PROXY_URL", &url)], &["tool", "list"]);
    let (code, kind, message) = failure(&output);
    assert_eq!((code, kind.as_str()), (4, "provider.upstream_error"));
    assert!(message.contains("TLS handshake failed"), "{message}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("hint: SSL_CERT_FILE"), "{text}");

    let env = [("ATI_PROXY_URL", url.as_str()), ("SSL_CERT_FILE", &ca)];
    let status = result(&here(dir.path(), &env, &["auth", "status"]));
    assert_eq!(status["proxy"]["reachable"], true);
}

#[test]
fn proxy_that_asks_for_a_certificate_gets_the_callers() {
    let authority = Authority::new();
    let (_proxy, url) = edge(&authority, "client_ca = \"ca.pem\"\n");
    let (dir, [ca, certificate, key]) = sandbox(&authority);
    let list = |own: &[(&str, &str)]| {
        let mut env = vec![("ATI_PROXY_URL", url.as_str()), ("SSL_CERT_FILE", &ca)];
        env.extend(own);
        here(dir.path(), &env, &["tool", "search", "x"])
    };
    let text = String::from_utf8(list(&[]).stderr).unwrap();
    assert!(text.contains("ATI_CLIENT_CERT"), "{text}");
    let good = list(&[("ATI_CLIENT_CERT", &certificate), ("ATI_CLIENT_KEY", &key)]);
    assert_eq!(good.stdout, b"[]\n");

    // Both in one file.
    let both = dir.path().join("both.pem");
    let pem = [&certificate, &key].map(|path| std::fs::read_to_string(path).unwrap());
    write(&both, pem.concat());
    let good = list(&[("ATI_CLIENT_CERT", both.to_str().unwrap())]);
    assert_eq!(good.stdout, b"[]\n");

    for own in [
        &[("ATI_CLIENT_KEY", key.as_str())][..],
        &[("ATI_CLIENT_CERT", "/nonexistent")],
        &[("ATI_CLIENT_CERT", certificate.as_str())],
        &[("ATI_CLIENT_CERT", key.as_str())],
    ] {
        let (code, kind, _) = failure(&list(own));
        assert_eq!(json!([code, kind]), json!([2, "input.invalid_value"]));
    }
}
