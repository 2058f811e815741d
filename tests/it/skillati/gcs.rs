//! A catalogue in a bucket: what it costs, what is kept of it, and what happens while it is down.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::{Value, json};

use super::bucket::{Bucket, rsa_key};
use super::{FILES, get, json, names, refusal};
use crate::support::ati::{Proxy, Setup};
use crate::support::eventually;
use crate::support::upstream::{Received, Upstream};

const INDEX: &str = "_skillati/catalog.v1.json";

/// A proxy whose registry is this bucket, and that asks it again after `refresh` seconds.
fn started(bucket: &Arc<Bucket>, refresh: u64) -> (Upstream, Proxy) {
    let google = bucket.gcs();
    let proxy = setup(&google, refresh).start();
    (google, proxy)
}

fn setup(google: &Upstream, refresh: u64) -> Setup {
    let account = json!({
        "type": "service_account",
        "client_email": "skills@project.iam.gserviceaccount.com",
        "private_key": rsa_key(),
        "token_uri": format!("{}/token", google.url()),
    });
    Setup::new()
        .credentials(&json!({"gcp_credentials": account.to_string()}))
        .conf(&format!("[skill_registry]\nrefresh_seconds = {refresh}\n"))
        .env("ATI_SKILL_REGISTRY", registry(google))
}

fn registry(google: &Upstream) -> String {
    format!("gcs://skills?endpoint={}", google.url())
}

fn index(names: &[&str]) -> String {
    let skills: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "description": format!("About {name}"), "resources": []}))
        .collect();
    json!({"version": 1, "generated_at": "2026-01-01T00:00:00Z", "skills": skills}).to_string()
}

fn count(google: &Upstream, like: impl Fn(&Received) -> bool) -> usize {
    let received = google.received();
    received.iter().filter(|request| like(request)).count()
}

fn asks_for(request: &Received, object: &str) -> bool {
    let object = object.replace('/', "%2F");
    request.target.contains(&format!("/o/{object}?"))
}

