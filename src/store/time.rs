//! Points in time as the store keeps them: milliseconds since 1970, in both engines.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub fn now() -> Self {
        Timestamp(clock::unix_millis() as i64)
    }

    /// `None` outside of the years that RFC 3339 can write, which PostgreSQL can keep, too.
    pub fn from_millis(millis: i64) -> Option<Self> {
        let nanos = i128::from(millis) * 1_000_000;
        let date = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?;
        (0..=9999)
            .contains(&date.year())
            .then_some(Timestamp(millis))
    }

    /// `None` for a text that is no such time.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        Some(Timestamp::from_date(date))
    }

    pub fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since 1970; 0 for a time before.
    pub fn unix_seconds(self) -> u64 {
        u64::try_from(self.0 / 1000).unwrap_or(0)
    }

    /// `None` where there is no such time.
    pub fn plus_millis(self, millis: i64) -> Option<Self> {
        Timestamp::from_millis(self.0.checked_add(millis)?)
    }

    /// Always with three digits behind the point, so that texts sort as times do.
    pub fn rfc3339(self) -> String {
        let date = self.date();
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = date.to_hms();
        let millis = date.millisecond();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }

    pub(super) fn date(self) -> OffsetDateTime {
        let nanos = i128::from(self.0) * 1_000_000;
        OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    pub(super) fn from_date(date: OffsetDateTime) -> Self {
        Timestamp((date.unix_timestamp_nanos() / 1_000_000) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_as_rfc3339_and_has_an_end() {
        let time = Timestamp::from_millis(1_700_000_000_123).unwrap();
        assert_eq!(time.rfc3339(), "2023-11-14T22:13:20.123Z");
        let round = Timestamp::from_millis(1_700_000_000_000).unwrap();
        assert_eq!(round.rfc3339(), "2023-11-14T22:13:20.000Z");
        assert_eq!(Timestamp::from_rfc3339(&round.rfc3339()), Some(round));
        assert_eq!(Timestamp::from_date(time.date()), time);
        assert_eq!(time.plus_millis(i64::MAX), None);
        assert_eq!(Timestamp::from_millis(i64::MAX), None);
        assert_eq!(Timestamp::from_millis(-100_000_000_000_000_000), None);
    }
}
