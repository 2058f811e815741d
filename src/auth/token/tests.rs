use super::*;
use hmac::Mac as _;

fn now() -> u64 {
    jsonwebtoken::get_current_timestamp()
}

fn claims() -> Claims {
    Claims {
        iss: Some("orchestrator".into()),
        sub: "agent-7".into(),
        aud: "ati-proxy".into(),
        iat: now(),
        exp: now() + 600,
        jti: None,
        scope: "tool:a:* help".into(),
        job_id: Some("job".into()),
        sandbox_id: None,
        ati: Some(Namespace {
            v: 1,
            rate: BTreeMap::from([("tool:a:*".into(), "5/min".into())]),
            customer_id: Some("cust".into()),
            delegation: None,
        }),
    }
}

fn pair() -> (Signer, Verifier) {
    let key = PrivateKey::generate().unwrap();
    let verifier = Verifier::new(
        &VerificationKey::Es256(vec![key.public().clone().into()]),
        &Expectations::default(),
    );
    (Signer::Es256(key), verifier)
}

fn shared(secret: &[u8], expect: &Expectations) -> (Signer, Verifier) {
    let secret = Secret::new(secret).unwrap();
    let verifier = Verifier::new(&VerificationKey::Hs256(secret.clone()), expect);
    (Signer::Hs256(secret), verifier)
}

fn sign_raw(verifier_secret: &[u8], header: &str, payload: &impl ToString) -> String {
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(payload.to_string())
    );
    let mac = crate::keyring::keyed(verifier_secret).chain_update(message.as_bytes());
    let tag = mac.finalize().into_bytes();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

#[test]
fn token_of_either_algorithm_gives_the_identity_of_its_claims() {
    for (signer, verifier) in [pair(), shared(b"k", &Expectations::default())] {
        let token = signer.issue(&claims()).unwrap();
        let identity = verifier.verify(&token, now()).unwrap();
        assert_eq!(identity.subject, "agent-7");
        assert!(identity.scopes.allow("tool:a:b"));
        assert_eq!(identity.customer_id.as_deref(), Some("cust"));
        assert_eq!(identity.rates[0].1.to_string(), "5/minute");
    }
}

#[test]
fn cached_token_is_not_verified_again_and_still_expires() {
    let (signer, verifier) = pair();
    let token = signer.issue(&claims()).unwrap();
    let first = verifier.verify(&token, now()).unwrap();
    let again = verifier.verify(&token, now()).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let exp = first.expires.unwrap();
    assert!(verifier.verify(&token, exp + 60).is_ok());
    assert_eq!(
        verifier.verify(&token, exp + 61).unwrap_err(),
        TokenFault::Expired
    );
}

#[test]
fn token_that_is_invalid_is_refused_with_its_fault() {
    let (signer, verifier) = pair();
    let (other, _) = pair();
    let fault = |token: &str| verifier.verify(token, now()).unwrap_err();
    assert_eq!(
        fault(&other.issue(&claims()).unwrap()),
        TokenFault::BadSignature
    );
    assert_eq!(fault(""), TokenFault::Malformed);
    assert_eq!(fault("a.b.c"), TokenFault::Malformed);
    assert!(matches!(
        fault(&"x".repeat(64 << 10)),
        TokenFault::TooLong { .. }
    ));
    let expired = Claims {
        exp: now() - 61,
        ..claims()
    };
    assert_eq!(fault(&signer.issue(&expired).unwrap()), TokenFault::Expired);
    let late = Claims {
        exp: now() - 30,
        ..claims()
    };
    assert!(
        verifier
            .verify(&signer.issue(&late).unwrap(), now())
            .is_ok()
    );
    let foreign = Claims {
        aud: "other".into(),
        ..claims()
    };
    assert_eq!(
        fault(&signer.issue(&foreign).unwrap()),
        TokenFault::WrongAudience
    );
    let mut unlimited = claims();
    unlimited
        .ati
        .as_mut()
        .unwrap()
        .rate
        .insert("tool:x".into(), "lots".into());
    assert_eq!(
        fault(&signer.issue(&unlimited).unwrap()),
        TokenFault::BadRate
    );
}

#[test]
fn token_of_a_customer_that_can_not_be_is_refused() {
    let key = PrivateKey::generate().unwrap();
    let verifier = Verifier::new(
        &VerificationKey::Es256(vec![key.public().clone().into()]),
        &Expectations::default(),
    );
    let signer = Signer::Es256(key);
    let verify = |customer: &str| {
        let mut claims = claims();
        claims.ati.as_mut().unwrap().customer_id = Some(customer.to_owned());
        let identity = verifier.verify(&signer.issue(&claims).unwrap(), now())?;
        Ok::<_, TokenFault>(identity.customer_id.clone())
    };
    for bad in ["acme@globex", "a/b", "a\nb", " acme", &"x".repeat(257)] {
        assert_eq!(verify(bad).unwrap_err(), TokenFault::BadCustomer, "{bad:?}");
    }
    assert_eq!(verify("cust_alpha").unwrap().as_deref(), Some("cust_alpha"));
    assert_eq!(verify("").unwrap(), None);
}

