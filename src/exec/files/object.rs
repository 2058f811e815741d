//! Names of uploaded files: `<prefix>/<YYYY-MM-DD>/<uuid>-<filename>`.

use percent_encoding::utf8_percent_encode;
use time::OffsetDateTime;
use time::format_description::FormatItem;
use time::macros::format_description;
use uuid::Uuid;

use crate::clock::unix_now;
use crate::credential::UNRESERVED;

const DAY: &[FormatItem<'_>] = format_description!("[year]-[month]-[day]");

/// The day, in UTC.
pub fn day() -> String {
    let now = i64::try_from(unix_now()).ok();
    let now = now.and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    let day = now.and_then(|now| now.format(DAY).ok());
    day.unwrap_or_default()
}

/// No two uploads have the same, whatever their files are called.
pub fn unique(filename: &str) -> String {
    format!("{}-{filename}", Uuid::new_v4())
}

/// A new name below a prefix.
pub fn name(prefix: &str, filename: &str) -> String {
    let name = format!("{}/{}", day(), unique(filename));
    match prefix.trim_matches('/') {
        "" => name,
        prefix => format!("{prefix}/{name}"),
    }
}

/// The name as it stands in the path of a URL.
pub fn encoded(name: &str) -> String {
    let parts = name.split('/');
    let parts: Vec<String> = parts
        .map(|part| utf8_percent_encode(part, UNRESERVED).to_string())
        .collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_named_by_prefix_day_and_a_unique_name() {
        let found = name("/a/b/", "x y.png");
        let parts: Vec<&str> = found.split('/').collect();
        assert_eq!((parts[0], parts[1], parts.len()), ("a", "b", 4));
        assert_eq!(parts[2].len(), "2026-11-18".len());
        assert!(
            parts[3].ends_with("-x y.png") && parts[3].len() == 36 + 8,
            "{found}"
        );
        assert_eq!(name("", "x").split('/').count(), 2);
        assert_ne!(name("a", "x"), name("a", "x"));
        assert_eq!(encoded("a/x y+ü.png"), "a/x%20y%2B%C3%BC.png");
    }
}
