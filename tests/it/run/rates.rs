//! Rate limits that several processes of the command line share.

use std::process::Output;
use std::time::Instant;

use ati::auth::token::{Claims, Namespace};
use ati::clock::unix_now;
use serde_json::json;

use super::{failure, folder, here};
use crate::support::ati::write;
use crate::support::tokens::{claims, shared};
use crate::support::upstream::Upstream;

const SECRET: &str = "abababababababababababababababababababababababababababababababab";

fn limited(rate: &str) -> String {
    let ati = Namespace {
        v: 1,
        rate: [("tool:*".to_owned(), rate.to_owned())].into(),
        customer_id: None,
        delegation: None,
    };
    let ati = Some(ati);
    let claims = Claims { ati, ..claims() };
    shared(SECRET).issue(&claims).unwrap()
}

#[test]
fn limit_per_second_holds_across_processes() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    let token = limited("1/s");
    let env = [
        ("ATI_JWT_SECRET", SECRET),
        ("ATI_SESSION_TOKEN", token.as_str()),
    ];
    let begin = Instant::now();
    let outputs: Vec<Output> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| here(dir.path(), &env, &["run", "shop:buy"])))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    // However slow the machine is: one call, and one more for each second that has passed.
    let most = 1 + begin.elapsed().as_secs() as usize;
    let passed = api.received().len();
    assert!((1..=most).contains(&passed), "{passed} of {most}");
    for refused in outputs.iter().filter(|output| !output.status.success()) {
        let (code, kind, message) = failure(refused);
        assert_eq!((code, kind.as_str()), (5, "rate.exceeded"));
        assert_eq!(
            message,
            "Rate limit exceeded for 'tool:*': 1/second (limit: 1/second)"
        );
    }
}

#[test]
fn limit_per_second_counts_the_whole_seconds_of_an_older_file() {
    let api = Upstream::echo();
    let dir = folder(&api.url());
    let token = limited("1/s");
    // So late that no slow machine gets past it.
    let state = json!({"calls": {"agent-7 tool:*": [unix_now() + 3600]}});
    write(&dir.path().join("rate-state.json"), state.to_string());
    let env = [
        ("ATI_JWT_SECRET", SECRET),
        ("ATI_SESSION_TOKEN", token.as_str()),
    ];
    let refused = here(dir.path(), &env, &["run", "shop:buy"]);
    assert_eq!(failure(&refused).1, "rate.exceeded");
    assert!(api.received().is_empty());
}
