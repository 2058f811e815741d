//! The conf file, a file for each of its sections. Each has a raw form, read key by key so that
//! every problem is found at once, and a `resolve` that makes the validated form of it.

mod assist;
mod audit;
mod egress;
mod files;
mod jwt;
mod keyring;
pub(super) mod limits;
pub(super) mod listener;
mod log;
mod mcp;
mod policy;
mod server;
mod signature;
mod skill_registry;
mod store;
mod tools;
mod value;

use std::path::Path;

pub use assist::AssistSettings;
pub use audit::AuditSettings;
pub use files::FileSettings;
pub use keyring::KeyringSettings;
pub use limits::Limits;
pub use log::{LogFormat, LogSettings};
pub use mcp::{McpSettings, SkillsOffer};
pub(super) use server::{ServerSettings, default_upgrade_socket};
pub use skill_registry::SkillRegistrySettings;
pub use store::StoreSettings;
pub use tools::ToolSettings;

use super::{Section, read_toml};
use crate::error::Problem;
use listener::Listener;
use value::{Plain, RawSection, raw_section};

/// The conf file, each value perhaps absent.
#[derive(Default)]
pub(super) struct Conf {
    pub(super) server: server::RawServer,
    /// Every `[[listener]]`.
    pub(super) listeners: Vec<Listener>,
    pub(super) admin: RawAdmin,
    pub(super) keyring: keyring::RawKeyring,
    pub(super) passthrough: RawPassthrough,
    pub(super) egress: egress::RawEgress,
    pub(super) tools: tools::RawTools,
    pub(super) files: files::RawFiles,
    pub(super) signature: signature::RawSignature,
    pub(super) jwt: jwt::RawJwt,
    pub(super) limits: limits::RawLimits,
    pub(super) log: log::RawLog,
    pub(super) audit: audit::RawAudit,
    pub(super) mcp: mcp::RawMcp,
    pub(super) skill_registry: skill_registry::RawSkillRegistry,
    pub(super) assist: assist::RawAssist,
    pub(super) policy: policy::RawPolicy,
    pub(super) store: store::RawStore,
}

raw_section! {
    /// `[admin]`.
    RawAdmin {
        listen: Plain<String>,
        keys_on_edge: Plain<bool>,
    }
}

raw_section! {
    /// `[passthrough]`.
    RawPassthrough {
        enabled: Plain<bool>,
        forward_request_id: Plain<bool>,
    }
}

impl Conf {
    pub(super) fn read(path: Option<&Path>, problems: &mut Vec<Problem>) -> Self {
        let Some(path) = path else {
            return Conf::default();
        };
        let Some(table) = read_toml(path, problems) else {
            return Conf::default();
        };
        let mut root = Section::root(path, table, problems);
        let conf = Conf {
            server: section(&mut root, "server", path),
            listeners: listener::read_all(&mut root, path),
            admin: section(&mut root, "admin", path),
            keyring: section(&mut root, "keyring", path),
            passthrough: section(&mut root, "passthrough", path),
            egress: section(&mut root, "egress", path),
            tools: section(&mut root, "tools", path),
            files: section(&mut root, "files", path),
            signature: section(&mut root, "signature", path),
            jwt: jwt::read(&mut root, path),
            limits: section(&mut root, "limits", path),
            log: section(&mut root, "log", path),
            audit: section(&mut root, "audit", path),
            mcp: section(&mut root, "mcp", path),
            skill_registry: section(&mut root, "skill_registry", path),
            assist: section(&mut root, "assist", path),
            policy: section(&mut root, "policy", path),
            store: section(&mut root, "store", path),
        };
        root.finish();
        conf
    }
}

fn section<R: RawSection>(root: &mut Section<'_>, name: &'static str, conf: &Path) -> R {
    let mut section = root.section(name);
    let raw = R::take(&mut section, conf);
    section.finish();
    raw
}
