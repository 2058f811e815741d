//! How far the clocks of this machine and of the proxy are apart.

use std::time::UNIX_EPOCH;

use http::HeaderMap;
use http::header::DATE;

/// By how many seconds the clock that wrote `Date` is ahead. Nothing is known about where between
/// the two local times the answer was made, so within them, and the second that `Date` cuts off,
/// the clocks agree.
pub(super) fn clock_ahead(headers: &HeaderMap, sent: u64, received: u64) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let theirs = i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    let (sent, received) = (i64::try_from(sent).ok()?, i64::try_from(received).ok()?);
    Some(if theirs < sent - 1 {
        theirs - sent
    } else if theirs > received + 1 {
        theirs - received
    } else {
        0
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clock_of_an_answer_made_while_it_was_waited_for_agrees() {
        let at = |seconds: u64| {
            let date = UNIX_EPOCH + Duration::from_secs(seconds);
            let mut headers = HeaderMap::new();
            let text = httpdate::fmt_http_date(date);
            headers.insert(DATE, text.parse().unwrap());
            clock_ahead(&headers, 1000, 1005)
        };
        for agreeing in [999, 1000, 1003, 1006] {
            assert_eq!(at(agreeing), Some(0), "{agreeing}");
        }
        assert_eq!(at(900), Some(-100));
        assert_eq!(at(1105), Some(100));
        assert_eq!(clock_ahead(&HeaderMap::new(), 1000, 1005), None);
    }
}
