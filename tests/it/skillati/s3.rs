//! A catalogue in S3. `tests/wild/s3.py` checks signatures against moto.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;

use super::bucket::Bucket;
use super::{FILES, json, names, refusal};
use crate::support::ati::Setup;

#[test]
fn catalogue_in_s3_is_listed_and_read_with_signed_requests() {
    let bucket = Bucket::of(&[]);
    for (name, content) in FILES {
        bucket.put(&format!("team/{name}"), content);
    }
    bucket.put("other/x/SKILL.md", "text");
    let amazon = bucket.s3();
    let endpoint = amazon.url();
    let setup = Setup::new()
        .credentials(&json!({"s3_access_key": "planted-id", "s3_secret_key": "planted-secret"}))
        .env(
            "ATI_SKILL_REGISTRY",
            format!("s3://skills/team?region=eu-west-1&endpoint={endpoint}"),
        );
    let proxy = setup.start();
    assert_eq!(names(&json(&proxy, "/skillati/catalog")), ["bar", "foo"]);
    let file = json(&proxy, "/skillati/foo/file?path=../bar/references/r.md");
    assert_eq!(file["content"], "reference\n");
    assert_eq!(refusal(&proxy, "/skillati/foo/file?path=x").0, 404);
    bucket.down.store(true, SeqCst);
    assert_eq!(names(&json(&proxy, "/skillati/catalog")), ["bar", "foo"]);
}
