use super::*;
use serde_json::json;

fn read(value: &Value) -> (Effects, Vec<String>) {
    let mut found = Findings::default();
    let effects = Effects::read(value, "effects", &mut found);
    let all = found.problems.iter().chain(&found.warnings);
    (effects, all.map(ToString::to_string).collect())
}

#[test]
fn effects_are_written_as_they_were_read() {
    let whole = json!({
        "filesystem": {"read": true, "write": true, "delete": false, "paths": ["./"]},
        "network": true, "subprocess": false, "idempotent": true, "reversible": false,
        "destructive": false, "confirm": true,
        "creates": ["a"], "modifies": ["b"], "deletes": ["c"],
        "cost": {"estimate": "low", "billable": false},
        "duration": {"typical": "1-5s", "timeout": "60s"},
        "interactive": {"stdin": "optional", "prompts": false, "tty": false},
    });
    let (effects, found) = read(&whole);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(serde_json::to_value(&effects).unwrap(), whole);
    assert_eq!(effects.timeout(), Some(Duration::from_secs(60)));
    assert_eq!(serde_json::to_value(Effects::default()).unwrap(), json!({}));
}

#[test]
fn unreadable_values_are_problems_with_their_place() {
    let (effects, found) = read(&json!({
        "destructive": "yes", "cost": {"estimate": "huge"}, "duration": {"timeout": "soon"},
        "interactive": {"stdin": "maybe"}, "colour": 1,
    }));
    assert_eq!(effects.destructive, None);
    for place in [
        "effects.destructive: true or false is wanted, not a text",
        "effects.cost.estimate: 'huge' is none of free, low, medium, high",
        "effects.duration.timeout: 'soon' is no time like 60s, 500ms, 5m or 1h",
        "effects.interactive.stdin: 'maybe' is none of none, optional, required, password",
        "effects.colour: unknown member",
    ] {
        assert!(found.iter().any(|it| it == place), "{place}: {found:?}");
    }
    assert_eq!(read(&json!(true)).1.len(), 1);
}

#[test]
fn effects_of_tool_and_command_merge_to_the_worse_of_both() {
    let merged = |tool: Value, command: Value| {
        let merged = read(&tool).0.with_command(&read(&command).0);
        serde_json::to_value(merged).unwrap()
    };
    assert_eq!(
        merged(
            json!({"network": true, "reversible": false, "filesystem": {"write": true},
                   "duration": {"timeout": "5s"}, "creates": ["a"]}),
            json!({"network": false, "reversible": true, "idempotent": true,
                   "destructive": true, "filesystem": {"read": true, "write": false},
                   "duration": {"timeout": "9s"}, "creates": ["a", "b"]}),
        ),
        json!({
            "filesystem": {"read": true, "write": true}, "network": true,
            "idempotent": true, "reversible": false, "destructive": true,
            "creates": ["a", "b"], "duration": {"timeout": "9s"},
        })
    );
    // What no author has said isn't known.
    assert_eq!(merged(json!({}), json!({})), json!({}));
}

#[test]
fn times_are_read_with_their_unit() {
    let time = |text: &str| parse_time(text).map(|time| time.as_millis());
    assert_eq!(time("60s"), Some(60_000));
    assert_eq!(time("500ms"), Some(500));
    assert_eq!(time("1.5m"), Some(90_000));
    assert_eq!(time("2h"), Some(7_200_000));
    assert_eq!(time("30"), Some(30_000));
    for bad in [
        "",
        "s",
        "0s",
        "soon",
        "-1s",
        "1-5s",
        "1e9x",
        "99999999999999999999d",
    ] {
        assert_eq!(time(bad), None, "{bad}");
    }
}

#[test]
fn tool_that_needs_a_terminal_says_so() {
    let needs = |value: Value| read(&json!({"interactive": value})).0.needs_terminal();
    assert!(needs(json!({"tty": true, "stdin": "none"})).is_some());
    assert!(needs(json!({"stdin": "password"})).is_some());
    assert!(needs(json!({"stdin": "required"})).is_some());
    assert!(needs(json!({"stdin": "optional", "prompts": true})).is_none());
    assert!(Effects::default().needs_terminal().is_none());
}
