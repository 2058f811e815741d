use super::*;
use std::collections::BTreeMap;

fn rules() -> CaptureRules {
    let flags = ["--output", "-o"].map(str::to_owned);
    let positional: BTreeMap<String, usize> = [("shot".to_owned(), 0)].into();
    CaptureRules::new(&flags, &positional).0
}

fn rewritten(line: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut words: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
    let files = plan(&rules(), &words).unwrap();
    rewrite(&rules(), &mut words, &files, "/d");
    (words, files.into_iter().map(|file| file.path).collect())
}

#[test]
fn paths_of_the_caller_are_replaced_and_nothing_else() {
    let (words, paths) = rewritten(&["shot", "/tmp/x.png", "-v", "--output=a/b.PDF", "x"]);
    assert_eq!(words, ["shot", "/d/0.png", "-v", "--output=/d/1.PDF", "x"]);
    assert_eq!(paths, ["/tmp/x.png", "a/b.PDF"]);
    let (words, paths) = rewritten(&["list", "/tmp/x.png"]);
    assert_eq!(words, ["list", "/tmp/x.png"]);
    assert!(paths.is_empty());
}

#[test]
fn path_that_is_there_twice_is_one_file() {
    let (words, paths) = rewritten(&["-o", "a.txt", "--output=a.txt", "-o", "b.txt"]);
    assert_eq!(
        words,
        ["-o", "/d/0.txt", "--output=/d/0.txt", "-o", "/d/1.txt"]
    );
    assert_eq!(paths, ["a.txt", "b.txt"]);
}

#[test]
fn only_a_plain_extension_of_the_path_is_in_the_name() {
    for (path, kept) in [
        ("/tmp/x.png", ".png"),
        ("x.PNG", ".PNG"),
        ("a.b.c", ".c"),
        ("a.tar.gz", ".tar.gz"),
        ("/.tar.gz", ".gz"),
        ("x.7z", ".7z"),
        ("x", ""),
        ("x.", ""),
        (".bashrc", ""),
        ("/a.b/c", ""),
        ("../..", ""),
        ("..", ""),
        ("/etc/passwd/..", ""),
        ("x.p/g", ""),
        ("x.p\0g", ""),
        ("x.p\ng", ""),
        ("x.pn g", ""),
        ("x.$(id)", ""),
        ("x.p\u{e4}g", ""),
        ("x.-rf", ""),
        ("x.aaaaaaaaaaaaaaaa", ""),
    ] {
        assert_eq!(extension(path), kept, "{path:?}");
    }
    let long = format!("{}.png", "/../".repeat(1024));
    assert_eq!(extension(&long), "");
    assert_eq!(extension(&format!("{long}.png")), ".png");
}

#[test]
fn more_files_than_a_call_may_have_are_refused() {
    let words =
        |count: usize| -> Vec<String> { (0..count).map(|n| format!("-o={n}.txt")).collect() };
    assert_eq!(
        plan(&rules(), &words(MOST_FILES)).unwrap().len(),
        MOST_FILES
    );
    let refused = plan(&rules(), &words(MOST_FILES + 1));
    assert_eq!(refused, Err(CaptureError::TooMany));
    // The same file again takes no more room.
    let again = [words(MOST_FILES), words(MOST_FILES)].concat();
    assert_eq!(plan(&rules(), &again).unwrap().len(), MOST_FILES);
}

#[test]
fn content_type_is_that_of_the_extension() {
    for (path, expected) in [
        ("/tmp/x.png", "image/png"),
        ("x.PDF", "application/pdf"),
        ("x.json", "application/json"),
        ("x", "application/octet-stream"),
        ("x.unheardof", "application/octet-stream"),
    ] {
        assert_eq!(content_type(path), expected, "{path}");
    }
}

/// What a program wrote to its one file, taken.
fn take_one(content: Option<&[u8]>, secret: &str) -> Result<Spooled, CaptureError> {
    let dir = tempfile::tempdir().unwrap();
    let folder = OutputFolder::create(dir.path()).unwrap();
    if let Some(content) = content {
        std::fs::write(folder.path().join("0.bin"), content).unwrap();
    }
    let capture = Capture {
        path: "/caller/x.bin".to_owned(),
        name: "0.bin".to_owned(),
    };
    let captures = Captures {
        folder: Arc::new(folder),
        files: vec![capture],
        most_bytes: 100,
    };
    let opened = captures.open();
    // Whatever it was.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let quota = Quota::new(50);
    let held = hold(opened?, 200, &quota)?.remove(0);
    let attachment = Attachment::default().with_redacted([secret.as_bytes()].into_iter());
    Ok(held.clean(Search::new(&attachment), &quota)?.1)
}

