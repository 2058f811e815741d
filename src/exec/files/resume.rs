//! Whether the rest of a file belongs to its beginning (RFC 9110, sections 13.1.5 and 14.4).

use std::time::Duration;

use http::header::{ACCEPT_RANGES, CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};

/// A strong validator: equal for equal bytes only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validator {
    value: HeaderValue,
    is_etag: bool,
}

impl Validator {
    /// None where the server has none, or says that it has no ranges.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let ranges = headers.get(ACCEPT_RANGES);
        if ranges.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"none")) {
            return None;
        }
        let etag = headers.get(ETAG).filter(|etag| is_strong(etag.as_bytes()));
        let (value, is_etag) = match etag {
            Some(etag) => (etag, true),
            None => (modified_before(headers)?, false),
        };
        Some(Validator {
            value: value.clone(),
            is_etag,
        })
    }

    /// As `If-Range` has it.
    pub fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// Whether a part of a file names the same version. A server may leave it out.
    pub fn is_kept_by(&self, headers: &HeaderMap) -> bool {
        let name = if self.is_etag { ETAG } else { LAST_MODIFIED };
        headers.get(name).is_none_or(|value| *value == self.value)
    }
}

fn is_strong(etag: &[u8]) -> bool {
    etag.len() >= 2 && etag.starts_with(b"\"") && etag.ends_with(b"\"")
}

/// A date has whole seconds: it tells versions apart only where the answer was made later than that
/// second.
fn modified_before(headers: &HeaderMap) -> Option<&HeaderValue> {
    let date = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
    let modified = headers.get(LAST_MODIFIED)?;
    let age = date(headers.get(DATE)?)?.duration_since(date(modified)?);
    (age.ok()? >= Duration::from_secs(1)).then_some(modified)
}

/// Whether an answer with status 206 begins at this byte, and is about a file of this length.
pub fn continues_at(headers: &HeaderMap, byte: u64, total: Option<u64>) -> bool {
    let range = headers
        .get(CONTENT_RANGE)
        .and_then(|range| range.to_str().ok());
    let Some(range) = range.and_then(|range| range.strip_prefix("bytes ")) else {
        return false;
    };
    let Some((span, of)) = range.split_once('/') else {
        return false;
    };
    let Some((first, last)) = span.split_once('-') else {
        return false;
    };
    let (first, last) = (first.trim().parse::<u64>(), last.trim().parse::<u64>());
    let (Ok(first), Ok(last)) = (first, last) else {
        return false;
    };
    let to_the_end = |total: u64| last.checked_add(1) == Some(total);
    let agrees = match (of.trim(), total) {
        ("*", None) => true,
        ("*", Some(total)) => to_the_end(total),
        (of, total) => of
            .parse::<u64>()
            .is_ok_and(|of| to_the_end(of) && total.is_none_or(|total| total == of)),
    };
    first == byte && first <= last && agrees
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn only_a_strong_validator_allows_a_resume() {
        let validator = |list: &[(&'static str, &'static str)]| {
            let found = Validator::of(&headers(list));
            found.map(|found| found.value().to_str().unwrap().to_owned())
        };
        const EARLY: (&str, &str) = ("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT");
        const LATE: (&str, &str) = ("date", "Tue, 15 Nov 1994 12:45:27 GMT");
        assert_eq!(validator(&[("etag", "\"a\"")]).as_deref(), Some("\"a\""));
        assert_eq!(validator(&[("etag", "W/\"a\"")]), None);
        assert_eq!(validator(&[("etag", "a")]), None);
        assert_eq!(
            validator(&[("etag", "\"a\""), ("accept-ranges", "none")]),
            None
        );
        assert_eq!(validator(&[EARLY, LATE]).as_deref(), Some(EARLY.1));
        assert_eq!(validator(&[EARLY, ("date", EARLY.1)]), None);
        assert_eq!(validator(&[EARLY]), None);
        assert_eq!(validator(&[]), None);
    }

    #[test]
    fn part_that_doesnt_continue_the_file_is_no_rest_of_it() {
        let continues = |range: &'static str, total| {
            continues_at(&headers(&[("content-range", range)]), 5, total)
        };
        assert!(continues("bytes 5-9/10", Some(10)));
        assert!(continues("bytes 5-9/10", None));
        assert!(continues("bytes 5-9/*", Some(10)));
        for (range, total) in [
            ("bytes 4-9/10", Some(10)),
            ("bytes 5-9/11", Some(10)),
            ("bytes 5-8/10", Some(10)),
            ("bytes 5-8/*", Some(10)),
            ("bytes 9-5/10", Some(10)),
            ("bytes */10", Some(10)),
            ("items 5-9/10", Some(10)),
            ("bytes 5-18446744073709551615/10", Some(10)),
            ("nonsense", None),
        ] {
            assert!(!continues(range, total), "{range}");
        }
        assert!(!continues_at(&HeaderMap::new(), 5, None));
    }

    #[test]
    fn part_of_another_version_is_noticed() {
        let validator = Validator::of(&headers(&[("etag", "\"a\"")])).unwrap();
        assert!(validator.is_kept_by(&headers(&[("etag", "\"a\"")])));
        assert!(validator.is_kept_by(&HeaderMap::new()));
        assert!(!validator.is_kept_by(&headers(&[("etag", "\"b\"")])));
    }
}
