use super::*;

fn answer(status: u16, is_json: bool, body: &str) -> Response {
    Response {
        format: Default::default(),
        is_program: false,
        warning: None,
        request_id: None,
        status,
        body: body.to_owned(),
        reason: "Reason",
        path: "/call".into(),
        is_json,
        challenge: None,
        signature_status: None,
        retry_after: None,
        clock_ahead: None,
    }
}

fn unknown_caller() -> Caller {
    Caller {
        token: None,
        unreadable_token: None,
        signing: None,
    }
}

fn shown(answer: &Response) -> (&'static str, String) {
    let failure = answer.failure(&unknown_caller());
    assert_eq!(failure.status, Some(answer.status));
    (failure.code.as_str(), failure.message)
}

#[test]
fn message_of_a_json_body_is_told_once() {
    let body = r#"{"result":null,"error":"Upstream API error: API error (500): {\"a\":1}"}"#;
    assert_eq!(
        shown(&answer(502, true, body)),
        (
            "provider.upstream_error",
            "Proxy error (502): Upstream API error: API error (500): {\"a\":1}".to_owned()
        )
    );
    assert_eq!(
        shown(&answer(503, false, "")).1,
        "Proxy error (503): Reason".to_owned()
    );
    let other = shown(&answer(404, false, "<html>"));
    assert_eq!(other.0, "provider.upstream_error");
    let unknown = shown(&answer(404, true, r#"{"error":"Unknown tool: 'x'"}"#));
    assert_eq!(unknown.0, "tool.not_found");
    for error in ["Skill 'x' not found", "Path 'a.md' not found in skill 'x'"] {
        let body = serde_json::json!({"error": error}).to_string();
        let failure = answer(404, true, &body);
        assert_eq!(shown(&failure).0, "tool.execution_failed", "{error}");
    }
}

#[test]
fn file_tools_have_the_codes_that_they_have_without_a_proxy() {
    for (status, error, code) in [
        (
            502,
            "Upload failed: keyring key 'k' missing",
            "auth.missing_key",
        ),
        (
            502,
            "Upload failed: it took longer than 600 s",
            "provider.timeout",
        ),
        (
            502,
            "Download failed: it took longer than 1 s",
            "provider.timeout",
        ),
        (
            502,
            "Download failed: more than 10 redirects",
            "provider.upstream_error",
        ),
        (502, "Invalid URL: no scheme", "input.invalid_value"),
        (
            413,
            "Response exceeds max-bytes (5 bytes)",
            "input.invalid_value",
        ),
        (
            403,
            "Host 'h' is not in the download allowlist",
            "input.invalid_value",
        ),
        (
            404,
            "Upstream returned status 404 for 'u': x",
            "provider.upstream_error",
        ),
    ] {
        let body = serde_json::json!({"error": error}).to_string();
        assert_eq!(shown(&answer(status, true, &body)).0, code, "{error}");
    }
}

#[test]
fn refused_signature_is_told_from_a_scope() {
    for reason in [
        "missing_signature",
        "hmac_mismatch",
        "expired_timestamp_drift=75s",
    ] {
        let found = shown(&answer(403, false, reason));
        assert_eq!(
            found,
            ("auth.signature", format!("Proxy error (403): {reason}"))
        );
    }
    // A tool may be called anything, and a body of JSON is never a reason.
    let scope = answer(403, true, r#"{"result":null,"error":"missing_signature"}"#);
    assert_eq!(shown(&scope).0, "auth.scope_denied");
    assert_eq!(shown(&answer(403, false, "valid")).0, "auth.scope_denied");
    let ended = r#"{"result":null,"error":"Scopes have expired (expired at 5)"}"#;
    assert_eq!(shown(&answer(403, true, ended)).0, "auth.expired");
}

#[test]
fn token_is_judged_by_the_challenge_and_then_by_itself() {
    let challenge = |why: &str| {
        format!("Bearer realm=\"ati\", error=\"invalid_token\", error_description=\"{why}\"")
    };
    let of = |challenge: Option<&str>, token: Option<&str>| {
        TokenRefusal::new(challenge, token).code().as_str()
    };
    let claims = |exp: u64| {
        use base64::Engine as _;
        let part =
            base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{exp}}}"));
        format!("eyJhbGciOiJIUzI1NiJ9.{part}.c2ln")
    };
    let (good, old) = (claims(u64::MAX / 2), claims(1));
    assert_eq!(of(None, None), "auth.missing_key");
    assert_eq!(of(Some(&challenge("expired")), Some(&good)), "auth.expired");
    assert_eq!(of(None, Some(&old)), "auth.expired");
    let labelled = challenge("token_expired: it ended 75 s ago");
    assert_eq!(of(Some(&labelled), Some(&good)), "auth.expired");
    let labelled = challenge("token_audience: for another audience");
    assert_eq!(
        TokenRefusal::new(Some(&labelled), Some(&good)),
        TokenRefusal::Other(Some("for another audience".into()))
    );
    let labelled = challenge("token_malformed: no claims");
    assert_eq!(
        TokenRefusal::new(Some(&labelled), Some(&good)),
        TokenRefusal::Malformed
    );
    assert_eq!(of(None, Some("not-a-token")), "auth.invalid_token");
    let foreign = challenge("signed with \\\"another\\\" key");
    assert_eq!(
        TokenRefusal::new(Some(&foreign), Some(&old)),
        TokenRefusal::Other(Some("signed with \"another\" key".into()))
    );
    assert_eq!(parameter("Bearer", "error_description"), None);
    assert_eq!(parameter("Bearer x_error=\"a\"", "error"), None);
}

#[test]
fn virtual_key_is_never_taken_for_a_jwt() {
    let caller = Caller {
        token: Some("ati-key_0123".into()),
        ..unknown_caller()
    };
    let mut unknown = answer(401, false, "");
    let plain = unknown.failure(&caller);
    unknown.challenge = Some(
        "Ati-Key realm=\"ati\", error=\"invalid_token\", \
         error_description=\"key_unknown: no such key: it never was, or it was revoked\""
            .into(),
    );
    for failure in [plain, unknown.failure(&caller)] {
        assert_eq!(failure.code.as_str(), "auth.invalid_token");
        assert_eq!(
            failure.message,
            "Proxy error (401): the virtual key is not known: it was revoked, has expired, or is \
             another proxy's"
        );
        assert!(!failure.hint.unwrap().contains("JWT"));
    }
    let blocked = "Ati-Key realm=\"ati\", error_description=\"key_blocked: it is blocked\"";
    unknown.challenge = Some(blocked.into());
    let failure = unknown.failure(&caller);
    assert!(failure.message.ends_with("not accepted: it is blocked"));
    let away = answer(503, false, "").failure(&caller);
    assert!(
        away.message.contains("has no database, or can't reach it"),
        "{away}"
    );
    // Another reason keeps its own words, and a JWT needs no database.
    let down = r#"{"error":"provider 'p' is down"}"#;
    assert!(
        answer(503, true, down)
            .failure(&caller)
            .message
            .ends_with("is down")
    );
    assert_eq!(
        shown(&answer(503, false, "")).1,
        "Proxy error (503): Reason"
    );
}