#[test]
fn token_signed_with_the_public_key_as_shared_secret_is_refused() {
    let key = PrivateKey::generate().unwrap();
    let verifier = Verifier::new(
        &VerificationKey::Es256(vec![key.public().clone().into()]),
        &Expectations::default(),
    );
    let payload = serde_json::to_value(claims()).unwrap();
    for secret in [
        key.public().to_pem().into_bytes(),
        key.public().point().to_vec(),
    ] {
        let forged = sign_raw(&secret, r#"{"alg":"HS256","typ":"JWT"}"#, &payload);
        assert_eq!(
            verifier.verify(&forged, now()).unwrap_err(),
            TokenFault::BadSignature
        );
    }
    for alg in ["none", "None", "ES384", "RS256"] {
        let header = format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#);
        let forged = sign_raw(b"", &header, &payload);
        assert!(verifier.verify(&forged, now()).is_err(), "{alg}");
        let bare = forged.rsplit_once('.').unwrap().0.to_owned() + ".";
        assert!(verifier.verify(&bare, now()).is_err(), "{alg}");
    }
}

#[test]
fn token_without_a_required_claim_or_with_several_audiences_is_refused() {
    let (_, verifier) = shared(b"k", &Expectations::default());
    let full = serde_json::to_value(claims()).unwrap();
    let header = r#"{"alg":"HS256","typ":"JWT"}"#;
    assert!(
        verifier
            .verify(&sign_raw(b"k", header, &full), now())
            .is_ok()
    );
    for claim in ["exp", "sub", "aud", "iat", "scope"] {
        let mut less = full.clone();
        less.as_object_mut().unwrap().remove(claim);
        assert!(
            verifier
                .verify(&sign_raw(b"k", header, &less), now())
                .is_err(),
            "{claim}"
        );
    }
    for (claim, value) in [
        ("aud", serde_json::json!(["ati-proxy"])),
        ("ati", serde_json::json!({"rate": {}})),
        ("exp", serde_json::json!("soon")),
        ("scope", serde_json::json!(["a"])),
    ] {
        let mut odd = full.clone();
        odd[claim] = value;
        assert!(
            verifier
                .verify(&sign_raw(b"k", header, &odd), now())
                .is_err(),
            "{claim}"
        );
    }
    let mut fraction = full.clone();
    fraction["exp"] = serde_json::json!(now() as f64 + 600.5);
    fraction["nbf"] = serde_json::json!(now() + 6000);
    assert!(
        verifier
            .verify(&sign_raw(b"k", header, &fraction), now())
            .is_ok()
    );
}

#[test]
fn token_of_another_issuer_than_the_configured_one_is_refused() {
    let expect = Expectations {
        issuer: Some("orchestrator".into()),
        ..Expectations::default()
    };
    let (signer, verifier) = shared(b"k", &expect);
    let check = |iss: Option<&str>| {
        let claims = Claims {
            iss: iss.map(str::to_owned),
            ..claims()
        };
        verifier
            .verify(&signer.issue(&claims).unwrap(), now())
            .map(drop)
    };
    assert_eq!(check(Some("orchestrator")), Ok(()));
    assert_eq!(check(Some("else")), Err(TokenFault::WrongIssuer));
    assert_eq!(check(None), Err(TokenFault::WrongIssuer));
}

#[test]
fn token_that_demands_an_extension_is_refused() {
    let (_, verifier) = shared(b"k", &Expectations::default());
    let payload = serde_json::to_value(claims()).unwrap();
    let check = |header: &str| verifier.verify(&sign_raw(b"k", header, &payload), now());
    assert!(check(r#"{"alg":"HS256","b64":false}"#).is_ok());
    for header in [
        r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
        r#"{"alg":"HS256","crit":["exp"],"exp":1}"#,
        r#"{"crit":[],"alg":"HS256"}"#,
        r#"{"alg":"HS256","crit":null}"#,
        r#"{"alg":"HS256","\u0063rit":["x"]}"#,
    ] {
        assert_eq!(check(header).unwrap_err(), TokenFault::Critical, "{header}");
    }
}

#[test]
fn policy_of_a_token_holds_next_to_claims_that_are_no_text_or_number() {
    let (_, verifier) = shared(b"k", &Expectations::default());
    let with = |more: &str, delegation: &str| {
        format!(
            r#"{{"sub":"s","aud":"ati-proxy","iat":{0},"exp":{0},"scope":"tool:*",{more}
            "ati":{{"v":1,"delegation":{delegation}}}}}"#,
            now() + 600
        )
    };
    let verify = |payload: String| {
        let token = sign_raw(b"k", r#"{"alg":"HS256"}"#, &payload);
        verifier.verify(&token, now())
    };
    let denies = r#"{"deniedCommands":["shop:get"]}"#;
    for more in ["", r#""name":"\ud800","#, r#""n":1e999,"#] {
        let identity = verify(with(more, denies)).unwrap();
        assert!(identity.delegation.is_some(), "{more}");
    }
    for unreadable in [r#""\ud800""#, r#"{"deniedCommands":["\ud800"]}"#, "[]"] {
        assert!(verify(with("", unreadable)).is_err(), "{unreadable}");
    }
}

#[test]
fn critical_extension_is_refused_in_a_header_with_members_of_any_kind() {
    let (_, verifier) = shared(b"k", &Expectations::default());
    let payload = serde_json::to_value(claims()).unwrap();
    for more in ["", r#","n":1e999"#, r#","n":"\ud800""#] {
        for crit in [r#"["b64"]"#, "null"] {
            let header = format!(r#"{{"alg":"HS256","crit":{crit}{more}}}"#);
            let fault = verifier.verify(&sign_raw(b"k", &header, &payload), now());
            assert_eq!(fault.unwrap_err(), TokenFault::Critical, "{header}");
        }
    }
}
