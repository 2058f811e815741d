//! The same bytes of callers and upstreams through both ways: the upstream gets the same requests,
//! the caller the same answers, and the log has the same fields.
//!
//! A failure names a seed and a number. `ATI_TEST_SEED=<seed> ATI_TEST_CASE=<number>` in the
//! environment of the test repeats that exchange alone, and shows it whole.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::caller::{Caller, End};
use super::compare::{Outcome, differences, record};
use super::generate::{Case, case};
use super::scripted::{CANARY, Scripted, Seen};
use super::{off, on, routes, signed};
use crate::support::ati::Proxy;
use crate::support::http::Client;
use crate::support::{POLL, eventually};

const SEED: u64 = 0x0ed9_2026;
/// Callers at a time. Each has routes and an upstream of its own, so that nothing but its own
/// requests is on the connections that it looks at.
const LANES: usize = 6;
/// How often an exchange that differed is repeated. What differs each time is a difference; what
/// differs once is a matter of timing, and counted.
const REPEATS: usize = 3;

/// A proxy, and an upstream for each lane.
struct Side {
    proxy: Proxy,
    upstreams: Vec<Scripted>,
    /// How often its records were read.
    reads: AtomicU64,
}

impl Side {
    fn start(short: bool) -> Self {
        let upstreams: Vec<Scripted> = (0..LANES).map(|_| Scripted::start()).collect();
        let mut setup = signed(if short { on() } else { off() });
        for (lane, upstream) in upstreams.iter().enumerate() {
            setup = routes(setup, lane, &upstream.url());
        }
        Side {
            proxy: setup.start(),
            upstreams,
            reads: AtomicU64::new(0),
        }
    }

    /// Runs one exchange, on the lane's connection if it has one.
    fn run(&self, lane: usize, case: &Case, kept: &mut Option<Caller>) -> Outcome {
        let upstream = &self.upstreams[lane];
        upstream.play(&case.script);
        let reused = kept.take().filter(|_| !case.is_fresh);
        let mut caller = reused.unwrap_or_else(|| Caller::connect(self.proxy.edge));
        let (received, end) = caller.run(&case.steps, &case.heads, upstream);
        let has_ended = end.is_some();
        if has_ended {
            drop(caller);
            caller = Caller::connect(self.proxy.edge);
        }
        // A caller that left without an answer: the upstream learns of it.
        upstream.wait_until_played();
        let head = format!("GET /open{lane}/{CANARY} HTTP/1.1\r\nHost: c\r\n\r\n");
        let mut canary = caller.canary(&head);
        let end = end.unwrap_or(match &canary {
            End::Unreadable(_) | End::Open | End::Silent => canary.clone(),
            _ => End::Closed,
        });
        if canary == End::Closed && !has_ended {
            caller = Caller::connect(self.proxy.edge);
            canary = caller.canary(&head);
        }
        let seen = upstream.seen();
        let is_kept = self.keeps(lane, &seen);
        // A connection that was handed over stays with Pingora.
        if canary == End::Open && case.is_plain {
            *kept = Some(caller);
        }
        Outcome {
            received,
            end,
            canary,
            seen,
            is_kept,
            upstream: upstream.address.to_string(),
        }
    }

    /// Whether the connection of the last request is kept.
    fn keeps(&self, lane: usize, seen: &[Seen]) -> bool {
        seen.last()
            .is_none_or(|last| self.upstreams[lane].is_open(last.connection))
    }

