use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::config::Environment;
use crate::telemetry::audit::{self, Filter, StatusFilter};

/// The options that `tail` and `search` share.
#[derive(clap::Args)]
pub struct FilterArgs {
    /// Only this tool; a name that ends in * matches every tool that begins so
    #[arg(long)]
    tool: Option<String>,

    /// Only requests to this route; a name that ends in * matches every route that begins so
    #[arg(long)]
    route: Option<String>,

    /// Only what this caller did: the subject of its token, or the user of its key
    #[arg(long, value_name = "SUBJECT")]
    sub: Option<String>,

    /// Only what this job did
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Only the request with this id, which the caller got as X-Request-Id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,

    /// Only what ended so: ok, error, an HTTP status such as 429, or a class such as 4xx
    #[arg(long, value_parser = parse_status)]
    status: Option<StatusFilter>,

    /// Only calls within this time: 30s, 15m, 1h, 7d
    #[arg(long, value_parser = parse_since)]
    since: Option<Duration>,

    /// Go on and show what comes, until Ctrl-C; as JSON, one object per line
    #[arg(short = 'f', long)]
    pub follow: bool,

    /// Read the audit file, also where ATI_DB_URL is set; or another file, with =PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    file: Option<Option<PathBuf>>,
}

impl FilterArgs {
    pub fn filter(&self) -> Filter {
        let since = self.since.map(|back| {
            let then = SystemTime::now().checked_sub(back);
            audit::timestamp(then.unwrap_or(SystemTime::UNIX_EPOCH))
        });
        Filter {
            tool: self.tool.clone(),
            route: self.route.clone(),
            sub: self.sub.clone(),
            job: self.job.clone(),
            request_id: self.request_id.clone(),
            status: self.status,
            since,
        }
    }

    /// The file to read.
    pub fn file(&self, env: &Environment) -> PathBuf {
        let named = self.file.clone().flatten();
        named.unwrap_or_else(|| super::path(env))
    }

    /// The file is read, whether there is a database or not.
    pub fn wants_file(&self) -> bool {
        self.file.is_some()
    }
}

fn parse_status(text: &str) -> Result<StatusFilter, String> {
    let expected = "expected ok, error, an HTTP status like 429, or a class like 4xx";
    StatusFilter::parse(text).ok_or_else(|| expected.to_owned())
}

fn parse_since(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with s, m, h or d, like 30m".to_owned();
    let unit = text.chars().last().ok_or_else(expected)?;
    let count: u64 = text[..text.len() - unit.len_utf8()]
        .parse()
        .map_err(|_| expected())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    Ok(Duration::from_secs(count.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_takes_a_number_with_a_unit() {
        assert_eq!(parse_since("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_since("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for bad in ["", "5", "m", "-1h", "1w", "1.5h", "ü"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
