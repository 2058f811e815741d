//! `ati run` of a program that writes files, here and through the proxy.

use serde_json::{Value, json};

use super::{MANIFEST, World};
use crate::support::ati::{Setup, stderr, stdout, write};
use crate::support::eventually;

#[test]
fn file_by_position_flag_and_equals_sign_is_written_for_the_caller() {
    let world = World::new();
    for is_remote in [false, true] {
        for (words, path) in [
            (&["browse", "screenshot", "PATH"][..], "$3"),
            (&["shot", "PATH", "more"], "$2"),
            (&["save", "--output", "PATH"], "$3"),
            (&["save", "-O", "PATH", "-v"], "$3"),
            (&["save", "-v", "--Output=PATH"], "${3#*=}"),
        ] {
            let name = format!(
                "new folder/{is_remote}/{}.png",
                words.len() + words[0].len()
            );
            let script = format!(r#"printf 'a\000b' > "{path}"; echo " saved {path} ""#);
            let words: Vec<String> = words.iter().map(|w| w.replace("PATH", &name)).collect();
            let mut all = vec![format!("--do={script}")];
            all.extend(words);
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let _ = std::fs::remove_file(world.at(&name));
            let output = world.run(is_remote, &all);
            assert!(output.status.success(), "{all:?}: {}", stderr(&output));
            assert_eq!(stderr(&output), "");
            let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
            let told = json!({
                "stdout": format!("saved {name}"),
                "outputs": {
                    &name: {"size_bytes": 3, "content_type": "image/png", "path": name},
                },
            });
            assert_eq!(result, told);
            assert_eq!(world.read(&name), b"a\0b");
        }
    }
    world.assert_nothing_left();
}

fn failure(output: &std::process::Output) -> String {
    assert!(!output.status.success() && output.stdout.is_empty());
    let text = stderr(output);
    let line = text.lines().last().unwrap();
    let told: Value = serde_json::from_str(line).unwrap();
    told["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn several_files_of_one_call_are_all_written() {
    let world = World::new();
    let script = "--do=echo one > $2; echo two > ${3#*=}; echo three > $5";
    for is_remote in [false, true] {
        let words = ["shot", "1.txt", "-o=2", "-o", "3.pdf", "--output=1.txt"];
        let words = [&[script][..], &words].concat();
        let output = world.run(is_remote, &words);
        assert!(output.status.success(), "{}", stderr(&output));
        let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
        let types: Vec<&Value> = ["1.txt", "2", "3.pdf"]
            .iter()
            .map(|name| &result["outputs"][name]["content_type"])
            .collect();
        let expected = ["text/plain", "application/octet-stream", "application/pdf"];
        assert_eq!(types, expected);
        assert_eq!(result["outputs"].as_object().unwrap().len(), 3);
        for (name, content) in [("1.txt", "one\n"), ("2", "two\n"), ("3.pdf", "three\n")] {
            assert_eq!(world.read(name), content.as_bytes());
            std::fs::remove_file(world.at(name)).unwrap();
        }
    }
    world.assert_nothing_left();
}

#[test]
fn file_that_is_missing_or_too_big_is_the_documented_error() {
    let limit = [("ATI_CLI_MAX_OUTPUT_BYTES", "10")];
    let world = World::with(&limit);
    let missing = "Captured output 'x.png' was not produced by the CLI";
    let too_big = "Captured output 'x.png' exceeds ATI_CLI_MAX_OUTPUT_BYTES (10 bytes)";
    for (script, message) in [
        ("--do=true", missing),
        ("--do=printf 01234567890 > $2", too_big),
    ] {
        let words = [script, "shot", "x.png"];
        let (status, answer) = world.post(&words);
        let error = format!("CLI error: {message}");
        assert_eq!(
            (status, answer),
            (502, json!({"result": null, "error": error}))
        );
        let remote = failure(&world.run(true, &words));
        assert_eq!(remote, format!("Proxy error (502): {error}"));
        let here = world
            .command()
            .envs(limit)
            .args(["run", "bb"])
            .args(words)
            .output();
        assert_eq!(failure(&here.unwrap()), error);
        assert!(!world.at("x.png").exists());
    }
    let (status, _) = world.post(&["--do=printf 0123456789 > $2", "shot", "x.png"]);
    assert_eq!(status, 200);
    // A program that goes on writing is ended.
    let endless = "--do=while :; do printf 0123456789 >> $2; done";
    let (_, answer) = world.post(&[endless, "shot", "x.png"]);
    assert_eq!(answer["error"], format!("CLI error: {too_big}"));
    let audit = world.proxy.dir.path().join("audit.jsonl");
    let expected = "CLI error: Captured output exceeds ATI_CLI_MAX_OUTPUT_BYTES (10 bytes)";
    eventually("the audit line", || {
        let lines = std::fs::read_to_string(&audit).unwrap();
        let last: Value = serde_json::from_str(lines.lines().last()?).ok()?;
        (last["error"] == expected).then_some(())
    });
    world.assert_nothing_left();
}

#[test]
fn output_and_files_of_one_call_have_limits_together() {
    let world = World::with(&[("ATI_CLI_MAX_OUTPUT_BYTES", "10")]);
    let write = "--do=for f in ${1#-o} ${2#-o} ${3#-o}; do printf 0123456789 > $f; done";
    let (status, _) = world.post(&[write, "-oa", "-ob"]);
    assert_eq!(status, 200);
    let (status, answer) = world.post(&[write, "-oa", "-ob", "-oc"]);
    let error = "CLI error: Captured outputs exceed twice ATI_CLI_MAX_OUTPUT_BYTES together \
                 (20 bytes)";
    assert_eq!((status, &answer["error"]), (502, &json!(error)));
    // All of it would be in the memory of the proxy, six times as long as JSON.
    let print = |bytes: u64| format!("--do=echo > $2; head -c {bytes} /dev/zero");
    let (status, answer) = world.post(&[&print(1 << 20), "-o", "a"]);
    let text = answer["result"]["stdout"].as_str().unwrap();
    assert_eq!((status, text.len()), (200, 1 << 20));
    let (status, answer) = world.post(&[&print((1 << 20) + 1), "-o", "a"]);
    let error = "CLI error: CLI wrote more than 1048576 bytes to its output";
    assert_eq!((status, &answer["error"]), (502, &json!(error)));
    world.assert_nothing_left();
}

#[test]
fn path_glued_to_its_flag_is_the_callers() {
    let world = World::new();
    let path = world.at("x.txt");
    let word = format!("-o{}", path.display());
    for is_remote in [true, false] {
        let done = world.run(is_remote, &["--do=echo x > ${1#-o}; echo ${1#-o}", &word]);
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(result["stdout"], path.to_str().unwrap(), "{is_remote}");
        assert_eq!(world.read("x.txt"), b"x\n");
        std::fs::remove_file(&path).unwrap();
    }
    world.assert_nothing_left();
}

#[test]
fn limit_that_is_no_number_stops_the_start() {
    for dir in [None, Some(tempfile::tempdir().unwrap())] {
        let output = match &dir {
            None => Setup::new().env("ATI_CLI_MAX_OUTPUT_BYTES", "5MB").output(),
            Some(dir) => crate::support::ati::command(dir.path())
                .env("ATI_CLI_MAX_OUTPUT_BYTES", "5MB")
                .args(["run", "x"])
                .output()
                .unwrap(),
        };
        assert!(!output.status.success());
        let told = stderr(&output);
        assert!(told.contains("ATI_CLI_MAX_OUTPUT_BYTES"), "{told}");
        assert!(told.contains("expected a number of bytes"), "{told}");
    }
}

#[test]
fn call_that_captures_nothing_keeps_its_flat_result() {
    let world = World::new();
    let script = r#"--do=echo '{"a": 1}'"#;
    for words in [&[script][..], &[script, "list", "x.png"], &[script, "-o"]] {
        let (status, answer) = world.post(words);
        assert_eq!((status, answer), (200, json!({"result": {"a": 1}})));
        let output = world.run(false, words);
        assert_eq!(stdout(&output), "{\n  \"a\": 1\n}\n");
    }
    // By an old convention that is standard output.
    let (_, answer) = world.post(&["--do=echo $2 $3", "shot", "-o", "-"]);
    assert_eq!(answer["result"], "-o -");
}

#[test]
fn confined_program_can_write_its_file_and_nothing_else() {
    let world = World::new();
    let confined = format!("{MANIFEST}\n[provider.cli_sandbox]\nnet = false\n");
    write(&world.caller.path().join("manifests/bb.toml"), &confined);
    let outside = world.at("outside");
    let script = format!("--do=echo x > {}; echo good > $2", outside.display());
    let output = world.run(false, &[&script, "shot", "x.txt"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(world.read("x.txt"), b"good\n");
    assert!(!outside.exists());
}

#[test]
fn other_callers_get_the_files_in_the_answer() {
    let world = World::new();
    let (status, answer) = world.post(&["--do=printf abc > $2", "shot", "/a/b.json"]);
    assert_eq!(status, 200);
    let expected = json!({"result": {"stdout": "", "outputs": {"/a/b.json": {
        "content_base64": "YWJj", "size_bytes": 3, "content_type": "application/json",
    }}}});
    assert_eq!(answer, expected);
}

#[test]
fn credential_in_a_file_is_redacted() {
    let world = World::new();
    let words = [
        "--do=echo \"key $TOKEN\" > $2; echo $TOKEN",
        "shot",
        "log.txt",
    ];
    for is_remote in [false, true] {
        let output = world.run(is_remote, &words);
        let result: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(result["stdout"], "[REDACTED]");
        assert_eq!(result["outputs"]["log.txt"]["size_bytes"], 15);
        assert_eq!(world.read("log.txt"), b"key [REDACTED]\n");
    }
    world.assert_nothing_left();
}

#[test]
fn file_is_replaced_whole_and_kept_where_the_call_fails() {
    let world = World::new();
    std::fs::write(world.at("x.txt"), "old").unwrap();
    std::fs::create_dir(world.at("folder")).unwrap();
    for is_remote in [false, true] {
        let failed = world.run(is_remote, &["--do=echo half > $2; exit 3", "shot", "x.txt"]);
        assert!(failure(&failed).contains("CLI exited with code 3"));
        assert_eq!(world.read("x.txt"), b"old");
        let folder = failure(&world.run(is_remote, &["--do=echo x > $2", "shot", "folder"]));
        let expected = "'folder' can't be written: there is a folder of that name";
        assert_eq!(folder, expected);
    }
    for is_remote in [false, true] {
        let content = format!("new {is_remote}");
        let script = format!("--do=printf '{content}' > $2");
        assert!(
            world
                .run(is_remote, &[&script, "shot", "x.txt"])
                .status
                .success()
        );
        assert_eq!(world.read("x.txt"), content.as_bytes());
    }
    world.assert_nothing_left();
}

#[test]
fn path_in_the_messages_of_a_program_is_the_callers() {
    let world = World::new();
    let script = "--do=echo \"can't save $2\" >&2; exit 1";
    let (_, answer) = world.post(&[script, "shot", "my file.png"]);
    let expected = "CLI error: CLI exited with code 1: can't save my file.png";
    assert_eq!(answer["error"], expected);
}