    /// Log records and audit lines by the exchange that they belong to, and the others.
    fn records(&self, breaks_off: &HashMap<String, bool>) -> BTreeMap<String, Vec<String>> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let last = format!("/open0/last-{read}-{CANARY}");
        assert_eq!(self.proxy.client().get(&last).status, 200);
        let is_there = |all: &[Value]| all.iter().any(|line| line["path"] == *last);
        eventually("the last record and the last line of the audit", || {
            let logged = is_there(&self.proxy.log.find_all("request"));
            (logged && is_there(&self.proxy.audit())).then_some(())
        });
        let mut lines = self.proxy.log.find_all("request");
        lines.extend(self.proxy.log.find_all("sig_verify"));
        lines.extend(self.proxy.audit());
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in lines {
            let path = line["path"].as_str().unwrap_or_default();
            if path.ends_with(CANARY) {
                continue;
            }
            let id = path.split('/').find(|part| breaks_off.contains_key(*part));
            let id = id.unwrap_or("without a number").to_owned();
            let loose = breaks_off.get(&id).copied().unwrap_or(true);
            found
                .entry(id)
                .or_default()
                .push(record(line, loose).to_string());
        }
        found
    }

    /// The counters of requests, refusals and failures.
    fn counters(&self) -> Vec<String> {
        let kinds = [
            "requests",
            "refusals",
            "upstream_errors",
            "signatures",
            "credential_refused",
        ];
        let text = Client::connect(self.proxy.admin).get("/metrics").text();
        let counted = |line: &&str| {
            kinds
                .iter()
                .any(|kind| line.starts_with(&format!("ati_{kind}_total")))
        };
        text.lines().filter(counted).map(str::to_owned).collect()
    }
}

struct Difference {
    index: u64,
    what: String,
    found: Vec<String>,
}

#[derive(Default)]
struct Results {
    different: Vec<Difference>,
    /// Exchanges that differed, and didn't when they were repeated.
    unsteady: Vec<Difference>,
    /// For each exchange that was run and didn't differ: whether it breaks off.
    steady: HashMap<String, bool>,
    what: HashMap<String, String>,
    silent: usize,
    /// Answers by their status.
    statuses: BTreeMap<u16, usize>,
}

fn lane(
    sides: &[Side; 2],
    seed: u64,
    lane: usize,
    next: &AtomicU64,
    end: u64,
    attempts: RangeInclusive<usize>,
    to: &Mutex<Results>,
) {
    let mut kept: [Option<Caller>; 2] = [None, None];
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= end {
            return;
        }
        let mut first: Option<Difference> = None;
        let mut is_steady = false;
        for attempt in attempts.clone() {
            let id = format!("c{index:06}-{attempt}");
            let case = case(seed, index, lane, &id);
            let [mut short, mut long] =
                [0, 1].map(|side| sides[side].run(lane, &case, &mut kept[side]));
            // The upstream learns of the end of a connection a moment later.
            let started = Instant::now();
            while short.is_kept != long.is_kept && started.elapsed() < Duration::from_millis(500) {
                std::thread::sleep(POLL);
                short.is_kept = sides[0].keeps(lane, &short.seen);
                long.is_kept = sides[1].keeps(lane, &long.seen);
            }
            let found = differences(&case, &short, &long);
            if std::env::var_os("ATI_TEST_CASE").is_some() {
                let steps = &case.steps;
                eprintln!(
                    "{}\n{steps:#?}\nshort: {short:#?}\nPingora: {long:#?}",
                    case.what
                );
            }
            let mut results = to.lock().unwrap();
            results.silent += usize::from(short.end == End::Silent);
            for received in &short.received {
                *results.statuses.entry(received.status).or_default() += 1;
            }
            if found.is_empty() {
                results.what.insert(id.clone(), case.what.clone());
                results.steady.insert(id, case.breaks_off);
                is_steady = true;
                break;
            }
            first.get_or_insert(Difference {
                index,
                what: case.what,
                found,
            });
        }
        if let Some(difference) = first {
            let mut results = to.lock().unwrap();
            match is_steady {
                true => results.unsteady.push(difference),
                false => results.different.push(difference),
            }
        }
    }
}

fn tell(title: &str, seed: u64, all: &[Difference]) -> String {
    let mut text = format!("{} {title} (seed {seed:#x})\n", all.len());
    for one in all.iter().take(60) {
        text += &format!("  case {}: {}\n", one.index, one.what);
        for found in &one.found {
            text += &format!("    {found}\n");
        }
    }
    text
}

