//! Every form in which the words of a program can be given.

use serde_json::{Value, json};

use super::{call, here, printed, setup, through, with_words};

#[test]
fn every_form_of_arguments_becomes_words() {
    let proxy = with_words(setup()).start();
    let words = |body: Value| {
        let mut body = body;
        body["tool_name"] = json!("words");
        let answer = call(&proxy, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["result"].clone()
    };
    for (body, expected) in [
        (json!({"raw_args": ["a", "b c"], "args": ["x"]}), "a|b c|"),
        (json!({"raw_args": [], "args": ["x"]}), "x|"),
        (
            json!({"args": ["a", 5, true, null, {"k": [1]}]}),
            "a|5|true|null|{\"k\":[1]}|",
        ),
        (json!({"args": " a  b\tc "}), "a|b|c|"),
        (json!({"args": {"_positional": ["a", 2], "q": 1}}), "a|2|"),
        (
            json!({"args": {"state": "open now", "limit": 5, "draft": true, "no": false, "z": null}}),
            "--state|open now|--limit|5|--draft|",
        ),
    ] {
        assert_eq!(words(body.clone()), expected, "{body}");
    }
    // Without words the format alone is written.
    for body in [
        json!({}),
        json!({"args": {}}),
        json!({"args": null}),
        json!({"args": 5}),
    ] {
        assert_eq!(words(body.clone()), "|", "{body}");
    }
}

#[test]
fn word_arrives_as_it_is_whatever_stands_in_it() {
    let setup = with_words(setup());
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    for word in [
        "$(id)",
        "\"; id; \"",
        "`id`",
        "--flag",
        "--output",
        "-J",
        "a\nb",
        "a b  c",
        "$HOME ${PATH} ~ * ?",
        "ü\u{1f600}",
        "\\n %s",
        "'",
        "--",
    ] {
        let expected = format!("x|{word}|");
        let values = [
            json!({"raw_args": ["x", word]}),
            json!({"args": ["x", word]}),
            json!({"args": {"_positional": ["x", word]}}),
        ];
        for mut body in values {
            body["tool_name"] = json!("words");
            assert_eq!(call(&proxy, &body).json()["result"], expected, "{word:?}");
        }
        let object = json!({"tool_name": "words", "args": {"k": word}});
        let answer = call(&proxy, &object).json();
        assert_eq!(answer["result"], format!("--k|{word}|"), "{word:?}");
        for mut command in [here(&dir), through(&proxy)] {
            let result = printed(command.args(["run", "words", "x", word]));
            assert_eq!(result, expected, "{word:?}");
        }
    }
}

#[test]
fn words_that_no_program_can_get_are_refused_with_the_limit() {
    let proxy = with_words(setup()).start();
    let refused = |body: Value| {
        let answer = call(&proxy, &body);
        assert_eq!(answer.status, 422, "{}", answer.text());
        answer.json()["error"].as_str().unwrap().to_owned()
    };
    let nul = refused(json!({"tool_name": "words", "args": ["a", "b\u{0}c"]}));
    assert!(
        nul.starts_with("Invalid arguments: word 2: it has a NUL byte"),
        "{nul}"
    );
    let long = refused(json!({"tool_name": "words", "args": ["x".repeat(1 << 20)]}));
    assert!(
        long.contains("has 1048576 bytes") && long.contains("128 KiB"),
        "{long}"
    );
    let many = refused(json!({"tool_name": "words", "args": vec!["x".repeat(1000); 10_000]}));
    assert!(many.contains("ARG_MAX"), "{many}");
    let just = "x".repeat((128 << 10) - 1);
    let answer = call(&proxy, &json!({"tool_name": "words", "args": [just]}));
    assert_eq!(answer.json()["result"], format!("{just}|"));
}

#[test]
fn hundred_thousand_words_arrive() {
    let proxy = with_words(setup()).start();
    let words: Vec<String> = (0..100_000).map(|n| (n % 10).to_string()).collect();
    let expected: String = words.iter().map(|word| format!("{word}|")).collect();
    for name in ["args", "raw_args"] {
        let answer = call(&proxy, &json!({"tool_name": "words", name: words}));
        assert_eq!(answer.status, 200, "{}", &answer.text()[..200]);
        assert!(answer.json()["result"] == expected, "{name}");
    }
}

#[test]
fn args_file_gives_the_words_of_a_program_without_others() {
    let setup = with_words(setup());
    let dir = setup.path().to_owned();
    let proxy = setup.start();
    let file = dir.join("args.json");
    std::fs::write(&file, r#"{"state": "open", "limit": 1.10}"#).unwrap();
    let file = file.to_str().unwrap();
    for mut command in [here(&dir), through(&proxy)] {
        let result = printed(command.args(["run", "--args-file", file, "words"]));
        assert_eq!(result, "--state|open|--limit|1.10|");
    }
    for mut command in [here(&dir), through(&proxy)] {
        let (output, text) =
            super::failed(command.args(["run", "--args-file", file, "words", "x"]));
        assert_eq!(output.status.code(), Some(2));
        assert!(text.contains("not from both"), "{text}");
    }
}
