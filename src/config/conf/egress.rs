use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::value::{Plain, RelativePath, raw_section};
use crate::egress;
use crate::error::Problem;

raw_section! {
    /// `[egress]`.
    RawEgress {
        ca_file: RelativePath,
        nameservers: Plain<Vec<SocketAddr>>,
        source: Plain<IpAddr>,
        addresses: Plain<BTreeMap<String, IpAddr>>,
    }
}

impl RawEgress {
    pub(in crate::config) fn resolve(
        self,
        conf: Option<&Path>,
        problems: &mut Vec<Problem>,
    ) -> egress::Settings {
        let settings = egress::Settings {
            nameservers: self.nameservers.unwrap_or_default(),
            ca_file: self.ca_file,
            source: self.source,
            named: self.addresses.unwrap_or_default(),
            downloads: egress::Allowlist::default(),
        };
        problems.extend(settings.check().into_iter().map(|problem| Problem {
            file: conf.map(Path::to_path_buf),
            ..problem
        }));
        settings
    }
}
