//! Lists in pages.

use serde_json::json;

use super::{ask, names};
use crate::support::ati::{Setup, tool, write};

#[test]
fn pages_hold_every_tool_once_also_where_the_tools_change_in_between() {
    let tools = |numbers: &mut dyn Iterator<Item = usize>| -> String {
        let tools: String = numbers.map(|n| tool(&format!("a:t{n:03}"), "")).collect();
        format!("[provider]\nname = 'a'\nbase_url = 'http://127.0.0.1:1'\n{tools}")
    };
    let proxy = Setup::new()
        .manifest("a", &tools(&mut (0..250).rev()))
        .conf("[mcp]\npage_size = 100\n")
        .start();
    let page = |cursor: Option<&str>| {
        let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
        let list = ask(&proxy, "tools/list", params);
        let next = list["result"]["nextCursor"].as_str().map(str::to_owned);
        (names(&list), next)
    };
    let (first, next) = page(None);
    assert_eq!(
        (first.len(), first[0].as_str(), first[99].as_str()),
        (100, "a:t000", "a:t099")
    );
    // The tool that the cursor names goes, and one before it comes.
    write(
        &proxy.path("manifests/a.toml"),
        tools(&mut (0..250).filter(|n| *n != 99)),
    );
    assert_eq!(proxy.reload()["message"], "reload done");
    let (second, next) = page(next.as_deref());
    assert_eq!((second.len(), second[0].as_str()), (100, "a:t100"));
    let (third, end) = page(next.as_deref());
    assert_eq!((third.len(), third[49].as_str(), end), (50, "a:t249", None));
}
