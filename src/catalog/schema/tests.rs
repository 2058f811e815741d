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
    assert_eq!(bad.faults().len(), 1);
    assert!(prepare_by(&bad, json!({}), &[]).is_ok());
    assert!(schema().faults().is_empty());
    let outside = Schema::new(json!({"$ref": "http://127.0.0.1:1/x.json"}));
    assert_eq!(outside.faults().len(), 1);
}

#[test]
fn pattern_that_cannot_be_compiled_is_left_out_alone_and_reported() {
    let schema = Schema::new(json!({
        "properties": {
            "file": {"pattern": "^[a-z]+$"},
            "other": {"pattern": "(", "maxLength": 3},
            "pattern": {"const": {"pattern": "("}},
            "names": {
                "patternProperties": {"^[": {}, "^x": {"type": "integer"}},
                "additionalProperties": false,
            },
        },
    }));
    let faults = schema.faults();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert_eq!(
        faults[0],
        "arguments are checked without the pattern '(' of other, which can't be compiled"
    );
    let check = |args: Value| prepare_by(&schema, args, &[]).map_err(|unfit| unfit.name);
    let refused = |args: Value| check(args).unwrap_err();
    assert_eq!(refused(json!({"file": "../../etc/passwd"})), "file");
    assert_eq!(refused(json!({"other": "four"})), "other");
    assert_eq!(refused(json!({"pattern": {"pattern": "x"}})), "pattern");
    assert_eq!(refused(json!({"names": {"x1": "no number"}})), "names.x1");
    let good = json!({"file": "a", "other": "((", "pattern": {"pattern": "("}, "names": {"[": 1}});
    assert!(check(good).is_ok());
}

#[test]
fn arguments_too_costly_to_check_are_refused_and_cheap_ones_are_known_as_such() {
    let parts = vec![json!({"not": {"const": 0}}); 9000];
    let schema = Schema::new(json!({"properties": {"l": {"items": {"allOf": parts}}}}));
    let converted = |count: usize| {
        let args = json!({"l": vec!["y"; count]});
        let args = args.as_object().unwrap().clone();
        schema.convert(args, &Words::parse(&[])).unwrap()
    };
    // Not compiled yet, which is no work for a worker.
    assert!(!schema.is_cheap(&converted(0)));
    assert!(schema.faults().is_empty());
    assert!(schema.is_cheap(&converted(0)) && !schema.is_cheap(&converted(10)));
    assert!(schema.check(converted(10)).is_ok());
    let refused = schema.check(converted(190_000)).unwrap_err();
    assert!(refused.what.starts_with("too costly to check"));
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