/// Files with holes, which take nothing of the disk.
fn sparse(sizes: &[u64]) -> Vec<(String, OutputFile)> {
    let each = sizes.iter().map(|&size| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        ("x".to_owned(), file)
    });
    each.collect()
}

#[test]
fn files_take_their_places_in_the_quota_before_any_is_searched() {
    let quota = Quota::new(100);
    let refused = |sizes: &[u64], most: u64| hold(sparse(sizes), most, &quota).err();
    assert_eq!(refused(&[60, 60], 1000), Some(CaptureError::NoSpace));
    assert_eq!(refused(&[40, 40], 79), Some(CaptureError::TooMuch(79)));
    assert_eq!(refused(&[1 << 40; 64], 79), Some(CaptureError::TooMuch(79)));
    assert_eq!(quota.used(), 0);
    let held = hold(sparse(&[40, 40]), 80, &quota).ok().unwrap();
    assert_eq!((held.len(), quota.used()), (2, 80));
    drop(held);
    assert_eq!(quota.used(), 0);
}

#[test]
fn temporary_paths_in_a_text_become_those_of_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let folder = OutputFolder::create(dir.path()).unwrap();
    let at = folder.path().to_str().unwrap().to_owned();
    let file = |path: &str, name: &str| Capture {
        path: path.to_owned(),
        name: name.to_owned(),
    };
    let captures = Captures {
        folder: Arc::new(folder),
        files: vec![file("one", "1"), file("/a/ten.png", "10")],
        most_bytes: 100,
    };
    let text = format!("{at}/10, {at}/1 and {at}/1; {at}/2 {at}");
    let told = captures.with_callers_paths(text.as_bytes());
    let expected = format!("/a/ten.png, one and one; {at}/2 {at}");
    assert_eq!(String::from_utf8(told).unwrap(), expected);
    assert_eq!(captures.with_callers_paths(b"nothing"), b"nothing");
}

#[test]
fn long_path_of_the_caller_does_not_make_a_text_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let folder = OutputFolder::create(dir.path()).unwrap();
    let text = format!("{}/0 ", folder.path().display()).repeat(5000);
    let captures = Captures {
        folder: Arc::new(folder),
        files: vec![Capture {
            path: "p".repeat(100_000),
            name: "0".to_owned(),
        }],
        most_bytes: 100,
    };
    let told = captures.with_callers_paths(text.as_bytes());
    assert!(told.starts_with(b"pppp") && told.ends_with(b"/0 "));
    assert!(told.len() <= LONGEST_TOLD, "{}", told.len());
}

#[test]
fn faults_have_the_documented_texts() {
    let fault = |content| take_one(content, "").unwrap_err();
    assert_eq!(
        fault(None).to_string(),
        "Captured output '/caller/x.bin' was not produced by the CLI"
    );
    let too_large = fault(Some(&[b'x'; 101]));
    assert_eq!(
        too_large.to_string(),
        "Captured output '/caller/x.bin' exceeds ATI_CLI_MAX_OUTPUT_BYTES (100 bytes)"
    );
    assert_eq!(
        too_large.without_path(),
        "Captured output exceeds ATI_CLI_MAX_OUTPUT_BYTES (100 bytes)"
    );
    assert_eq!(fault(Some(&[b'x'; 51])), CaptureError::NoSpace);
}

#[tokio::test]
async fn answer_has_the_files_under_the_paths_of_the_caller() {
    let secret = "planted-secret-value";
    let file = take_one(Some(b"key: planted-secret-value"), secret).unwrap();
    let empty = take_one(Some(b""), secret).unwrap();
    let json = envelope(
        "done",
        vec![("/a \"b\".png".into(), file), ("c".into(), empty)],
    );
    let raw = json.into_raw_blocking().unwrap();
    let value: Value = serde_json::from_str(raw.get()).unwrap();
    let expected = json!({
        "stdout": "done",
        "outputs": {
            "/a \"b\".png": {
                "content_base64": "a2V5OiBbUkVEQUNURURd",
                "size_bytes": 15,
                "content_type": "image/png",
            },
            "c": {
                "content_base64": "",
                "size_bytes": 0,
                "content_type": "application/octet-stream",
            },
        },
    });
    assert_eq!(value, expected);
}
