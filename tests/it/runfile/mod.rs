//! `handler = "runfile"`, `ati runfile`, and ati under the name `run`.

mod called_run;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::ati::{Proxy, Setup, ati, stderr, stdout, write};

/// As RFC 003 prints it, with a body where it only has a comment.
pub const SEED: &str = r#"# @desc Search the codebase for specific patterns
# @arg 1:pattern string The regex pattern to search for
# @shell python
search() {
    import sys, os, re
    pattern = sys.argv[1]
    # ... python logic to walk dir and json.dump results ...
    import json
    json.dump({"pattern": pattern, "files": sorted(os.listdir("."))}, sys.stdout)
    print("searching", file=sys.stderr)
}

# @desc Deploy the application
# @arg 1:env string The target environment (staging|prod)
deploy() {
    ./scripts/deploy.sh $1
}

# @desc Scale a specific service
# @arg 1:service string The name of the docker service (e.g., 'web')
# @arg 2:replicas integer The number of instances to spin up
scale() {
    docker compose scale $1=$2
}
"#;

fn add_program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that prints its words as a JSON list.
const WORDS: &str = "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n";

/// A project with this Runfile, `scripts/deploy.sh`, and a `docker` in `bin/`.
pub fn project(dir: &Path, runfile: &str) -> PathBuf {
    let project = dir.join("project");
    add_program(&project.join("scripts/deploy.sh"), WORDS);
    add_program(&dir.join("bin/docker"), WORDS);
    write(&project.join("Runfile"), runfile);
    project.canonicalize().unwrap()
}

pub fn search_path(dir: &Path) -> String {
    let own = std::env::var("PATH").unwrap();
    format!("{}:{own}", dir.join("bin").display())
}

fn with_runfile(runfile: &str, more: &str) -> Setup {
    let setup = Setup::new();
    let project = project(setup.path(), runfile);
    let manifest = format!(
        "[provider]\nname = 'proj'\nhandler = 'runfile'\nrunfile = '{}/Runfile'\n{more}",
        project.display()
    );
    let path = search_path(setup.path());
    setup.env("PATH", path).manifest("proj", &manifest)
}

fn rpc(proxy: &Proxy, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let headers = [("content-type", "application/json")];
    let answer = proxy
        .client()
        .send("POST", "/mcp", &headers, body.to_string().as_bytes());
    answer.json()["result"].clone()
}

fn result(proxy: &Proxy, tool: &str, args: Value) -> Value {
    let answer = proxy.call(None, tool, args);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["result"].clone()
}

#[test]
fn seeds_runfile_works_over_call_mcp_and_run() {
    let proxy = with_runfile(SEED, "").start();
    let found = json!({"pattern": "TODO", "files": ["Runfile", "scripts"]});
    let answer = proxy
        .call(None, "proj:search", json!({"pattern": "TODO"}))
        .json();
    assert_eq!(answer, json!({"result": found, "stderr": "searching"}));
    assert_eq!(
        result(&proxy, "proj:deploy", json!({"env": "staging"})),
        json!(["staging"])
    );
    let scaled = json!(["compose", "scale", "api=3"]);
    let args = json!({"service": "api", "replicas": 3});
    assert_eq!(result(&proxy, "proj:scale", args.clone()), scaled);
    let over_mcp = rpc(
        &proxy,
        "tools/call",
        json!({"name": "proj:scale", "arguments": args}),
    );
    assert_eq!(over_mcp["structuredContent"], json!({"result": scaled}));
    let search = json!({"name": "proj:search", "arguments": {"pattern": "TODO"}});
    let over_mcp = rpc(&proxy, "tools/call", search);
    assert_eq!(over_mcp["structuredContent"], found);
    assert_eq!(over_mcp["content"][1]["text"], "stderr:\nsearching");
    let tools = rpc(&proxy, "tools/list", json!({}));
    let mut scale = tools["tools"].as_array().unwrap().iter();
    let scale = scale.find(|tool| tool["name"] == "proj:scale").unwrap();
    let schema = &scale["inputSchema"];
    assert_eq!(schema["required"], json!(["service", "replicas"]));
    assert_eq!(schema["properties"]["replicas"]["type"], "integer");
    let mut here = crate::support::ati::command(&proxy.path(""));
    here.env("PATH", search_path(&proxy.path("")));
    let output = here.args(["run", "proj:scale", "--service", "web", "--replicas", "2"]);
    let output = output.output().unwrap();
    let printed: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(printed, json!(["compose", "scale", "web=2"]));
    for args in [
        json!({"service": "a"}),
        json!({"service": "a", "replicas": "x"}),
    ] {
        assert_eq!(proxy.call(None, "proj:scale", args).status, 422);
    }
}

