//! Credentials that a command or a script prints.

use serde_json::json;

use super::{json_upstream, upstream, with_key};
use crate::support::ati::{Setup, write};
use crate::support::tokens::{bearer, claims, key_pair};

#[test]
fn generator_output_is_the_presented_credential() {
    let api = upstream(|received| {
        let seen = json!({"auth": received.header("authorization").map(str::len), "x": received.header("x-session")});
        (200, String::new(), seen.to_string())
    });
    let provider = |generator: &str| {
        format!(
            r#"
                auth_type = 'bearer'
                auth_key_name = 'unused'
                [provider.auth_generator]
                {generator}
            "#
        )
    };
    let one = |name: &str| {
        format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/{name}'
            "#
        )
    };
    let setup = with_key(Setup::new());
    let counter = setup.path().join("count");
    let counted = format!("echo x >> {}; echo planted-minted", counter.display());
    let (signer, public) = key_pair();
    let proxy = setup
        .jwt(&public)
        .tools("script", &api.url(), &provider(&format!(r#"
            type = 'script'
            interpreter = 'sh'
            script = '''{counted}'''
            cache_ttl_secs = 600
        "#)), &one("script"))
        .tools(
            "command",
            &api.url(),
            &provider(r#"
                type = 'command'
                command = 'sh'
                args = ['-c', 'echo $SUB:$SCOPE:$TOOL:$(echo $K | cut -c9-)']
                env = { SUB = '${JWT_SUB}', SCOPE = '${JWT_SCOPE}', TOOL = '${TOOL_NAME}', K = '${api}' }
            "#),
            &one("command"),
        )
        .tools(
            "json",
            &api.url(),
            &provider(r#"
                type = 'command'
                command = 'echo'
                args = ['{"data": {"t": "planted-t0ken", "s": 5}}']
                output_format = 'json'
                [provider.auth_generator.inject]
                "data.t" = { type = 'query' }
                "data.s" = { type = 'header', name = 'X-Session' }
            "#),
            &one("json"),
        )
        .tools("fails", &api.url(), &provider(r#"
            type = 'command'
            command = 'sh'
            args = ['-c', 'echo oops $K >&2; exit 3']
            env = { K = '${api}' }
        "#), &one("fails"))
        .tools("hangs", &api.url(), &provider(r#"
            type = 'command'
            command = 'sleep'
            args = ['60']
            timeout_secs = 1
        "#), &one("hangs"))
        .tools("keyless", &api.url(), &provider(r#"
            type = 'command'
            command = 'true'
            env = { K = '${absent}' }
        "#), &one("keyless"))
        .start();
    let token = bearer(&signer, &claims());
    let other = bearer(
        &signer,
        &ati::auth::token::Claims {
            sub: "agent-8".into(),
            ..claims()
        },
    );
    let call = |tool: &str| proxy.call(Some(&token), tool, json!({})).json();
    let presented = || api.last().header("authorization").unwrap().to_owned();

    for _ in 0..3 {
        assert_eq!(call("script")["result"]["auth"], 21);
    }
    assert_eq!(presented(), "Bearer planted-minted");
    proxy.call(Some(&other), "script", json!({}));
    assert_eq!(
        std::fs::read_to_string(&counter).unwrap(),
        "x\nx\n",
        "once for each subject"
    );

    call("command");
    assert_eq!(presented(), "Bearer agent-7:*:command:api-key-41c2");
    assert_eq!(call("json")["result"]["x"], "5");
    assert_eq!(presented(), "Bearer planted-t0ken");
    assert_eq!(
        call("fails")["error"],
        "Upstream API error: auth_generator: Generator exited with code 3: oops [REDACTED]"
    );
    assert_eq!(
        call("hangs")["error"],
        "Upstream API error: auth_generator: Generator timed out after 1s"
    );
    assert_eq!(
        call("keyless")["error"],
        "Upstream API error: API key 'absent' not found in keyring"
    );
}

#[test]
fn generator_errors_are_redacted_and_its_cache_is_keyed_by_script() {
    let api = json_upstream(json!({}));
    let provider = |script: &str, more: &str| {
        format!(
            r#"
                auth_type = 'bearer'
                auth_key_name = 'x'
                [provider.auth_generator]
                type = 'script'
                interpreter = 'sh'
                script = '''{script}'''
                {more}
            "#
        )
    };
    let one = |name: &str| {
        format!(
            r#"
                [[tools]]
                name = '{name}'
                endpoint = '/{name}'
            "#
        )
    };
    let manifest = |token: &str| {
        let generator = provider(
            &format!("echo {token}"),
            "cache_ttl_secs = 9223372036854775807",
        );
        format!(
            r#"
                [provider]
                name = 'kept'
                base_url = '{}'
                {generator}
                {}
            "#,
            api.url(),
            one("kept")
        )
    };
    let proxy = with_key(Setup::new())
        .tools(
            "fails",
            &api.url(),
            &provider(
                "echo bad key: ${H#Bearer } >&2; exit 3",
                "env = { H = 'Bearer ${api}' }",
            ),
            &one("fails"),
        )
        .manifest("kept", &manifest("planted-first"))
        .start();
    let failed = proxy.call(None, "fails", json!({})).json();
    assert_eq!(
        failed["error"],
        "Upstream API error: auth_generator: Generator exited with code 3: bad key: [REDACTED]"
    );
    assert_eq!(proxy.call(None, "kept", json!({})).status, 200);
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-first")
    );
    // The cache key includes the script: another script is run.
    write(
        &proxy.path("manifests/kept.toml"),
        manifest("planted-second"),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    proxy.call(None, "kept", json!({}));
    assert_eq!(
        api.last().header("authorization"),
        Some("Bearer planted-second")
    );
}
