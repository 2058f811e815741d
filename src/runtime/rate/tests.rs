use super::*;

fn limits(specs: &[(&str, &str)]) -> Vec<(String, Rate)> {
    specs
        .iter()
        .map(|(pattern, rate)| ((*pattern).to_owned(), Rate::parse(rate).unwrap()))
        .collect()
}

#[test]
fn windows_slide_and_each_subject_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let windows = RateWindows::new(dir.path());
    let limit = limits(&[("tool:*", "2/second")]);
    let ask = |subject: &str, now| windows.admit(subject, limit.iter(), now).is_ok();
    assert!(ask("a", 10_000) && ask("a", 10_400));
    assert!(!ask("a", 10_999));
    assert!(ask("b", 10_999));
    assert!(ask("a", 11_000));
    assert!(!ask("a", 11_399));
    assert!(ask("a", 11_400));
}

#[test]
fn token_with_a_shorter_limit_does_not_shorten_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let windows = RateWindows::new(dir.path());
    let (day, second) = (
        limits(&[("tool:*", "2/day")]),
        limits(&[("tool:*", "100/second")]),
    );
    let ask = |limit: &Vec<(String, Rate)>, now| windows.admit("a", limit.iter(), now).is_ok();
    assert!(ask(&day, 1_000_000) && ask(&day, 1_000_001) && !ask(&day, 1_000_002));
    assert!(ask(&second, 1_100_000));
    assert!(!ask(&day, 1_200_000));
}

#[test]
fn refused_call_counts_against_no_limit() {
    let dir = tempfile::tempdir().unwrap();
    let windows = RateWindows::new(dir.path());
    let both = limits(&[("tool:*", "5/hour"), ("tool:x", "1/hour")]);
    let ask = |now| windows.admit("a", both.iter(), now);
    assert_eq!(ask(1), Ok(()));
    for now in 2..20 {
        let exceeded = ask(now).unwrap_err();
        assert_eq!((exceeded.pattern.as_str(), exceeded.count), ("tool:x", 1));
    }
    let wide = limits(&[("tool:*", "5/hour")]);
    let passed = (20..40).filter(|now| windows.admit("a", wide.iter(), *now).is_ok());
    assert_eq!(passed.count(), 4);
}

