//! The stock research workflow of the documentation, as it is written there.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::llm::Llm;
use super::{answer, code, llm_manifest, manifest, run};
use crate::support::ati::{command, stderr, stdout, tells_nothing, write};
use crate::support::upstream::Upstream;

fn finnhub() -> Upstream {
    let spec = include_str!("../../../manifests/specs/finnhub.json");
    Upstream::answering(move |received, stream| {
        let url = format!("http://{}", stream.local_addr().unwrap());
        let path = received.target.split('?').next().unwrap();
        let body = match path {
            "/api/v1/openapi.json" => {
                let mut spec: Value = serde_json::from_str(spec).unwrap();
                spec["servers"] = json!([{"url": format!("{url}/api/v1")}]);
                spec
            }
            "/api/v1/quote" => json!({"c": 262.52, "d": -1.23, "pc": 263.75}),
            "/api/v1/stock/insider-transactions" => {
                json!({"symbol": "AAPL", "data": [{"name": "COOK TIMOTHY D", "change": -59751}]})
            }
            "/api/v1/news-sentiment" => json!({"symbol": "AAPL", "companyNewsScore": 0.92}),
            other => panic!("{other}"),
        }
        .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).is_ok()
    })
}

/// The chain of the page, as a script.
fn chain(dir: &Path) -> Output {
    let script = "set -eu\nSYMBOL=\"${1:-AAPL}\"\n\
        quote=$(ati --output json run finnhub:quote --symbol \"$SYMBOL\")\n\
        insider=$(ati --output json run finnhub:insider-transactions --symbol \"$SYMBOL\" \
        --from 2025-01-01 --to 2025-12-31)\n\
        sentiment=$(ati --output json run finnhub:news-sentiment --symbol \"$SYMBOL\")\n\
        printf '[%s,%s,%s]' \"$quote\" \"$insider\" \"$sentiment\"\n";
    let path = dir.join("chain.sh");
    write(&path, script);
    let binary = Path::new(crate::support::ati::BINARY);
    let search = std::env::var("PATH").unwrap_or_default();
    Command::new("sh")
        .arg(&path)
        .env_clear()
        .env(
            "PATH",
            format!("{}:{search}", binary.parent().unwrap().display()),
        )
        .env("ATI_DIR", dir)
        .env("HOME", dir)
        .output()
        .unwrap()
}

#[test]
fn stock_research_from_import_to_results() {
    let upstream = finnhub();
    let llm = Llm::saying(
        "```bash\nati run finnhub:quote --symbol AAPL\n\
         ati run finnhub:insider-transactions --symbol AAPL\n\
         ati run finnhub:news-sentiment --symbol AAPL\n```",
    );
    let dir = tempfile::tempdir().unwrap();
    let ok = |args: &[&str]| {
        let output = run(&mut command(dir.path()), args);
        assert_eq!(code(&output), Some(0), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    ok(&["init"]);
    let spec = format!("{}/api/v1/openapi.json", upstream.url());
    let preview = ok(&[
        "provider",
        "import-openapi",
        &spec,
        "--name",
        "finnhub",
        "--dry-run",
    ]);
    assert!(preview.contains("finnhub_api_key"), "{preview}");
    ok(&["provider", "import-openapi", &spec, "--name", "finnhub"]);
    assert!(ok(&["provider", "info", "finnhub"]).contains("openapi"));
    assert!(ok(&["tool", "list", "--provider", "finnhub"]).contains("finnhub:quote"));
    let file = dir.path().join("specs/finnhub.json");
    ok(&["provider", "inspect-openapi", file.to_str().unwrap()]);
    ok(&["key", "set", "finnhub_api_key", "planted-finnhub"]);
    assert!(!ok(&["key", "list"]).contains("planted-finnhub"));

    manifest(dir.path(), "_llm", &llm_manifest(&llm.url()));
    let mut assisting = command(dir.path());
    assisting.env("CEREBRAS_API_KEY", "planted-c");
    let question = "research Apple stock — price, insider activity, and sentiment";
    let output = run(&mut assisting, &["assist", "finnhub", question]);
    let found = answer(&output);
    let content = found["content"].as_str().unwrap();
    for (n, name) in ["quote", "insider-transactions", "news-sentiment"]
        .iter()
        .enumerate()
    {
        let line = format!("ati run finnhub:{name} --symbol AAPL");
        assert_eq!(content.lines().nth(n + 1), Some(line.as_str()));
    }
    assert!(llm.prompt().contains("finnhub:insider-transactions"));
    tells_nothing("the prompt", &llm.prompt());

    let output = chain(dir.path());
    let results: Value = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|e| panic!("{e}: {}", stderr(&output)));
    assert_eq!(results[0]["c"], 262.52);
    assert_eq!(results[1]["data"][0]["name"], "COOK TIMOTHY D");
    assert_eq!(results[2]["companyNewsScore"], 0.92);
    assert!(upstream.saw(|one| one.target.contains("symbol=AAPL&token=planted-finnhub")));
    assert_eq!(
        run(
            &mut command(dir.path()),
            &["run", "finnhub_quote", "--symbol", "AAPL"]
        )
        .status
        .code(),
        Some(0)
    );

    // And as a plan.
    let plan = json!({"steps": [
        {"tool": "finnhub:quote", "args": {"symbol": "AAPL"}},
        {"tool": "finnhub:insider-transactions", "args": {"symbol": "AAPL"}},
        {"tool": "finnhub:news-sentiment", "args": {"symbol": "{{steps.2.symbol}}"}},
    ]});
    let planner = Llm::saying(&plan.to_string());
    manifest(dir.path(), "_llm", &llm_manifest(&planner.url()));
    let file = dir.path().join("workflow.json");
    let mut saving = command(dir.path());
    saving.env("CEREBRAS_API_KEY", "planted-c");
    let file = file.to_str().unwrap();
    let output = run(
        &mut saving,
        &["assist", "--save", file, "finnhub", question],
    );
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let output = run(&mut command(dir.path()), &["plan", "execute", file]);
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("COOK TIMOTHY D"));
}
