//! Rate limits of a token: `<count>/<unit>`.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub limit: u32,
    pub unit: Unit,
}

impl Unit {
    pub fn seconds(self) -> u64 {
        match self {
            Unit::Second => 1,
            Unit::Minute => 60,
            Unit::Hour => 3600,
            Unit::Day => 86_400,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Unit::Second => "second",
            Unit::Minute => "minute",
            Unit::Hour => "hour",
            Unit::Day => "day",
        }
    }
}

impl Rate {
    /// `None` where it can't be read. The caller refuses the token then: to ignore the limit would
    /// be worse.
    pub fn parse(spec: &str) -> Option<Self> {
        let (count, unit) = spec.split_once('/')?;
        let unit = match unit.trim() {
            "s" | "sec" | "second" => Unit::Second,
            "m" | "min" | "minute" => Unit::Minute,
            "h" | "hr" | "hour" => Unit::Hour,
            "d" | "day" => Unit::Day,
            _ => return None,
        };
        Some(Rate {
            limit: count.trim().parse().ok()?,
            unit,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, self.unit.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_that_is_not_a_count_per_unit_is_refused() {
        assert_eq!(Rate::parse("10/hour").unwrap().to_string(), "10/hour");
        assert_eq!(Rate::parse(" 5 / min ").unwrap().unit.seconds(), 60);
        for bad in [
            "",
            "10",
            "10/",
            "/hour",
            "ten/hour",
            "-1/s",
            "1/week",
            "1.5/s",
            "99999999999/s",
        ] {
            assert_eq!(Rate::parse(bad), None, "{bad}");
        }
    }
}
