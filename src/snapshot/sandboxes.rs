//! Whether the programs of a catalogue can be confined as their manifests say.

use std::path::PathBuf;

use crate::catalog::{Catalog, Provider};
use crate::config::Settings;
use crate::error::Problem;
use crate::process::{Sandbox, abilities, close_to_programs};
use crate::telemetry::audit;

/// Keeps the files of these settings from all confined programs.
pub fn close(settings: &Settings) {
    let places = &settings.keyring.places;
    let mut paths: Vec<PathBuf> = vec![
        settings.ati_dir.clone(),
        places.dir.clone(),
        places.one_shot.clone(),
        settings.audit_file.clone(),
        audit::chain_file(&settings.audit_file),
    ];
    paths.extend(settings.conf.clone());
    let tls = settings.listeners.iter().filter_map(|it| it.tls.as_ref());
    paths.extend(tls.map(|tls| tls.key.clone()));
    let jwt = settings.jwt.as_ref();
    paths.extend(jwt.and_then(|jwt| jwt.key.secret_path()).map(PathBuf::from));
    close_to_programs(paths);
}

/// What the kernel can't do and what must not be opened are problems: a program would not be
/// confined as its manifest says. A path that isn't there yet is a warning.
pub fn check(catalog: &Catalog, problems: &mut Vec<Problem>, warnings: &mut Vec<Problem>) {
    for provider in catalog.providers() {
        let Some(sandbox) = &provider.sandbox else {
            continue;
        };
        if !provider.starts_program() {
            continue;
        }
        if let Some(lack) = abilities().lack() {
            problems.push(about(provider, "provider.cli_sandbox", &lack));
        }
        check_paths(provider, sandbox, problems, warnings);
    }
}

fn check_paths(
    provider: &Provider,
    sandbox: &Sandbox,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) {
    let read = sandbox
        .read
        .iter()
        .map(|path| ("provider.cli_sandbox.read", path));
    let write = sandbox
        .write
        .iter()
        .map(|path| ("provider.cli_sandbox.write", path));
    for (key, path) in read.chain(write) {
        let shown = path.display();
        let problem = |why: &str| about(provider, key, &format!("'{shown}': {why}"));
        match path.canonicalize() {
            Err(e) => warnings.push(problem(&format!("{e}; calls will fail"))),
            Ok(real) if real != *path => {
                let why = format!("it leads through a link; write '{}'", real.display());
                problems.push(problem(&why));
            }
            Ok(_) => problems.extend(sandbox.fault_of(path).map(problem)),
        }
    }
}

fn about(provider: &Provider, key: &str, message: &str) -> Problem {
    Problem::new(message).file(&provider.file).key(key)
}
