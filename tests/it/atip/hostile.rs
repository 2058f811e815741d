//! Values that would do harm if they were anything but values.

use serde_json::json;

use super::*;

const VALUES: &[&str] = &[
    "$(id)",
    "\"; id; \"",
    "`id`",
    "--flag",
    "--loud",
    "-x",
    "-",
    "--",
    "a\nb",
    "*",
    "~",
    "a b",
    "",
    "ü😀",
    "%s%n",
];

#[test]
fn value_arrives_as_one_word_and_as_nothing_else() {
    let proxy = with_native("nat", "").start();
    for value in VALUES {
        let result = call(&proxy, "nat:say", json!({"text": value, "tag": value}));
        let dashed = value.starts_with('-');
        let tag = format!("--tag={value}");
        let expected: Vec<&str> = match dashed {
            true => vec!["say", &tag, "--", value],
            false => vec!["say", value, "--tag", value],
        };
        assert_eq!(words(&result), expected, "{value:?}");
    }
}

#[test]
fn value_that_no_word_can_carry_is_a_clear_error() {
    let proxy = with_native("nat", "").start();
    let long = "x".repeat(1 << 20);
    for (args, expected) in [
        (json!({"text": "a\u{0}b"}), "NUL"),
        (json!({"text": long}), "bytes"),
        (
            json!({"text": "a", "short": "--loud"}),
            "can't begin with '-'",
        ),
        (json!({"text": "a", "unknown": "b"}), "unknown"),
        (json!({}), "text"),
    ] {
        let answer = proxy.call(None, "nat:say", args);
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
}

#[test]
fn metadata_cannot_smuggle_flags_or_other_programs_in() {
    let dir = tempfile::tempdir().unwrap();
    let document = json!({
        "atip": "0.6", "name": "nat", "version": "1", "description": "d",
        "commands": {
            "--exec": {"description": "A flag"},
            "a b": {"description": "Two words"},
            "odd": {"description": "d", "options": [
                {"name": "q", "flags": ["--q --exec"], "type": "string", "description": "q"}]},
            "fine": {"description": "d"},
        },
    });
    let program = add_native(dir.path(), "nat", &document);
    add_manifest(dir.path(), "nat", &program, "");
    let listed = ati(dir.path(), &["tool", "list", "--provider", "nat"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["name"], "nat:fine");
}