#[test]
fn catalogue_of_a_thousand_skills_costs_one_request_and_none_while_it_is_fresh() {
    let names: Vec<String> = (0..1000).map(|n| format!("skill-{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bucket = Bucket::of(&[(INDEX, index(&names).as_bytes())]);
    let (google, proxy) = started(&bucket, 3600);
    let catalogue = json(&proxy, "/skillati/catalog");
    assert_eq!(super::names(&catalogue), names);
    assert_eq!(
        catalogue["skills"][7],
        json!({
            "name": "skill-0007",
            "description": "About skill-0007",
            "skill_directory": "skillati://skill-0007",
        })
    );
    for _ in 0..20 {
        json(&proxy, "/skillati/catalog?search=0007");
    }
    assert_eq!(count(&google, |request| request.target == "/token"), 1);
    assert_eq!(google.received().len(), 2);
}

#[test]
fn catalogue_that_has_not_changed_costs_one_conditional_request() {
    let bucket = Bucket::of(&[(INDEX, index(&["foo"]).as_bytes())]);
    let (google, proxy) = started(&bucket, 1);
    json(&proxy, "/skillati/catalog");
    let conditional = |request: &Received| request.header("if-none-match").is_some();
    eventually("a second look at the catalogue", || {
        json(&proxy, "/skillati/catalog");
        (count(&google, conditional) > 0).then_some(())
    });
    let whole = |request: &Received| asks_for(request, INDEX) && !conditional(request);
    assert_eq!(count(&google, whole), 1);
    assert_eq!(count(&google, |request| request.target == "/token"), 1);
    let other = |request: &Received| !asks_for(request, INDEX) && request.target != "/token";
    assert_eq!(count(&google, other), 0);
    // And a change arrives.
    bucket.put(INDEX, index(&["foo", "new"]));
    eventually("the new catalogue", || {
        (names(&json(&proxy, "/skillati/catalog")) == ["foo", "new"]).then_some(())
    });
}

#[test]
fn catalogue_and_files_are_served_with_their_age_while_the_registry_is_down() {
    let bucket = Bucket::of(FILES);
    let (_google, proxy) = started(&bucket, 1);
    let paths = [
        "/skillati/catalog",
        "/skillati/foo",
        "/skillati/foo/file?path=scripts/run.sh",
        "/skillati/bar/refs",
    ];
    let before: Vec<Value> = paths.iter().map(|path| json(&proxy, path)).collect();
    bucket.down.store(true, SeqCst);
    for (path, before) in paths.iter().zip(&before) {
        let stale = eventually("an answer that says that it is stale", || {
            let answer = get(&proxy, path);
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.json(), *before, "{path}");
            answer.header("x-ati-stale").map(str::to_owned)
        });
        assert!(stale.parse::<u64>().is_ok(), "{stale}");
    }
    // What was never read can't be served.
    let (status, error) = refusal(&proxy, "/skillati/bar");
    assert_eq!(status, 502);
    assert!(error.starts_with("Skill registry error: "), "{error}");
    proxy.log.wait_for("the skill registry can't be read");
    bucket.down.store(false, SeqCst);
    eventually("an answer that is fresh again", || {
        let answer = get(&proxy, "/skillati/catalog");
        answer.header("x-ati-stale").is_none().then_some(())
    });
}

#[test]
fn index_that_can_not_be_used_is_passed_over_and_without_one_the_bucket_is_listed() {
    let bucket = Bucket::of(FILES);
    bucket.put("Not_A_Skill/SKILL.md", "x");
    bucket.put("no-document/notes.md", "x");
    bucket.put(INDEX, "{ no index");
    bucket.put("_skillati/catalog.json", index(&["old"]));
    let (_google, proxy) = started(&bucket, 1);
    assert_eq!(names(&json(&proxy, "/skillati/catalog")), ["old"]);
    bucket.remove("_skillati/catalog.json");
    let catalogue = eventually("the listing", || {
        let catalogue = json(&proxy, "/skillati/catalog");
        (names(&catalogue) == ["bar", "foo"]).then_some(catalogue)
    });
    let bar = &catalogue["skills"][0];
    assert_eq!(
        (&bar["tools"], &bar["keywords"]),
        (&json!(["web:look"]), &json!(["kyc"]))
    );
    assert_eq!(catalogue["skills"][1]["when_to_use"], "For foo");
    let found = json(&proxy, "/skillati/foo/resources");
    assert_eq!(
        found["resources"],
        json!(["assets/logo.bin", "scripts/run.sh"])
    );
    proxy.log.wait_for("an index of skills can't be used");
}

#[test]
fn listing_reads_only_documents_that_changed() {
    let bucket = Bucket::of(FILES);
    let (google, proxy) = started(&bucket, 1);
    json(&proxy, "/skillati/catalog");
    let reads = |name: &str| count(&google, |request| asks_for(request, name));
    assert_eq!((reads("foo/SKILL.md"), reads("bar/SKILL.md")), (1, 1));
    bucket.put("foo/SKILL.md", "---\nname: foo\ndescription: Newer\n---\n");
    eventually("the new description", || {
        let catalogue = json(&proxy, "/skillati/catalog");
        (catalogue["skills"][1]["description"] == "Newer").then_some(())
    });
    assert_eq!((reads("foo/SKILL.md"), reads("bar/SKILL.md")), (2, 1));
}

#[test]
fn busy_bucket_is_asked_again_and_a_refused_token_is_replaced() {
    let bucket = Bucket::of(&[(INDEX, index(&["foo"]).as_bytes())]);
    bucket.busy.store(2, SeqCst);
    bucket.accepted.store(2, SeqCst);
    let (_google, proxy) = started(&bucket, 3600);
    assert_eq!(names(&json(&proxy, "/skillati/catalog")), ["foo"]);
    assert_eq!(bucket.tokens.load(SeqCst), 2);
}

#[test]
fn bucket_that_stays_busy_is_a_bad_gateway_without_its_words() {
    let bucket = Bucket::of(&[]);
    bucket.busy.store(100, SeqCst);
    let (_google, proxy) = started(&bucket, 3600);
    let expected = "Skill registry error: it answered 503 (Service Unavailable)";
    let refused = refusal(&proxy, "/skillati/catalog");
    assert_eq!(refused, (502, expected.to_owned()));
    // Later callers learn it at once, without a request.
    let asked = 100 - bucket.busy.load(SeqCst);
    assert_eq!(asked, 4);
    assert_eq!(refusal(&proxy, "/skillati/foo").0, 502);
}

#[test]
fn changed_credentials_and_registry_begin_anew_after_a_reload() {
    let bucket = Bucket::of(&[(INDEX, index(&["foo"]).as_bytes())]);
    let (google, proxy) = started(&bucket, 3600);
    json(&proxy, "/skillati/catalog");
    crate::support::ati::write(&proxy.path("credentials"), b"{}");
    proxy.reload();
    let (status, error) = refusal(&proxy, "/skillati/catalog");
    assert_eq!(status, 503);
    assert_eq!(
        error,
        "GCS credentials not found in keyring: gcp_credentials"
    );
    assert_eq!(google.received().len(), 2);
}

#[test]
fn command_reads_the_bucket_with_the_keys_of_this_machine() {
    let bucket = Bucket::of(FILES);
    let google = bucket.gcs();
    let setup = setup(&google, 60);
    let run = |args: &[&str]| {
        let mut command = crate::support::ati::command(setup.path());
        let command = command.env("ATI_SKILL_REGISTRY", registry(&google));
        command.arg("skillati").args(args).output().unwrap()
    };
    let output = run(&["catalog"]);
    assert!(output.status.success(), "{output:?}");
    let catalogue: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(names(&catalogue), ["bar", "foo"]);
    assert!(output.stderr.is_empty(), "{output:?}");
    bucket.down.store(true, SeqCst);
    let output = run(&["catalog"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
