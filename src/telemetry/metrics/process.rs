//! What the kernel says about this process, under the names that Prometheus's client libraries use.
//! Read when the metrics are rendered, and from files of /proc/self only: a unit may hide the rest
//! of /proc.

use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::process::{Resource, getrlimit};

/// The kernel tells CPU times to programs in hundredths of a second, whatever its own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// When this process started: the first call's time.
pub fn started() -> SystemTime {
    static STARTED: OnceLock<SystemTime> = OnceLock::new();
    *STARTED.get_or_init(SystemTime::now)
}

/// None where the kernel didn't tell.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub cpu_seconds: Option<f64>,
    pub open_files: Option<i64>,
    pub resident_bytes: Option<i64>,
    pub virtual_bytes: Option<i64>,
    pub threads: Option<i64>,
}

impl Usage {
    pub fn read() -> Self {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}"));
        let mut usage = Usage::parse(
            &text("stat").unwrap_or_default(),
            &text("status").unwrap_or_default(),
        );
        // One of them is the folder itself, which is open while it is read.
        usage.open_files = std::fs::read_dir("/proc/self/fd")
            .ok()
            .map(|files| files.count() as i64 - 1);
        usage
    }

    fn parse(stat: &str, status: &str) -> Self {
        let line = |key: &str| -> Option<i64> {
            let value = status.lines().find_map(|line| line.strip_prefix(key))?;
            value.split_whitespace().next()?.parse().ok()
        };
        let kilobytes = |key: &str| line(key).map(|value| value * 1024);
        // The program's name, in brackets, may hold spaces and brackets of its own. Of the fields
        // behind it, user and system time are the 12th and the 13th.
        let cpu_seconds = stat.rsplit_once(')').and_then(|(_, rest)| {
            let mut fields = rest.split_whitespace().skip(11);
            let mut ticks = || fields.next()?.parse::<f64>().ok();
            Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
        });
        Usage {
            cpu_seconds,
            open_files: None,
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            threads: line("Threads:"),
        }
    }
}

/// The limit on open files; infinite where there is none.
pub(super) fn most_open_files() -> f64 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(f64::INFINITY, |files| files as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_a_program_with_brackets_in_its_name_is_read() {
        let stat = "12 (a (b) c) S 1 12 12 0 -1 4194560 9 0 0 0 250 50 7 7 20 0 3 0 99 0 0";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t 1024 kB\nThreads:\t3\n";
        let expected = Usage {
            cpu_seconds: Some(3.0),
            open_files: None,
            resident_bytes: Some(1024 * 1024),
            virtual_bytes: Some(2048 * 1024),
            threads: Some(3),
        };
        assert_eq!(Usage::parse(stat, status), expected);
        assert_eq!(Usage::parse("garbage", ""), Usage::default());
    }

    #[test]
    fn usage_of_this_process_is_complete() {
        let usage = Usage::read();
        assert!(usage.cpu_seconds.is_some() && usage.threads > Some(0));
        assert!(usage.open_files > Some(2) && usage.resident_bytes > Some(1 << 20));
        assert!(most_open_files() >= 3.0 && usage.virtual_bytes > usage.resident_bytes);
    }
}
