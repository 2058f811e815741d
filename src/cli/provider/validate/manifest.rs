//! Manifests: their fields, and the documents that they refer to.

use std::path::Path;

use crate::catalog::json_reader::Findings;
use crate::catalog::{Catalog, Specs};
use crate::config;
use crate::egress;
use crate::keyring::Keyring;
use crate::route::Table;

pub fn check(file: &Path) -> Findings {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let manifest = match config::read_manifest(file) {
        Ok(manifest) => manifest,
        Err(problem) => {
            return Findings {
                problems: vec![problem],
                warnings,
            };
        }
    };
    // Of the folder above the one that holds the manifest.
    let above = file.parent().and_then(Path::parent);
    let specs = above.map_or_else(|| Specs::of(&config::ati_dir()), Specs::of);
    let specs = specs.only_files();
    let mut manifests = [manifest];
    let catalog = Catalog::build(&mut manifests, &specs, None, &mut problems, &mut warnings);
    catalog.compile_schemas(&mut warnings);
    // The keyring is usually on another machine: a key that is missing here is no finding.
    let mut missing = Vec::new();
    Table::build(
        &manifests,
        true,
        &Keyring::empty(),
        &egress::Settings::default(),
        &mut problems,
        &mut missing,
    );
    // Named egress addresses are configured there too.
    problems.retain(|problem| problem.key.as_deref() != Some("egress"));
    warnings.extend(
        missing
            .into_iter()
            .filter(|problem| problem.missing_credential.is_none()),
    );
    config::add_lines(&mut problems);
    config::add_lines(&mut warnings);
    Findings { problems, warnings }
}