/// Whatever a value is, the program that the function calls gets it as one word.
#[test]
fn hostile_values_arrive_as_they_are_or_are_refused() {
    let more = "\n# @desc a\nnamed(v) {\n    ./scripts/deploy.sh $v \"$v\" ${v}\n}\n\
        # @desc b\n# @shell node\nnode(v) console.log(JSON.stringify([v, process.argv[1]]))\n\
        # @desc c\nrest(...all) {\n    ./scripts/deploy.sh $all\n}\n\
        # @desc d\n# @shell sh\nposix(v) {\n    ./scripts/deploy.sh $v $1\n}\n";
    let proxy = with_runfile(&format!("{SEED}{more}"), "").start();
    for value in [
        "$(id)",
        "\"; id; \"",
        "`id`",
        "--flag",
        "a\nb",
        "a b  c",
        "*",
        "'",
        "\\",
        "$1",
        "-",
        "é",
    ] {
        let of = |tool: &str, name: &str| result(&proxy, tool, json!({name: value}));
        assert_eq!(of("proj:deploy", "env"), json!([value]), "{value:?}");
        assert_eq!(
            of("proj:named", "v"),
            json!([value, value, value]),
            "{value:?}"
        );
        assert_eq!(of("proj:node", "v"), json!([value, value]), "{value:?}");
        assert_eq!(of("proj:posix", "v"), json!([value, value]), "{value:?}");
        assert_eq!(of("proj:search", "pattern")["pattern"], value);
        let rest = result(&proxy, "proj:rest", json!({"all": [value, "b c"]}));
        assert_eq!(rest, json!([value, "b c"]), "{value:?}");
    }
    for (value, told) in [("a\0b".to_owned(), "NUL"), ("x".repeat(1 << 20), "128 KiB")] {
        for (tool, name) in [("proj:deploy", "env"), ("proj:search", "pattern")] {
            let refused = proxy.call(None, tool, json!({name: value}));
            assert_eq!(refused.status, 422);
            assert!(refused.text().contains(told), "{}", refused.text());
        }
    }
}

#[test]
fn value_that_a_shell_would_evaluate_is_refused() {
    let runfile = "# @desc adds\n# @arg 1:n string a number\nadd() {\n  echo $(( $1 + 1 ))\n}\n\n\
                   # @desc compares\nsame(n, m) {\n  local k=$n\n  [[ $k -eq 3 ]] && echo $m\n}\n";
    let setup = with_runfile(runfile, "");
    let path = setup.path().join("project/Runfile");
    let words = ["provider", "validate", &path.to_string_lossy()];
    let report: Value = serde_json::from_str(&stdout(&ati(setup.path(), &words))).unwrap();
    let warnings = report[0]["warnings"].to_string();
    for line in ["add: 'n' has to be an integer", "(line 3)", "(line 8)"] {
        assert!(warnings.contains(line), "{warnings}");
    }
    let proxy = setup.start();
    let mark = proxy.path("project/pwned");
    let hostile = format!("x[$(touch {})]", mark.display());
    for (tool, args) in [
        ("proj:add", json!({"n": hostile})),
        ("proj:same", json!({"n": hostile, "m": ""})),
    ] {
        let answer = proxy.call(None, tool, args);
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains("n: it has to be an integer"));
    }
    assert!(!mark.exists());
    assert_eq!(result(&proxy, "proj:add", json!({"n": "-4"})), json!(-3));
    let args = json!({"n": "3", "m": "a  b"});
    assert_eq!(result(&proxy, "proj:same", args), json!("a  b"));
}

#[test]
fn value_with_a_default_stays_one_word() {
    let runfile = "# @desc d\n# @arg 1:env? string e\ndeploy() ./scripts/deploy.sh ${1:-staging}\n\
                   # @desc c\ncut(env, tag = \"\") ./scripts/deploy.sh ${env%.} ${tag:+--tag $tag}\n";
    let proxy = with_runfile(runfile, "").start();
    let hostile = "a --force *";
    let args = json!({"env": hostile});
    assert_eq!(result(&proxy, "proj:deploy", args), json!([hostile]));
    assert_eq!(result(&proxy, "proj:deploy", json!({})), json!(["staging"]));
    let args = json!({"env": format!("{hostile}."), "tag": "b c"});
    assert_eq!(
        result(&proxy, "proj:cut", args),
        json!([hostile, "--tag", "b c"])
    );
    assert_eq!(result(&proxy, "proj:cut", json!({"env": ""})), json!([]));
}

