//! The files in deploy/ agree with the binary. `tests/deploy/run` tries them with systemd,
//! Prometheus and the other programs that they are for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::ati::{Setup, ati, stderr, stdout, write};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::upstream::Upstream;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = deploy().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(deploy().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let found: Vec<PathBuf> = paths
        .filter(|path| path.to_str().unwrap().ends_with(ending))
        .collect();
    assert!(!found.is_empty(), "nothing in {folder}");
    found
}

/// Words of a text that look like metrics of ati, those of its process included.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("ati_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// The metrics that a proxy reports, and those that the reference page lists.
fn known_metrics() -> BTreeSet<String> {
    let upstream = Upstream::echo();
    let proxy = Setup::new()
        .route("svc", &upstream.url(), "path_prefix = '/svc'")
        .start();
    proxy.client().get("/svc/x");
    proxy.client().get("/nothing");
    proxy.settles(r#"ati_refusals_total{reason="not_found"}"#, 1.0);
    proxy.settles(r#"ati_request_duration_seconds_count{route="svc"}"#, 1.0);
    let reported = Client::connect(proxy.admin).get("/metrics").text();
    let mut known: BTreeSet<String> = reported
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next().map(str::to_owned))
        .collect();
    assert!(known.contains("ati_request_duration_seconds_bucket"));
    for line in read("../docs/reference/metrics.md").lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let Some(name) = cells.next().and_then(|cell| cell.strip_prefix("`ati_")) else {
            continue;
        };
        let name = format!("ati_{}", name.trim_end_matches('`'));
        if cells.next() == Some("histogram") {
            known.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        } else {
            known.insert(name);
        }
    }
    known
}

#[test]
fn alerts_and_dashboard_use_only_metrics_that_exist() {
    let known = known_metrics();
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboard.json")).unwrap();
    let mut expressions = String::new();
    collect(&dashboard, &mut expressions);
    let shown = metrics_in(&expressions);
    for (place, text) in [
        ("dashboard.json", expressions.as_str()),
        ("rules.yml", &read("prometheus/rules.yml")),
        ("rules_test.yml", &read("prometheus/rules_test.yml")),
    ] {
        let used = metrics_in(text);
        assert!(used.len() > 5, "{place} uses {used:?}");
        let unknown: Vec<_> = used.difference(&known).collect();
        assert!(unknown.is_empty(), "{place}: {unknown:?}");
    }
    // The other way round: the dashboard shows every metric.
    for name in &known {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        let seen = shown.iter().any(|shown| shown.starts_with(base));
        assert!(seen, "the dashboard doesn't show {name}");
    }
}

/// The texts under `expr` and `query`.
fn collect(value: &Value, into: &mut String) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "expr" || key == "query" => {
                        into.push_str(text);
                        into.push('\n');
                    }
                    other => collect(other, into),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        _ => {}
    }
}

#[test]
fn every_alert_has_a_test() {
    let tests = read("prometheus/rules_test.yml");
    for line in read("prometheus/rules.yml").lines() {
        if let Some(name) = line.trim().strip_prefix("- alert: ") {
            let wanted = format!("alertname: {name}\n");
            assert!(tests.contains(&wanted), "{name}");
        }
    }
}

#[test]
fn deployed_manifests_load_without_warnings() {
    let dir = tempfile::tempdir().unwrap();
    let names = [
        "openai_api_key",
        "anthropic_api_key",
        "browserbase_api_key",
        "otlp_credentials",
        "sandbox_signing_shared_secret",
    ];
    let keys: serde_json::Map<String, Value> = names
        .map(|name| (name.to_owned(), "a:b".into()))
        .into_iter()
        .collect();
    write(
        &dir.path().join("credentials"),
        Value::Object(keys).to_string(),
    );
    let manifests = files("manifests", ".toml");
    for path in &manifests {
        let copy = dir.path().join("manifests").join(path.file_name().unwrap());
        write(&copy, std::fs::read(path).unwrap());
    }
    let output = ati(dir.path(), &["check", "--strict", "--enable-passthrough"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(output.status.success(), "{report}");
    // Mode log is where a roll-out begins: a warning, which isn't a failure.
    let warnings = report["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{report}");
    let message = warnings[0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("signature mode 'log' refuses no request"),
        "{message}"
    );
    assert_eq!(report["loaded"]["routes"], manifests.len());
    // Each of these keys is used by a manifest.
    for name in &names[..4] {
        let used = manifests
            .iter()
            .any(|path| std::fs::read_to_string(path).unwrap().contains(name));
        assert!(used, "{name}");
    }
}

#[test]
fn deployed_conf_loads_without_warnings() {
    let dir = tempfile::tempdir().unwrap();
    write(
        &dir.path().join("credentials"),
        json!({"sandbox_signing_shared_secret": "x"}).to_string(),
    );
    let conf = deploy().join("ati.toml");
    let args = ["check", "--strict", "--conf", conf.to_str().unwrap()];
    let output = ati(dir.path(), &args);
    let said = stdout(&output) + &stderr(&output);
    assert!(output.status.success(), "{said}");
}

/// The `ati` command lines in a unit or a Dockerfile, without the program's name.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let words: Vec<String> = if let Some(list) = line.strip_prefix("CMD [") {
            let list = format!("[{list}");
            serde_json::from_str(&list).unwrap()
        } else if let Some(command) = line.strip_prefix("ExecStart=/usr/local/bin/ati ") {
            command.split_whitespace().map(str::to_owned).collect()
        } else {
            continue;
        };
        found.push(words);
    }
    found
}