/// Cases that differed while other lanes were at work, once more and alone: in some it matters
/// which bytes arrive together, and on a busy machine that differs from one side to the other.
fn try_alone(
    sides: &[Side; 2],
    seed: u64,
    again: Vec<Difference>,
    attempts: RangeInclusive<usize>,
    results: Results,
) -> Results {
    let results = Mutex::new(results);
    for one in again {
        let before = results.lock().unwrap().different.len();
        let next = AtomicU64::new(one.index);
        let end = one.index + 1;
        lane(sides, seed, 0, &next, end, attempts.clone(), &results);
        let mut results = results.lock().unwrap();
        if results.different.len() == before {
            results.unsteady.push(one);
        }
    }
    results.into_inner().unwrap()
}

/// Exchanges that were logged in different ways, of those whose attempt begins with this text.
fn differing_logs(sides: &[Side; 2], results: &Results, attempt: &str) -> Vec<Difference> {
    let logs = [0, 1].map(|side| sides[side].records(&results.steady));
    let mut different = Vec::new();
    for id in results
        .steady
        .keys()
        .filter(|id| id[7..].starts_with(attempt))
    {
        let [short, long] = [0, 1].map(|side| logs[side].get(id).cloned().unwrap_or_default());
        if short != long {
            let short = short.join("\n        ");
            let long = long.join("\n        ");
            different.push(Difference {
                index: id[1..7].parse().unwrap(),
                what: results.what[id].clone(),
                found: vec![format!("log: {short}\n      Pingora: {long}")],
            });
        }
    }
    different
}

/// Compares both ways over so many exchanges.
fn agree(exchanges: u64) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        let text = text.trim_start_matches("0x");
        u64::from_str_radix(text, if name.ends_with("SEED") { 16 } else { 10 }).ok()
    };
    let seed = number("ATI_TEST_SEED").unwrap_or(SEED);
    let only = number("ATI_TEST_CASE");
    let (first, end) = only.map_or((0, exchanges), |only| (only, only + 1));
    let sides = [Side::start(true), Side::start(false)];
    let (next, results) = (AtomicU64::new(first), Mutex::new(Results::default()));
    std::thread::scope(|scope| {
        for number in 0..LANES {
            let (sides, next, results) = (&sides, &next, &results);
            scope.spawn(move || lane(sides, seed, number, next, end, 0..=REPEATS, results));
        }
    });
    let mut results = results.into_inner().unwrap();
    let again = std::mem::take(&mut results.different);
    let mut results = try_alone(&sides, seed, again, 100..=100 + REPEATS, results);
    eprintln!(
        "{}",
        tell("exchanges differed once", seed, &results.unsteady)
    );
    eprintln!("answers by status: {:?}", results.statuses);
    let mut different = std::mem::take(&mut results.different);
    let logged = differing_logs(&sides, &results, "");
    let tried = logged.len();
    results = try_alone(&sides, seed, logged, 200..=200 + REPEATS, results);
    different.append(&mut results.different);
    if tried > 0 {
        different.extend(differing_logs(&sides, &results, "-2"));
    }
    let logs = [0, 1].map(|side| sides[side].records(&results.steady));
    if results.unsteady.is_empty() && different.is_empty() {
        let mut kinds = logs.map(|log| log.get("without a number").cloned().unwrap_or_default());
        for kinds in &mut kinds {
            kinds.sort();
            kinds.dedup();
        }
        assert_eq!(kinds[0], kinds[1], "records of requests without a path");
        let [short, long] = [0, 1].map(|side| sides[side].counters());
        assert_eq!(short, long, "counters");
    }
    different.sort_by_key(|one| one.index);
    assert!(
        different.is_empty(),
        "{}",
        tell("exchanges differ", seed, &different)
    );
    let few = exchanges as usize / 100;
    assert!(
        results.unsteady.len() <= few,
        "too many differ now and then"
    );
    assert!(
        results.silent <= few,
        "{} were never answered",
        results.silent
    );
    let sent: Vec<Value> = sides[0].proxy.log.find_all("request");
    assert!(
        only.is_some() || sent.len() as u64 >= exchanges,
        "{}",
        sent.len()
    );
}

#[test]
fn both_ways_agree_on_a_thousand_exchanges() {
    agree(1_000);
}

#[test]
#[ignore = "heavy"]
fn both_ways_agree_on_twenty_thousand_exchanges() {
    agree(20_000);
}
