//! Checks on this machine.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Access;
use rustix::process::{Resource, getrlimit};

use super::super::{permissions, stored};
use super::Findings;
use crate::auth::token::VerificationKey;
use crate::config::{Address, Settings, private_key_of_environment};
use crate::error::Problem;
use crate::keyring::stored::StoredCredentials;
use crate::keyring::{SIGNING_SECRET, Source};
use crate::process::abilities;
use crate::snapshot::Snapshot;

/// Bytes of free disk space below which the audit log may soon fail.
const LEAST_FREE: u64 = 256 << 20;
/// Bytes that a process should be allowed to lock, for the secrets of a large keyring.
const LEAST_MEMLOCK: u64 = 8 << 20;

/// Whether files with secrets are readable by their owner alone, and the owner is the folder's.
pub fn permissions(settings: &Settings, found: &mut Findings) {
    let dir = &settings.ati_dir;
    let faults = permissions::faults(dir);
    for fault in &faults {
        let message = format!("{} {}", fault.path.display(), fault.message);
        found.fail("permissions", message, &fault.fix);
    }
    match std::fs::metadata(dir) {
        Ok(folder) if faults.is_empty() => {
            let message = format!("{} belongs to user {}", dir.display(), folder.uid());
            found.ok("permissions", message);
        }
        Ok(_) => {}
        Err(e) => {
            let message = format!("{}: {e}", dir.display());
            found.fail("permissions", message, "ati init, or --ati-dir");
        }
    }
}

/// Whether the database of `ATI_DB_URL` answers, and its credentials can be read.
pub fn stored(settings: &Settings, found: &mut Findings) -> Option<Arc<StoredCredentials>> {
    const CHECK: &str = "database";
    match stored::load(settings) {
        Ok(None) => None,
        Ok(Some(stored)) => {
            found.ok(CHECK, format!("{} credentials", stored.len()));
            for fault in stored::faults(&stored) {
                found.warn(
                    CHECK,
                    fault,
                    "give that key to the proxy, or ati admin rewrap",
                );
            }
            Some(stored)
        }
        Err(problem) => {
            found.fail(
                CHECK,
                problem.to_string(),
                "mend ATI_DB_URL, or start the database",
            );
            None
        }
    }
}

pub fn memlock(found: &mut Findings) {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < LEAST_MEMLOCK => found.warn(
            "memlock",
            format!(
                "{} KiB may be locked: secrets of a large keyring could be swapped out",
                limit >> 10
            ),
            "LimitMEMLOCK=64M in the unit, or ulimit -l 65536",
        ),
        Some(limit) => found.ok("memlock", format!("{} KiB may be locked", limit >> 10)),
        None => found.ok("memlock", "unlimited"),
    }
}

/// What the kernel can do for `[provider.cli_sandbox]`. A manifest that needs what is missing here
/// is a fault of its own, found when it is loaded.
pub fn confinement(found: &mut Findings) {
    let abilities = abilities();
    match abilities.lack() {
        None => found.ok("confinement", abilities.words()),
        Some(lack) => found.warn(
            "confinement",
            lack,
            "boot a newer kernel with Landlock, or run programs as another user: \
             docs/confinement.md",
        ),
    }
}

pub fn disk(settings: &Settings, found: &mut Findings) {
    let path = &settings.audit_file;
    let folder = path
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // The file is not created by the check.
    let writable = match path.exists() {
        true => std::fs::OpenOptions::new()
            .append(true)
            .open(path)
            .map(drop),
        false => rustix::fs::access(folder, Access::WRITE_OK).map_err(Into::into),
    };
    if let Err(e) = writable {
        found.fail(
            "audit",
            format!("{} can't be written: {e}", path.display()),
            "calls still run, but are not recorded: repair the folder, or set ATI_AUDIT_FILE",
        );
        return;
    }
    match rustix::fs::statvfs(folder) {
        Ok(space) if space.f_bavail * space.f_frsize < LEAST_FREE => {
            let free = (space.f_bavail * space.f_frsize) >> 20;
            found.warn(
                "audit",
                format!("{free} MiB are free at {}", folder.display()),
                "make room, or rotate the file (mv is enough)",
            );
        }
        Ok(space) => found.ok(
            "audit",
            format!("{} MiB are free", (space.f_bavail * space.f_frsize) >> 20),
        ),
        Err(e) => found.warn(
            "audit",
            format!("{}: {e}", folder.display()),
            "free space could not be looked at",
        ),
    }
}

