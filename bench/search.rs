//! What `bench/search.py` runs: how well and how fast tools are found, by the index of ati, by the
//! scorer that it had before, and by a plain substring.
//!
//! `search quality DIR NAME=QUERIES...` and `search time DIR QUERIES` print rows of tables. DIR is
//! an ATI folder. QUERIES has a query, a tab and the tools that answer it in each line.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

#[path = "search/before.rs"]
mod before;

use std::path::Path;
use std::time::Instant;

use ati::auth::Scopes;
use ati::catalog::search::MOST;
use ati::catalog::{Catalog, Specs};
use before::Haystack;

/// How often each query is timed.
const TIMES: usize = 21;

struct Query {
    text: String,
    wanted: Vec<String>,
}

fn load(dir: &str) -> Catalog {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let dir = Path::new(dir);
    let mut manifests = ati::config::read_manifests(dir, &mut problems);
    let specs = Specs::of(dir);
    let catalog = Catalog::build(&mut manifests, &specs, None, &mut problems, &mut warnings);
    assert!(problems.is_empty(), "{problems:?}");
    catalog
}

fn queries(file: &str) -> Vec<Query> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let query = |line: &str| {
        let (text, wanted) = line.split_once('\t').unwrap();
        Query {
            text: text.to_owned(),
            wanted: wanted.split(' ').map(str::to_owned).collect(),
        }
    };
    lines.map(query).collect()
}

/// A way of searching: its name, and the names that it finds.
type Way<'a> = (&'a str, Box<dyn Fn(&str) -> Vec<&'a str> + 'a>);

fn ways<'a>(catalog: &'a Catalog, haystacks: &'a [(Haystack, &'a str)]) -> Vec<Way<'a>> {
    let scopes = Scopes::parse("*");
    let by_index = move |query: &str| {
        let found = catalog.search(query, &scopes, |_| true, MOST);
        found.into_iter().map(|tool| tool.name.as_str()).collect()
    };
    let by_substring = |query: &str| {
        let query = query.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&query);
        let tools = catalog.tools().iter();
        let found = tools.filter(|tool| {
            has(&tool.name) || has(&tool.description) || tool.tags.iter().any(|tag| has(tag))
        });
        found.take(MOST).map(|tool| tool.name.as_str()).collect()
    };
    vec![
        ("plain substring", Box::new(by_substring)),
        (
            "the scorer before",
            Box::new(|query| before::search(haystacks, query)),
        ),
        ("the index", Box::new(by_index)),
    ]
}

/// Shares of queries with an answer at the first place and among the first five, and the mean of
/// one divided by the place of the first answer.
fn quality(catalog: &Catalog, sets: &[String]) {
    let haystacks = haystacks(catalog);
    for set in sets {
        let (name, file) = set.split_once('=').unwrap();
        let queries = queries(file);
        for query in &queries {
            for wanted in &query.wanted {
                assert!(
                    catalog.find(wanted).is_some(),
                    "no tool {wanted}: {}",
                    query.text
                );
            }
        }
        let n = queries.len() as f64;
        for (way, search) in ways(catalog, &haystacks) {
            let (mut first, mut five, mut reciprocal) = (0.0, 0.0, 0.0);
            for query in &queries {
                let found = search(&query.text);
                let place = found
                    .iter()
                    .position(|name| query.wanted.iter().any(|wanted| wanted == name));
                if let Some(place) = place {
                    reciprocal += 1.0 / (place as f64 + 1.0);
                    first += f64::from(u8::from(place == 0));
                    five += f64::from(u8::from(place < 5));
                }
            }
            println!(
                "| {name} ({n}) | {way} | {:.3} | {:.3} | {:.3} |",
                first / n,
                five / n,
                reciprocal / n
            );
        }
    }
}

/// Microseconds per query: the median of a query's runs, then over all queries; and all runs.
fn time(catalog: &Catalog, file: &str) {
    let began = Instant::now();
    catalog.prepare_search();
    let built = began.elapsed().as_secs_f64() * 1e3;
    let tools = catalog.tools().len();
    eprintln!("{tools} tools: index built in {built:.0} ms");
    let haystacks = haystacks(catalog);
    let queries = queries(file);
    for (way, search) in ways(catalog, &haystacks) {
        let times = if way == "the index" { TIMES } else { 1 };
        let (mut medians, mut all) = (Vec::new(), Vec::new());
        for query in &queries {
            search(&query.text);
            let mut taken: Vec<f64> = (0..times)
                .map(|_| {
                    let began = Instant::now();
                    std::hint::black_box(search(&query.text));
                    began.elapsed().as_secs_f64() * 1e6
                })
                .collect();
            taken.sort_by(f64::total_cmp);
            medians.push(taken[times / 2]);
            all.extend(taken);
        }
        medians.sort_by(f64::total_cmp);
        all.sort_by(f64::total_cmp);
        let at = |sorted: &[f64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        println!(
            "| {tools} | {way} | {:.0} | {:.0} | {:.0} | {:.0} |",
            at(&medians, 0.5),
            at(&medians, 0.99),
            at(&medians, 1.0),
            at(&all, 0.99)
        );
    }
}

fn haystacks(catalog: &Catalog) -> Vec<(Haystack, &str)> {
    let tools = catalog.tools().iter();
    tools
        .map(|tool| (Haystack::new(tool), tool.name.as_str()))
        .collect()
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [what, dir, sets @ ..] if what == "quality" => quality(&load(dir), sets),
        [what, dir, file] if what == "time" => time(&load(dir), file),
        _ => panic!("quality DIR NAME=QUERIES... | time DIR QUERIES"),
    }
}
