//! Tests that need what not every machine allows. The unit tests of `src/` include this file too.

/// Ends a test that can't run on this machine. That is a failure, because a test that is silently
/// skipped checks nothing; `ATI_TEST_ALLOW_SKIP=1` allows it.
#[allow(clippy::print_stderr)]
pub fn skip(why: &str) {
    let allowed = std::env::var("ATI_TEST_ALLOW_SKIP").is_ok_and(|value| value == "1");
    assert!(
        allowed,
        "this test can't run here: {why} (ATI_TEST_ALLOW_SKIP=1 skips it)"
    );
    eprintln!("skipped: {why}");
}