pub fn ports(settings: &Settings, found: &mut Findings) {
    let edges = settings.listeners.iter().filter_map(|at| match at.address {
        Address::Tcp(address) => Some((at.name.as_str(), address)),
        Address::Unix { .. } => None,
    });
    let admin = settings.admin.map(|address| ("admin", address));
    for (what, address) in edges
        .chain(admin)
        .filter(|(_, address)| address.port() != 0)
    {
        match TcpListener::bind(address) {
            Ok(_) => found.ok(
                "ports",
                format!("{what} {address} is free: nothing runs there"),
            ),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                found.ok(
                    "ports",
                    format!(
                        "{what} {address} is taken: by the running proxy, or by another program"
                    ),
                );
            }
            Err(e) => found.fail(
                "ports",
                format!("{what} {address}: {e}"),
                "choose an address of this machine, and a port above 1023 or the capability for it",
            ),
        }
    }
}

/// Whether the key that tokens are signed with is among those that they are verified with. Tools
/// without any key are a warning of the snapshot; where there is none, it isn't known if there are
/// tools.
pub fn jwt(settings: &Settings, snapshot: Option<&Snapshot>, found: &mut Findings) {
    let Some(jwt) = &settings.jwt else {
        match snapshot {
            Some(snapshot) if snapshot.catalog.offers_tools() => {}
            Some(_) => found.ok(
                "jwt",
                "no token keys: no tools, and the ones for files are off",
            ),
            None => found.warn(
                "jwt",
                "no token keys: every caller is let in",
                "set ATI_JWT_PUBLIC_KEY, or [jwt] in the conf file",
            ),
        }
        return;
    };
    let key = match jwt.key.load() {
        Ok(key) => key,
        Err(problem) => {
            found.fail("jwt", problem.to_string(), "ati token keygen makes a pair");
            return;
        }
    };
    match (private_key_of_environment(), &key) {
        (Ok(Some(private)), VerificationKey::Es256(keys))
            if !keys.iter().any(|named| named.key == *private.public()) =>
        {
            found.fail(
                "jwt",
                "ATI_JWT_PRIVATE_KEY is not the other half of a key that tokens are verified with",
                "put the public half of the private key where the proxy reads it",
            );
        }
        (Err(problem), _) => {
            found.fail("jwt", problem.to_string(), "ati token keygen makes a pair")
        }
        (_, VerificationKey::Es256(keys)) => {
            found.ok("jwt", format!("ES256, {} key(s)", keys.len()))
        }
        (_, VerificationKey::Hs256(_)) => found.ok("jwt", "HS256"),
    }
}

/// The keyring, the credentials that manifests name, and what was loaded in all.
pub fn loaded(snapshot: &Snapshot, warnings: &[Problem], found: &mut Findings) {
    let keyring = &snapshot.keyring;
    let sealed = matches!(keyring.source(), Source::Sealed | Source::Persistent);
    let add = |name: &str| match sealed {
        true => format!(
            "add {name} where the secrets are kept, and ati edge rotate-keyring; or ati edge \
             keyring set {name}"
        ),
        false => format!("ati key set {name} - reads it from standard input"),
    };
    found.ok(
        "keyring",
        format!("{}, {} names", keyring.source().as_str(), keyring.len()),
    );
    let advised = |check: &str| {
        let mut advice = warnings
            .iter()
            .filter_map(|warning| warning.advice.as_ref());
        advice.any(|advice| advice.check == check)
    };
    if snapshot.signing.is_some() {
        found.ok("signing", "the sandboxes' secret is in the keyring");
    } else if !advised("signing") {
        found.warn(
            "signing",
            "sandbox_signing_shared_secret is not in the keyring: signatures can't be checked",
            &add(SIGNING_SECRET),
        );
    }
    let mut missing = 0;
    for warning in warnings {
        match (&warning.missing_credential, &warning.advice) {
            (Some(name), _) => {
                missing += 1;
                let fix = format!("{}; or remove the manifest", add(name));
                found.warn("credentials", warning.to_string(), &fix);
            }
            (None, _) if warning.key.as_deref() == Some(SIGNING_SECRET) => {
                found.warn("signing", warning.to_string(), &add(SIGNING_SECRET));
            }
            (None, Some(advice)) => found.warn(advice.check, warning.to_string(), &advice.fix),
            (None, None) => found.warn(
                "manifests",
                warning.to_string(),
                "docs/reference/manifest.md has every field",
            ),
        }
    }
    if missing == 0 {
        found.ok(
            "credentials",
            "every name that a manifest wants is in the keyring",
        );
    }
    if !advised("skills") {
        found.ok("skills", format!("{} skills", snapshot.skills.len()));
    }
    let (providers, tools) = (
        snapshot.catalog.providers().len(),
        snapshot.catalog.public_count(),
    );
    found.ok(
        "manifests",
        format!(
            "{providers} providers, {tools} tools, {} routes",
            snapshot.routes.len()
        ),
    );
}
