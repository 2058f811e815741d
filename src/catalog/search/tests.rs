use std::sync::Arc;

use super::*;
use crate::catalog::Catalog;
use crate::catalog::mcp::Listings;

const MARKET: &str = "[provider]\nname = 'market'\ncategory = 'finance'\nbase_url = 'http://h'\n\
     [[tools]]\nname = 'quote'\ndescription = 'The price of a share'\ntags = ['stock']\n\
     [[tools]]\nname = 'stock_news'\ndescription = 'Headlines'\nhint = 'prefer quote for prices'\n\
     [[tools]]\nname = 'weather'\ndescription = 'Forecast for a place'\n\
     [tools.input_schema.properties.latitude]\ntype = 'number'\ndescription = 'Degrees north'\n\
     [[tools]]\nname = 'createInvoice'\nmethod = 'POST'\ndescription = 'Bills a customer'\n\
     examples = ['ati run createInvoice --customer acme']\n\
     [[tools]]\nname = 'list_invoices'\ndescription = 'All bills'\n";

fn found(catalog: &Catalog, scopes: &str, query: &str) -> Vec<String> {
    let found = catalog.search(query, &Scopes::parse(scopes), |_| true, MOST);
    found.iter().map(|tool| tool.name.clone()).collect()
}

fn names(query: &str) -> Vec<String> {
    found(&Catalog::from_text(MARKET), "*", query)
}

#[test]
fn better_match_comes_first() {
    assert_eq!(names("quote"), ["quote", "stock_news"]);
    assert_eq!(names("share price")[0], "quote");
    assert_eq!(names("what is the weather")[0], "weather");
    // By a parameter, by its description, by an example, by the category.
    assert_eq!(names("latitude"), ["weather"]);
    assert_eq!(names("degrees"), ["weather"]);
    assert_eq!(names("acme"), ["createInvoice"]);
    assert_eq!(names("finance").len(), 5);
    // Words that are nowhere take nothing away.
    assert_eq!(names("weather on mars tomorrow")[0], "weather");
    assert!(names("").is_empty() && names("zzz qqq").is_empty() && names("?!").is_empty());
}

#[test]
fn identifiers_forms_and_typos_are_found() {
    assert_eq!(names("invoices").len(), 2);
    assert!(names("invoicing").contains(&"createInvoice".to_owned()));
    assert_eq!(names("wether"), ["weather"]);
    assert_eq!(names("forcast")[0], "weather");
    assert_eq!(names("headl"), ["stock_news"]);
    assert_eq!(names("stocknews")[0], "stock_news");
}

#[test]
fn names_come_first_in_every_spelling() {
    for query in [
        "createInvoice",
        "create_invoice",
        "CREATE-INVOICE",
        "create invoice",
    ] {
        assert_eq!(names(query)[0], "createInvoice", "{query}");
    }
    assert_eq!(
        names("how do I use list_invoices for a share?")[0],
        "list_invoices"
    );
}

#[test]
fn wish_decides_between_reading_and_changing() {
    assert_eq!(names("show an invoice")[0], "list_invoices");
    assert_eq!(names("make an invoice")[0], "createInvoice");
}

#[test]
fn results_depend_on_no_tool_out_of_scope() {
    // 50 more tools make 'quote' a common word, and 'wether' a word of its own.
    let mut crowded = MARKET.to_owned();
    for n in 0..50 {
        crowded +=
            &format!("[[tools]]\nname = 'other{n}'\ndescription = 'A quote, wether or not'\n");
    }
    let (alone, crowded) = (Catalog::from_text(MARKET), Catalog::from_text(&crowded));
    let scopes = "tool:quote tool:stock_news tool:weather tool:createInvoice tool:list_invoices";
    for query in [
        "quote",
        "stock quote price",
        "wether",
        "all invoices",
        "oth",
    ] {
        assert_eq!(
            found(&crowded, scopes, query),
            found(&alone, "*", query),
            "{query}"
        );
    }
    assert_eq!(found(&crowded, "*", "wether").len(), 20);
    assert_eq!(
        found(&crowded, "tool:weather", "quote stock forecast"),
        ["weather"]
    );
    assert!(found(&crowded, "", "quote").is_empty());
}

#[test]
fn answers_are_the_same_every_time() {
    let (one, two) = (Catalog::from_text(MARKET), Catalog::from_text(MARKET));
    for query in ["the price of all stock", "invoice", "finance"] {
        assert_eq!(found(&one, "*", query), found(&two, "*", query));
        assert_eq!(found(&one, "*", query), found(&one, "*", query));
    }
    // Ties are in the order of the names.
    let same = "[provider]\nname = 'p'\nbase_url = 'http://h'\n\
        [[tools]]\nname = 'b'\ndescription = 'Same'\n[[tools]]\nname = 'a'\ndescription = 'Same'\n";
    assert_eq!(found(&Catalog::from_text(same), "*", "same"), ["a", "b"]);
}

#[test]
fn listing_rebuilds_only_what_changed() {
    let catalog = Catalog::from_text(MARKET);
    catalog.prepare_search();
    let relisted = catalog.with_listings(&Listings::default());
    let segments = |catalog: &Catalog| -> Vec<Arc<Segment>> {
        let index = catalog.index.get().unwrap();
        index
            .segments
            .iter()
            .map(|part| part.segment.clone())
            .collect()
    };
    assert!(Arc::ptr_eq(&segments(&catalog)[0], &segments(&relisted)[0]));
    // A command that didn't search has no index to keep up.
    let idle = Catalog::from_text(MARKET).with_listings(&Listings::default());
    assert!(idle.index.get().is_none());
}

#[test]
fn long_queries_are_bounded() {
    let long = "invoice ".repeat(100_000);
    assert_eq!(names(&long).len(), 2);
    assert!(names(&"é".repeat(10_000)).is_empty());
    assert!(names(&"x".repeat(10_000)).is_empty());
}
