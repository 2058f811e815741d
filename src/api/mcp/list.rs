//! `tools/list`, page by page, in the order of the tools' names.

use serde_json::json;

use super::annotations::described;
use super::{Exchange, ResultText, search};
use crate::auth::Scopes;
use crate::catalog::Catalog;
use crate::error::RpcError;
use crate::mcp::{ClientRequest, Era, cursor_after, read_cursor, text_of};

/// How long clients of the stateless era may use a list. A reload may change it at any time.
const TTL_MS: u64 = 30_000;
/// A page ends behind the tool that makes it this long: schemas may be large.
const LONGEST_PAGE: usize = 4 << 20;
/// Catalogues up to this size are listed where they are: that takes about a millisecond.
const SMALL_CATALOGUE: usize = 100;

pub async fn page(request: &ClientRequest, exchange: &Exchange) -> Result<ResultText, RpcError> {
    let after = match &request.cursor {
        None => None,
        Some(cursor) if cursor.get() == "null" => None,
        Some(cursor) => Some(read_cursor(&text_of(cursor).unwrap_or_default())?),
    };
    let era = request.era;
    if exchange.search {
        return Ok(search::list(era));
    }
    let most = exchange.snapshot.settings.mcp.page_size;
    let catalog = exchange.snapshot.catalog.clone();
    let text = if catalog.tools().len() <= SMALL_CATALOGUE {
        build(
            &catalog,
            &exchange.identity.scopes,
            after.as_deref(),
            most,
            era,
        )
    } else {
        let identity = exchange.identity.clone();
        let build = move || build(&catalog, &identity.scopes, after.as_deref(), most, era);
        exchange.work(build).await?
    };
    Ok(ResultText::Whole(text))
}

fn build(
    catalog: &Catalog,
    scopes: &Scopes,
    after: Option<&str>,
    most: usize,
    era: Era,
) -> Vec<u8> {
    let mut text = Vec::from(b"{\"tools\":[");
    let mut tools = catalog.visible_after(scopes, after).peekable();
    let mut count = 0;
    let mut next = None;
    while let Some(tool) = tools.next() {
        if count > 0 {
            text.push(b',');
        }
        count += 1;
        // A value that was parsed from JSON can be written as JSON.
        let _ = serde_json::to_writer(&mut text, &described(tool));
        if (count == most || text.len() >= LONGEST_PAGE) && tools.peek().is_some() {
            next = Some(cursor_after(&tool.name));
            break;
        }
    }
    text.push(b']');
    if let Some(cursor) = next {
        text.extend_from_slice(format!(",\"nextCursor\":{}", json!(cursor)).as_bytes());
    }
    text.extend_from_slice(&end(era, TTL_MS));
    text
}

/// The rest of a list, its brace included.
pub fn end(era: Era, ttl_ms: u64) -> Vec<u8> {
    match era {
        Era::Handshake => b"}".to_vec(),
        Era::Stateless => {
            format!(",\"ttlMs\":{ttl_ms},\"cacheScope\":\"private\",\"resultType\":\"complete\"}}")
                .into_bytes()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn catalog(count: usize) -> Catalog {
        let tools: String = (0..count)
            .rev()
            .map(|n| format!("[[tools]]\nname = 't{n:03}'\n"))
            .collect();
        Catalog::from_text(&format!(
            "[provider]\nname = 'p'\nbase_url = 'http://h'\n{tools}"
        ))
    }

    fn parsed(text: &[u8]) -> (Vec<String>, Option<String>) {
        let page: Value = serde_json::from_slice(text).unwrap();
        let names = page["tools"].as_array().unwrap().iter();
        let names = names.map(|tool| tool["name"].as_str().unwrap().to_owned());
        (
            names.collect(),
            page["nextCursor"].as_str().map(str::to_owned),
        )
    }

    #[test]
    fn pages_hold_every_visible_tool_once_in_the_order_of_names() {
        let catalog = catalog(25);
        let scopes = Scopes::parse("tool:t00* tool:t01*");
        let (mut all, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let text = build(&catalog, &scopes, after.as_deref(), 8, Era::Handshake);
            let (names, next) = parsed(&text);
            all.extend(names);
            pages += 1;
            let Some(next) = next else { break };
            after = Some(read_cursor(&next).unwrap());
        }
        let expected: Vec<String> = (0..20).map(|n| format!("t{n:03}")).collect();
        assert_eq!((all, pages), (expected, 3));
    }

    #[test]
    fn last_page_has_no_cursor_and_an_unknown_name_begins_behind_it() {
        let (catalog, all) = (catalog(10), Scopes::parse("*"));
        let names = |after, most| parsed(&build(&catalog, &all, after, most, Era::Stateless));
        assert_eq!(names(None, 10).1, None);
        assert_eq!(names(Some("t005x"), 10).0[0], "t006");
        assert!(names(Some("zzz"), 10).0.is_empty());
        let text = build(&catalog, &all, None, 10, Era::Stateless);
        let page: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&page["cacheScope"], &page["resultType"]),
            (&json!("private"), &json!("complete"))
        );
    }
}
