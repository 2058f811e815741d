//! Input: a manifest; where a line `---` follows, the OpenAPI document of its provider. It compiles
//! to a catalogue and a route table, or to problems. What has compiled is found by its name.
#![no_main]

use ati::catalog::{Catalog, Specs};
use ati::config::ManifestFile;
use ati::egress;
use ati::keyring::Keyring;
use ati::route::{Match, Table, normalise};
use ati_fuzz::{empty_folder, file};
use libfuzzer_sys::fuzz_target;

fn read(text: &str) -> Option<ManifestFile> {
    let (manifest, document) = match text.split_once("\n---\n") {
        Some((manifest, document)) => (manifest, Some(document)),
        None => (text, None),
    };
    let path = file("manifest.toml", manifest.as_bytes());
    let mut manifest = ati::config::read_manifest(&path).ok()?;
    // Metrics are kept by route for the life of the process.
    manifest.name = "fuzzed".to_owned();
    manifest.spec = document.map(str::to_owned);
    Some(manifest)
}

fuzz_target!(|data: &[u8]| {
    let Some(manifest) = str::from_utf8(data).ok().and_then(read) else {
        return;
    };
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    let (keyring, egress) = (Keyring::empty(), egress::Settings::default());
    let mut manifests = [manifest];

    let table = Table::build(
        &manifests,
        true,
        &keyring,
        &egress,
        &mut problems,
        &mut warnings,
    );
    assert!(table.len() <= 1);
    if table.len() == 1 {
        ask(&table, &manifests[0]);
    }

    let folder = empty_folder();
    let specs = Specs::of(&folder);
    let catalog = Catalog::build(
        &mut manifests,
        &specs,
        Some(&egress),
        &mut problems,
        &mut warnings,
    );
    catalog.compile_schemas(&mut warnings);
    for problem in problems.iter().chain(&warnings) {
        assert!(!problem.to_string().is_empty());
    }
    for tool in catalog.public() {
        let found = catalog.find(&tool.name).expect("a public tool is found");
        assert_eq!(found.name, tool.name);
    }
});

/// A path below the route's prefix goes to the route, and can be rewritten.
fn ask(table: &Table, manifest: &ManifestFile) {
    let text = |key: &str| manifest.provider.get(key).and_then(|value| value.as_str());
    let prefix = text("path_prefix").unwrap_or_default();
    for received in [
        format!("{prefix}/x"),
        format!("{prefix}%2fx;y/%252e"),
        prefix.to_owned(),
    ] {
        let Ok(path) = normalise(&received) else {
            continue;
        };
        if let Match::Route(route) = table.find(text("host_match"), &path)
            && let Ok(forwarded) = route.rewrite(&received, &path)
        {
            assert!(forwarded.path.starts_with('/') && forwarded.decoded.starts_with('/'));
            route.target(&forwarded.path, None, &route.attachment, true);
        }
    }
}