#[test]
fn calls_of_all_processes_count_in_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let limit = limits(&[("tool:*", "5/hour")]);
    let passed: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let windows = RateWindows::new(dir.path());
                    windows
                        .admit_shared("a", limit.iter(), unix_millis)
                        .unwrap()
                        .is_ok()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| usize::from(thread.join().unwrap()))
            .sum()
    });
    assert_eq!(passed, 5);
    let text = std::fs::read_to_string(dir.path().join("rate-state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(state["calls"]["a tool:*"].as_array().unwrap().len(), 5);
    // A server that starts counts them too, and keeps the windows of other subjects.
    let server = RateWindows::new(dir.path());
    server.load();
    assert!(server.admit("a", limit.iter(), unix_millis()).is_err());
    server.admit("b", limit.iter(), unix_millis()).unwrap();
    server.save().unwrap();
    let text = std::fs::read_to_string(dir.path().join("rate-state.json")).unwrap();
    assert!(
        text.contains("a tool:*") && text.contains("b tool:*"),
        "{text}"
    );
}

/// As a process of its own would ask.
fn ask_alone(dir: &Path, limit: &[(String, Rate)], now: u64) -> Result<(), RateExceeded> {
    let windows = RateWindows::new(dir);
    windows.admit_shared("a", limit.iter(), || now).unwrap()
}

#[test]
fn limit_per_second_holds_across_processes_to_the_millisecond() {
    let dir = tempfile::tempdir().unwrap();
    let limit = limits(&[("tool:*", "2/s")]);
    // Later than the real clock, which decides what is old enough to leave the file.
    let begin = (unix_millis() / SECOND + 10) * SECOND + 400;
    let ask = |later| ask_alone(dir.path(), &limit, begin + later);
    assert_eq!((ask(0), ask(300)), (Ok(()), Ok(())));
    assert_eq!(ask(301).unwrap_err().wait, 699);
    assert_eq!(ask(999).unwrap_err().wait, 1);
    assert_eq!(ask(1000), Ok(()));
    assert!(ask(1299).is_err());
    assert_eq!(ask(1300), Ok(()));
}

#[test]
fn file_with_whole_seconds_only_counts_each_call_to_the_end_of_its_second() {
    let dir = tempfile::tempdir().unwrap();
    let limit = limits(&[("tool:*", "1/s")]);
    let second = unix_millis() / SECOND + 10;
    let file = dir.path().join("rate-state.json");
    let text = format!("{{\"calls\":{{\"a tool:*\":[{second}]}}}}");
    for (later, passes) in [(0, false), (999, false), (1000, true)] {
        std::fs::write(&file, &text).unwrap();
        let asked = ask_alone(dir.path(), &limit, second * SECOND + later);
        assert_eq!(asked.is_ok(), passes, "{later}");
    }
    // What is written stays readable for programs that know whole seconds.
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(state["calls"]["a tool:*"], serde_json::json!([second + 1]));
}

#[test]
fn milliseconds_that_do_not_fit_their_second_are_ignored() {
    let file = RateFile {
        calls: [("k".to_owned(), vec![7, 9])].into(),
        recent_ms: [("k".to_owned(), vec![6500, 7500, 8200])].into(),
    };
    assert_eq!(file.times("k"), [7000, 8200]);
    assert!(file.times("other").is_empty());
}

#[test]
fn wait_is_that_of_the_limit_that_frees_last() {
    let dir = tempfile::tempdir().unwrap();
    let windows = RateWindows::new(dir.path());
    let both = limits(&[("tool:*", "1/s"), ("tool:x", "1/minute")]);
    let ask = |now| windows.admit("a", both.iter(), now);
    assert_eq!(ask(10_000), Ok(()));
    let exceeded = ask(10_250).unwrap_err();
    assert_eq!(
        (exceeded.pattern.as_str(), exceeded.wait),
        ("tool:*", 59_750)
    );
    let none = limits(&[("tool:*", "0/hour")]);
    let refused = windows.admit("b", none.iter(), 10_000).unwrap_err();
    assert_eq!((refused.count, refused.wait), (0, 3_600_000));
}

#[test]
fn damaged_file_is_kept_aside_and_counting_starts_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rate-state.json");
    let limit = limits(&[("tool:*", "1/hour")]);
    let now = unix_millis();
    for (round, damage) in ["{\"calls\":", "[]", "nonsense"].iter().enumerate() {
        std::fs::write(&path, damage).unwrap();
        match round {
            0 => RateWindows::new(dir.path()).load(),
            1 => {
                let windows = RateWindows::new(dir.path());
                let first = windows.admit_shared("a", limit.iter(), || now).unwrap();
                assert_eq!(first, Ok(()));
                assert!(
                    windows
                        .admit_shared("a", limit.iter(), || now)
                        .unwrap()
                        .is_err()
                );
            }
            _ => {
                let windows = RateWindows::new(dir.path());
                windows.admit("a", limit.iter(), now).unwrap();
                windows.save().unwrap();
                assert!(std::fs::read_to_string(&path).unwrap().contains("a tool:*"));
            }
        }
        let name = match round {
            0 => "rate-state.json.damaged".to_owned(),
            _ => format!("rate-state.json.damaged.{round}"),
        };
        let kept = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(kept, *damage);
    }
}

#[test]
fn call_without_limits_writes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let windows = RateWindows::new(dir.path());
    windows.admit("a", [].iter(), 1).unwrap();
    windows.admit_shared("a", [].iter(), || 1).unwrap().unwrap();
    windows.save().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