#[test]
fn units_and_image_use_only_flags_that_exist() {
    let dir = tempfile::tempdir().unwrap();
    let mut checked = 0;
    let mut places = files("systemd", ".service");
    places.push(deploy().join("Dockerfile"));
    for path in places {
        for words in commands(&std::fs::read_to_string(&path).unwrap()) {
            let names = words.iter().take_while(|word| !word.starts_with('-'));
            let mut args: Vec<&str> = names.map(String::as_str).collect();
            args.push("--help");
            let output = ati(dir.path(), &args);
            assert!(
                output.status.success(),
                "{}: {}",
                path.display(),
                stderr(&output)
            );
            let help = stdout(&output);
            for flag in words.iter().filter(|word| word.starts_with("--")) {
                let known = help
                    .split_whitespace()
                    .any(|word| word.trim_end_matches(',') == flag);
                assert!(
                    known,
                    "{}: ati {} has no {flag}",
                    path.display(),
                    args.join(" ")
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 10, "only {checked} flags found");
}

/// systemd kills at its timeout, which must not cut a drain short.
#[test]
fn systemd_stop_timeout_exceeds_the_drain() {
    let conf: toml::Table = read("ati.toml").parse().unwrap();
    let drain = conf["server"]["drain_seconds"].as_integer().unwrap();
    for unit in ["systemd/ati.service", "systemd/ati@.service"] {
        let text = read(unit);
        let seconds = text
            .lines()
            .find_map(|line| line.strip_prefix("TimeoutStopSec="));
        let seconds: i64 = seconds.unwrap().parse().unwrap();
        assert!(seconds > drain, "{unit}: {seconds}");
    }
}

/// The service goes on when one of its processes ends: a server process that the OOM killer ended,
/// or a predecessor or successor during a hand-over.
#[test]
fn units_restart_always_and_survive_a_child_killed_for_memory() {
    for unit in ["systemd/ati.service", "systemd/ati@.service"] {
        let text = read(unit);
        for line in ["Restart=always", "OOMPolicy=continue"] {
            assert!(text.lines().any(|found| found == line), "{unit}: {line}");
        }
    }
}

/// The script in ExecStop, run here with processes and a cgroup file made by the test.
#[test]
fn unit_stop_waits_for_draining_predecessors() {
    let dir = tempfile::tempdir().unwrap();
    let text = read("systemd/ati.service");
    let script = text
        .lines()
        .find_map(|line| {
            line.strip_prefix("ExecStop=+/bin/sh -c '")?
                .strip_suffix('\'')
        })
        .unwrap();
    let group = dir.path().join("cgroup.procs");
    let given = r#""/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/cgroup.procs""#;
    assert!(script.contains(given), "{script}");
    let script = script.replace(given, group.to_str().unwrap());
    let ours = |name: &str| {
        let program = dir.path().join(name);
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        Command::new(program).arg("300").spawn().unwrap()
    };
    let (mut main, mut former, mut other) = (ours("main"), ours("ati"), ours("other"));
    write(
        &group,
        format!("{}\n{}\n{}\n", main.id(), former.id(), other.id()),
    );
    let mut stop = Command::new("/bin/sh")
        .args(["-c", &script])
        .env("MAINPID", main.id().to_string())
        .spawn()
        .unwrap();
    main.wait().unwrap();
    assert!(stop.try_wait().unwrap().is_none());
    former.kill().unwrap();
    former.wait().unwrap();
    let status = eventually("the stop", || stop.try_wait().unwrap());
    assert!(status.success());
    other.kill().unwrap();
    other.wait().unwrap();
}

/// The unit for one edge and the one for several differ in paths and nothing else.
#[test]
fn units_for_one_and_for_several_edges_differ_only_in_paths() {
    let one = read("systemd/ati.service");
    let several = read("systemd/ati@.service");
    let alike = several
        .replace("/etc/ati/%i.", "/etc/ati/ati.")
        .replace(" ATI_KEY_FILE=/run/ati-%i/.key", "")
        .replace("ati-%i", "ati");
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| !line.starts_with("Description="));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&one), lines(&alike));
}
