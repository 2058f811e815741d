use super::*;
use serde_json::json;

fn schema() -> Schema {
    Schema::new(json!({
        "type": "object",
        "required": ["query"],
        "properties": {
            "query": {"type": "string"},
            "maxResults": {"type": "integer", "default": 10, "maximum": 50},
            "safe_search": {"type": "boolean"},
            "either": {"type": ["string", "integer"]},
            "list": {"type": "array", "default": []},
        },
    }))
}

fn prepare(args: Value) -> Result<Value, Unfit> {
    prepare_by(&schema(), args, &[]).map(|prepared| Value::Object(prepared.args))
}

fn prepare_by(schema: &Schema, args: Value, words: &[&str]) -> Result<Prepared, Unfit> {
    let Value::Object(args) = args else { panic!() };
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    schema.prepare(args, &Words::parse(&words))
}

#[test]
fn arguments_get_names_defaults_and_types() {
    assert_eq!(
        prepare(
            json!({"Query": 5, "max-results": "7", "safeSearch": "true", "either": "5", "extra": 1})
        )
        .unwrap(),
        json!({"query": "5", "maxResults": 7, "safe_search": true, "either": "5", "extra": 1})
    );
    assert_eq!(
        prepare(json!({"query": "x"})).unwrap(),
        json!({"query": "x", "maxResults": 10})
    );
    // An exact name keeps its value.
    assert_eq!(
        prepare(json!({"QUERY": "b", "query": "a"})).unwrap(),
        json!({"query": "a", "QUERY": "b", "maxResults": 10})
    );
}

#[test]
fn refused_argument_is_named_and_its_value_is_not_quoted() {
    let missing = prepare(json!({})).unwrap_err();
    assert_eq!((missing.name.as_str(), missing.missing), ("query", true));
    let wrong = prepare(json!({"query": ["hunter2"]})).unwrap_err();
    assert_eq!((wrong.name.as_str(), wrong.missing), ("query", false));
    assert!(!wrong.what.contains("hunter2"), "{wrong:?}");
    let large = prepare(json!({"query": "x", "maxResults": 51})).unwrap_err();
    assert_eq!(large.name, "maxResults");
    let closed = Schema::new(json!({"additionalProperties": false, "properties": {"a": {}}}));
    let refused = prepare_by(&closed, json!({"b": 1}), &[]).unwrap_err();
    assert_eq!(refused.name, "b");
}

#[test]
fn invalid_schema_accepts_anything_and_is_reported() {
    let bad = Schema::new(json!({"type": "objekt", "properties": {"a": {"type": "string"}}}));
    assert!(bad.fault().is_some());
    assert!(prepare_by(&bad, json!({}), &[]).is_ok());
    assert_eq!(schema().fault(), None);
    let outside = Schema::new(json!({"$ref": "http://127.0.0.1:1/x.json"}));
    assert!(outside.fault().is_some());
}
#[test]
fn words_as_typed_win_over_what_was_read_from_them() {
    let schema = schema();
    let spelled = ["--Query", "1.10", "--max-results", "7"];
    // An older client's reading, and this one's.
    for read in [
        json!({"Query": 1.1, "max-results": 7}),
        json!({"Query": "1.10", "max-results": 7}),
    ] {
        let prepared = prepare_by(&schema, read, &spelled).unwrap();
        assert_eq!(
            prepared.args,
            *json!({"query": "1.10", "maxResults": 7})
                .as_object()
                .unwrap()
        );
        assert!(prepared.unknown.is_empty());
    }
    for text in ["true", "null", "[1]", "{\"a\":  1}", "[1,", "5"] {
        let read = json!({"query": crate::catalog::words::read(text)});
        let prepared = prepare_by(&schema, read, &["--query", text]).unwrap();
        assert_eq!(prepared.args["query"], text);
    }
    let twice = json!({"query": ["a", "b"]});
    let refused = prepare_by(&schema, twice, &["--query", "a", "--query=b"]).unwrap_err();
    assert_eq!(refused.what, "is given 2 times, and takes one value");
    let list = prepare_by(&schema, json!({"query": "x", "list": "a"}), &[]).unwrap();
    assert_eq!(list.args["list"], json!(["a"]));
}

#[test]
fn digits_of_a_number_for_a_string_are_restored() {
    let text = r#"{"QUERY": 123456789012345678901, "maxResults": 7.0, "either": 1.10}"#;
    let raw = RawValue::from_string(text.to_owned()).unwrap();
    let mut args: Map<String, Value> = serde_json::from_str(text).unwrap();
    schema().restore_digits(&mut args, &raw, &[]);
    let expected = json!({"QUERY": "123456789012345678901", "maxResults": 7.0, "either": "1.10"});
    assert_eq!(Value::Object(args), expected);
}

#[test]
fn unknown_argument_is_named_with_the_nearest_known_one() {
    let schema = schema();
    let args = json!({"query": "x", "max-result": 5, "zzz": 1});
    let unknown = prepare_by(&schema, args, &[]).unwrap().unknown;
    let texts: Vec<String> = unknown.iter().map(ToString::to_string).collect();
    let expected = [
        "unknown argument 'max-result'; did you mean 'maxResults'?",
        "unknown argument 'zzz'",
    ];
    assert_eq!(texts, expected);
    let missing = prepare(json!({"qurey": "x"})).unwrap_err();
    assert_eq!(
        missing.what,
        "is required (unknown argument 'qurey'; did you mean 'query'?)"
    );
    let closed = json!({"additionalProperties": false, "properties": {"limit": {}}});
    let refused = prepare_by(&Schema::new(closed), json!({"limt": 1}), &[]).unwrap_err();
    assert_eq!(
        refused.what,
        "is not known to this tool; did you mean 'limit'?"
    );
    for open in [
        json!({}),
        json!({"properties": {}}),
        json!({"properties": {"a": {}}, "additionalProperties": true}),
        json!({"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]}),
    ] {
        let prepared = prepare_by(&Schema::new(open), json!({"b": 1}), &[]).unwrap();
        assert!(prepared.unknown.is_empty());
    }
}