#[test]
fn functions_call_each_other_and_see_assignments() {
    let runfile = "GREETING='hello there'\nsource ./more.run\n\
        helper() { printf '%s;' \"$@\"; }\n\
        # @desc top\n# @depends before\nns:top(name, n: int = 3, ...rest) {\n    \
        helper \"$GREETING\" $name $n $rest\n    py \"$name\"\n}\n\
        before() echo first\n# @shell python\npy(name) print('py', name)\n\
        # @desc d\n# @cd scripts\nin-folder() pwd\n\
        # @desc e\nfails() {\n    false\n    echo never\n}\n\
        # @desc f\n# @noerrexit\nlenient() {\n    false\n    echo reached\n}\n\
        # @desc g\n# @os windows\nother() echo\nhidden() echo\n";
    let setup = with_runfile(runfile, "");
    write(
        &setup.path().join("project/more.run"),
        "# @desc sourced\nfar() echo \"$__SOURCE_DIR__\"\n",
    );
    let project = setup.path().join("project").canonicalize().unwrap();
    let proxy = setup.start();
    let answer = result(
        &proxy,
        "proj:ns__top",
        json!({"name": "a b", "rest": ["x y", "*"]}),
    );
    assert_eq!(answer, json!("first\nhello there;a b;3;x y;*;py a b"));
    let folder = project.join("scripts");
    assert_eq!(result(&proxy, "proj:in-folder", json!({})), json!(folder));
    assert_eq!(result(&proxy, "proj:far", json!({})), json!(project));
    assert_eq!(result(&proxy, "proj:lenient", json!({})), json!("reached"));
    let failed = proxy.call(None, "proj:fails", json!({}));
    assert_eq!(failed.status, 502);
    assert!(!failed.text().contains("never"), "{}", failed.text());
    for absent in ["proj:other", "proj:hidden"] {
        assert_eq!(proxy.call(None, absent, json!({})).status, 404, "{absent}");
    }
}

#[test]
fn call_ends_with_its_time_and_is_audited() {
    let runfile = "# @desc waits\nwait_long() sleep 600\n";
    let proxy = with_runfile(runfile, "cli_timeout_secs = 300").start();
    let ended = proxy.call(None, "proj:wait_long", json!({"timeout": 1}));
    assert_eq!(ended.status, 502);
    assert!(
        ended.text().contains("timed out after 1s"),
        "{}",
        ended.text()
    );
    let lines = proxy.wait_for_audit(1);
    assert_eq!(lines[0]["tool"], "proj:wait_long");
    assert_eq!(lines[0]["args"], json!({"timeout": 1}));
}

#[test]
fn confined_function_reads_its_own_folder_and_no_other() {
    // Not below the ATI folder, which stays closed to every program.
    let outside = tempfile::tempdir().unwrap();
    let runfile = "# @desc a\nown() ls\n# @desc b\nother() cat ../secret.txt\n";
    let project = project(outside.path(), runfile);
    write(&outside.path().join("secret.txt"), "planted-secret");
    let manifest = format!(
        "[provider]\nname = 'proj'\nhandler = 'runfile'\nrunfile = '{}'\n\
         [provider.cli_sandbox]\nnet = false",
        project.display()
    );
    let setup = Setup::new().manifest("proj", &manifest);
    let proxy = setup.start();
    assert_eq!(
        result(&proxy, "proj:own", json!({})),
        json!("Runfile\nscripts")
    );
    let refused = proxy.call(None, "proj:other", json!({}));
    assert_eq!(refused.status, 502);
    assert!(
        refused.text().contains("ermission denied"),
        "{}",
        refused.text()
    );
}

#[test]
fn readonly_provider_offers_safe_functions_only() {
    let runfile = "# @desc a\n# @safe\nlook() echo looked\n# @desc b\nchange() echo\n";
    let proxy = with_runfile(runfile, "runfile_readonly = true").start();
    assert_eq!(result(&proxy, "proj:look", json!({})), json!("looked"));
    assert_eq!(proxy.call(None, "proj:change", json!({})).status, 404);
    let tools = rpc(&proxy, "tools/list", json!({}));
    let mut look = tools["tools"].as_array().unwrap().iter();
    let look = look.find(|tool| tool["name"] == "proj:look").unwrap();
    assert_eq!(look["annotations"]["readOnlyHint"], true);
}

#[test]
fn file_that_every_user_may_write_gives_no_tools() {
    let setup = with_runfile(SEED, "");
    let path = setup.path().join("project/Runfile");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let told = "every user may write it, so it isn't used";
    let output = ati(setup.path(), &["run", "proj:deploy", "--env", "x"]);
    assert!(
        stderr(&output).contains("Unknown tool"),
        "{}",
        stderr(&output)
    );
    let output = ati(
        setup.path(),
        &["provider", "validate", &path.to_string_lossy()],
    );
    assert!(stdout(&output).contains(told), "{}", stdout(&output));
    let output = ati(
        setup.path(),
        &["provider", "validate", "/nonexistent/x.toml"],
    );
    assert!(
        stdout(&output).contains("there is no such file"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn validator_and_check_name_the_lines() {
    let runfile = "# @desc a\n# @arg x:y z\na() b\n\n# @desc good\ngood() echo good\nc() {\n";
    let setup = with_runfile(runfile, "");
    let path = setup.path().join("project/Runfile");
    let output = ati(
        setup.path(),
        &["provider", "validate", &path.to_string_lossy()],
    );
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report[0]["kind"], "runfile");
    let problems = report[0]["problems"].to_string();
    for expected in [
        "Runfile: @arg is written '@arg 1:name [type] text' (line 2)",
        "Runfile: the body of 'c' has no closing brace (line 7)",
    ] {
        assert!(problems.contains(expected), "{problems}");
    }
    let output = ati(setup.path(), &["run", "proj:good"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).trim(), "\"good\"");
}
