//! The conf file as an operator writes it, section by section.

use std::path::{Path, PathBuf};

use super::listener::{self, Listener, Tls};
use super::{KeySource, Section, beside, jwt, read_toml};
use crate::auth::signature::Mode;
use crate::egress;
use crate::error::Problem;

/// The conf file as it stands, each value perhaps absent.
#[derive(Default)]
pub(super) struct File {
    pub(super) bind: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) workers: Option<usize>,
    pub(super) drain: Option<u64>,
    pub(super) proxy_protocol: Option<bool>,
    pub(super) tls: Option<Tls>,
    pub(super) trusted_proxies: Option<Vec<String>>,
    pub(super) upgrade_socket: Option<PathBuf>,
    pub(super) listeners: Vec<Listener>,
    pub(super) admin: Option<String>,
    pub(super) env_keys: Option<bool>,
    pub(super) allow_empty: Option<bool>,
    pub(super) passthrough: Option<bool>,
    pub(super) forward_request_id: Option<bool>,
    pub(super) egress: egress::Settings,
    pub(super) max_call: Option<usize>,
    pub(super) max_response: Option<usize>,
    pub(super) tool_timeout: Option<u64>,
    pub(super) mode: Option<Mode>,
    pub(super) drift: Option<u64>,
    pub(super) exempt: Option<Vec<String>>,
    pub(super) jwt_key: Option<KeySource>,
    pub(super) issuer: Option<String>,
    pub(super) audiences: Option<Vec<String>>,
    pub(super) connections: Option<usize>,
    pub(super) requests_in_flight: Option<usize>,
    pub(super) header: Option<u64>,
    pub(super) keepalive: Option<u64>,
    pub(super) stall: Option<u64>,
    pub(super) access_log: Option<bool>,
    pub(super) signature_log: Option<bool>,
}

pub(super) fn read(path: Option<&Path>, problems: &mut Vec<Problem>) -> File {
    let Some(path) = path else {
        return File::default();
    };
    let Some(table) = read_toml(path, problems) else {
        return File::default();
    };
    let mut file = File::default();
    let mut root = Section::root(path, table, problems);

    let mut s = root.section("server");
    file.bind = s.take("bind");
    file.port = s.take("port");
    file.workers = positive(&mut s, "workers");
    file.drain = s.take("drain_seconds");
    file.proxy_protocol = s.take("proxy_protocol");
    file.trusted_proxies = s.take("trusted_proxies");
    let upgrade_socket: Option<PathBuf> = s.take("upgrade_socket");
    file.upgrade_socket = upgrade_socket.map(|socket| beside(path, &socket));
    file.tls = listener::read_tls(&mut s, path);
    s.finish();
    root.each("listener", |s| {
        file.listeners.extend(listener::read(s, path));
    });

    let mut s = root.section("admin");
    file.admin = s.take("listen");
    s.finish();

    let mut s = root.section("keyring");
    file.env_keys = s.take("from_environment");
    file.allow_empty = s.take("allow_empty");
    s.finish();

    let mut s = root.section("passthrough");
    file.passthrough = s.take("enabled");
    file.forward_request_id = s.take("forward_request_id");
    s.finish();

    let mut s = root.section("egress");
    file.egress = read_egress(&mut s, path);
    s.finish();

    let mut s = root.section("tools");
    file.max_call = positive(&mut s, "max_call_bytes");
    file.max_response = positive(&mut s, "max_response_bytes");
    file.tool_timeout = positive(&mut s, "timeout_seconds").map(|n| n as u64);
    s.finish();

    let mut s = root.section("signature");
    file.mode = s.take("mode");
    file.drift = s.take("drift_seconds");
    file.exempt = s.take("exempt_paths");
    s.finish();

    let mut s = root.section("jwt");
    file.jwt_key = jwt::from_conf(&mut s, path);
    file.issuer = s.take("issuer");
    file.audiences = s.take("audiences");
    if file.audiences.as_ref().is_some_and(Vec::is_empty) {
        s.problem("audiences", "an empty list would accept nobody's tokens");
    }
    s.finish();

    let mut s = root.section("limits");
    file.connections = positive(&mut s, "connections");
    file.requests_in_flight = positive(&mut s, "requests_in_flight");
    file.header = positive(&mut s, "header_seconds").map(|n| n as u64);
    file.keepalive = positive(&mut s, "keepalive_seconds").map(|n| n as u64);
    file.stall = positive(&mut s, "stall_seconds").map(|n| n as u64);
    s.finish();

    let mut s = root.section("log");
    file.access_log = s.take("access");
    file.signature_log = s.take("signatures");
    s.finish();

    root.finish();
    file
}

fn read_egress(section: &mut Section<'_>, conf: &Path) -> egress::Settings {
    let ca_file: Option<PathBuf> = section.take("ca_file");
    egress::Settings {
        nameservers: section.take("nameservers").unwrap_or_default(),
        ca_file: ca_file.map(|path| beside(conf, &path)),
        source: section.take("source"),
        named: section.take("addresses").unwrap_or_default(),
    }
}

fn positive(section: &mut Section<'_>, key: &'static str) -> Option<usize> {
    let value = section.take(key)?;
    if value == 0 {
        section.problem(key, "must be at least 1");
        return None;
    }
    Some(value)
}
