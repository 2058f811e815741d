//! `ati runfile inspect`, `ati mcp serve --runfile`, and the same by a link with the name `run`.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{SEED, project, search_path};
use crate::mcp_server::serve::Served;
use crate::support::ati::{BINARY, ati, command, stderr, stdout, write};

/// ati under the name `run`, in this folder.
fn run(home: &Path, folder: &Path) -> Command {
    let link = home.join("bin/run");
    std::fs::create_dir_all(home.join("bin")).unwrap();
    if !link.exists() {
        std::os::unix::fs::symlink(BINARY, &link).unwrap();
    }
    let mut command = Command::new("run");
    command
        .current_dir(folder)
        .env_clear()
        .env("HOME", home)
        .env("PATH", search_path(home));
    command
}

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn inspect_prints_the_rfcs_schema_of_every_function() {
    let home = tempfile::tempdir().unwrap();
    let text = format!("{SEED}\n# @safe\nbare() echo\n");
    let project = project(home.path(), &text);
    let by_path = ati(
        home.path(),
        &["runfile", "inspect", &project.to_string_lossy()],
    );
    assert!(by_path.status.success(), "{}", stderr(&by_path));
    let shown: Value = serde_json::from_str(&stdout(&by_path)).unwrap();
    assert_eq!(names(&shown), ["search", "deploy", "scale", "bare"]);
    assert_eq!(
        shown["tools"][2],
        json!({
            "name": "scale",
            "description": "Scale a specific service",
            "input_schema": {
                "type": "object",
                "properties": {
                    "service": {
                        "type": "string",
                        "description": "The name of the docker service (e.g., 'web')",
                    },
                    "replicas": {
                        "type": "integer",
                        "description": "The number of instances to spin up",
                    },
                },
                "required": ["service", "replicas"],
            },
        })
    );
    // The nearest one above, with the user's own.
    write(
        &home.path().join(".runfile"),
        "# @desc mine\nmine() echo\ndeploy() echo other\n",
    );
    let output = run(home.path(), &project.join("scripts"))
        .arg("--inspect")
        .output()
        .unwrap();
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(names(&shown), ["mine", "deploy", "search", "scale", "bare"]);
    let safe = run(home.path(), &project)
        .args(["--inspect", "--readonly"])
        .output()
        .unwrap();
    assert_eq!(
        names(&serde_json::from_str(&stdout(&safe)).unwrap()),
        ["bare"]
    );
    assert!(
        !home.path().join(".ati").exists(),
        "inspecting writes nothing"
    );
}

#[test]
fn mistakes_are_told_with_exit_code_2() {
    let home = tempfile::tempdir().unwrap();
    for args in [&["deploy"][..], &[], &["--serve-mcp", "--inspect"]] {
        let output = run(home.path(), home.path()).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            stderr(&output).contains("Usage: run"),
            "{}",
            stderr(&output)
        );
    }
    for option in ["--inspect", "--serve-mcp"] {
        let output = run(home.path(), home.path()).arg(option).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(
            stderr(&output).contains("no Runfile in"),
            "{}",
            stderr(&output)
        );
    }
    let output = run(home.path(), home.path())
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success() && stdout(&output).contains("--serve-mcp"));
}

/// The seed's claude_desktop_config.json: `run --serve-mcp` in the project's folder.
#[test]
fn seeds_desktop_configuration_starts_a_server() {
    let home = tempfile::tempdir().unwrap();
    let text = format!("# @instructions Ask first.\n{SEED}bare() echo\n");
    let project = project(home.path(), &text);
    let mut served = Served::start(run(home.path(), &project).arg("--serve-mcp"));
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "desktop", "version": "1"}});
    let hello = served.ask("initialize", hello);
    assert_eq!(hello["result"]["instructions"], "Ask first.");
    let listed = served.ask("tools/list", json!({}));
    assert_eq!(names(&listed["result"]), ["deploy", "scale", "search"]);
    let answer = served.call("deploy", json!({"env": "$(id) *"}));
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({"result": ["$(id) *"]})
    );
    let answer = served.call("search", json!({"pattern": "TODO"}));
    assert_eq!(answer["result"]["structuredContent"]["pattern"], "TODO");
    let wrong = served.call("scale", json!({"service": "a"}));
    assert_eq!(wrong["result"]["isError"], true);
    // A Runfile that changes is read again, and the client is told.
    write(
        &project.join("Runfile"),
        "# @desc new\nfresh() echo fresh\n",
    );
    served.notification("notifications/tools/list_changed");
    let listed = served.ask("tools/list", json!({}));
    assert_eq!(names(&listed["result"]), ["fresh"]);
    assert_eq!(served.end(), Some(0));
}

#[test]
fn serve_takes_a_path_and_offers_safe_functions_alone_where_asked() {
    let home = tempfile::tempdir().unwrap();
    let runfile = "# @desc a\n# @safe\nlook() echo looked\n# @desc b\nchange() echo changed\n";
    let project = project(home.path(), runfile);
    // The manifests of the machine are no part of it.
    let manifest =
        "[provider]\nname = 'x'\nbase_url = 'http://127.0.0.1:1'\n[[tools]]\nname = 'x'\n";
    write(&home.path().join("manifests/x.toml"), manifest);
    let path = project.join("Runfile");
    let mut serve = command(home.path());
    serve
        .args(["mcp", "serve", "--readonly", "--runfile"])
        .arg(&path);
    // With a proxy configured, too.
    serve.env("ATI_PROXY_URL", "http://127.0.0.1:1");
    let mut served = Served::start(&mut serve);
    let listed = served.ask("tools/list", json!({}));
    assert_eq!(names(&listed["result"]), ["look"]);
    let refused = served.call("change", json!({}));
    assert!(refused["error"].is_object(), "{refused}");
    let answer = served.call("look", json!({}));
    assert_eq!(answer["result"]["content"][0]["text"], "looked");
}
