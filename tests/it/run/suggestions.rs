//! Names of tools: other spellings, and suggestions for mistyped ones.

use serde_json::json;

use super::{failure, folder, here, manifest, result};
use crate::support::ati::{Setup, write};
use crate::support::tokens::{claims, key_pair};
use crate::support::upstream::Upstream;

const SPEC: &str = r#"{"openapi": "3.0.0", "info": {"title": "b", "version": "1"}, "paths": {
    "/invoices": {"get": {"operationId": "listInvoices"}, "post": {"operationId": "createInvoice"}},
    "/wipe": {"delete": {"operationId": "wipe"}}}}"#;

#[test]
fn mistyped_name_gets_the_nearest_names_that_the_caller_may_use() {
    let api = Upstream::echo();
    let (signer, public) = key_pair();
    let billing = format!(
        "[provider]\nname = 'billing'\nhandler = 'openapi'\nopenapi_spec = 'b.json'\nbase_url = '{}'",
        api.url()
    );
    let setup = Setup::new()
        .jwt(&public)
        .credentials(&json!({"api": "planted-key-1234"}))
        .manifest("shop", &manifest(&api.url()))
        .manifest("billing", &billing);
    write(&setup.path().join("specs/b.json"), SPEC);
    let proxy = setup.start();
    let local = folder(&api.url());
    write(&local.path().join("manifests/billing.toml"), &billing);
    write(&local.path().join("specs/b.json"), SPEC);
    let pem = local.path().join("public.pem");
    write(&pem, &public);
    let token = signer
        .issue(&ati::auth::token::Claims {
            scope: "tool:shop:* tool:billing:listInvoices".into(),
            ..claims()
        })
        .unwrap();
    let url = format!("http://{}", proxy.edge);
    let token = ("ATI_SESSION_TOKEN", token.as_str());
    for env in [
        [("ATI_JWT_PUBLIC_KEY", pem.to_str().unwrap()), token],
        [("ATI_PROXY_URL", url.as_str()), token],
    ] {
        for wrong in ["biling:listInvoices", "listInvoices", "billing:listInvoice"] {
            let (code, kind, message) = failure(&here(local.path(), &env, &["run", wrong]));
            assert_eq!((code, kind.as_str()), (1, "tool.not_found"));
            assert!(
                message.contains(&format!("Unknown tool: '{wrong}'")),
                "{message}"
            );
            let suggested = "Did you mean one of:\n  - billing:listInvoices";
            assert!(message.contains(suggested), "{message}");
            assert!(!message.contains("createInvoice"), "{message}");
        }
        let (_, _, message) = failure(&here(local.path(), &env, &["run", "zzzz"]));
        assert!(!message.contains("Did you mean"), "{message}");
        for spelling in ["billing__listInvoices", "billing_listInvoices"] {
            let found = result(&here(local.path(), &env, &["run", spelling]));
            assert_eq!(found["target"], "/invoices");
        }
    }
    // The proxy's own text is as clients know it.
    let auth = format!("Bearer {}", token.1);
    let answer = proxy.client().send(
        "POST",
        "/call",
        &[("authorization", &auth)],
        br#"{"tool_name":"biling:listInvoices"}"#,
    );
    let unknown = r#"{"result":null,"error":"Unknown tool: 'biling:listInvoices'"}"#;
    assert_eq!((answer.status, answer.text().as_str()), (404, unknown));
}
