use super::server::named;
use super::value::{Plain, raw_section};
use crate::auth::signature::{self, Mode};
use crate::config::Flags;
use crate::error::Problem;
use crate::pattern::Pattern;

raw_section! {
    /// `[signature]`.
    RawSignature {
        mode: Plain<Mode>,
        drift_seconds: Plain<u64>,
        exempt_paths: Plain<Vec<String>>,
    }
}

const DEFAULT_DRIFT_SECONDS: u64 = 60;

impl RawSignature {
    pub(in crate::config) fn resolve(
        self,
        flags: &Flags,
        problems: &mut Vec<Problem>,
    ) -> signature::Settings {
        let exempt_paths = match &flags.sig_exempt_paths {
            Some(csv) => {
                let patterns = csv.split(',').map(|pattern| pattern.trim().to_owned());
                Some(patterns.filter(|pattern| !pattern.is_empty()).collect())
            }
            None => self.exempt_paths,
        };
        let exempt = match exempt_paths {
            Some(patterns) => exempt(&patterns, flags, problems),
            None => signature::DEFAULT_EXEMPT.map(Pattern::new).to_vec(),
        };
        let mode = flags.sig_verify_mode.or(self.mode);
        let drift_seconds = flags.sig_drift_seconds.or(self.drift_seconds);
        signature::Settings {
            mode: mode.unwrap_or(Mode::Log),
            drift_seconds: drift_seconds.unwrap_or(DEFAULT_DRIFT_SECONDS),
            exempt,
        }
    }
}

fn exempt(patterns: &[String], flags: &Flags, problems: &mut Vec<Problem>) -> Vec<Pattern> {
    let by_flag = flags.sig_exempt_paths.is_some();
    for pattern in patterns.iter().filter(|p| !p.starts_with(['/', '*'])) {
        let message = format!("'{pattern}' can match no path: a pattern starts with / or *");
        let (flag, key) = ("--sig-exempt-paths", "signature.exempt_paths");
        problems.push(named(flags, by_flag, flag, key, message));
    }
    patterns
        .iter()
        .map(|pattern| Pattern::new(pattern))
        .collect()
}
