//! Copies of a skill's files. Links that lead out of its folder are left behind.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::interrupt::Stop;
use crate::error::{Code, Failure};
use crate::files;
use crate::skills::folder::{self, LARGEST};
use crate::skills::integrity::Integrity;
use crate::skills::{BundleError, METADATA};

/// A skill's files with their contents and whether they may be executed.
pub type Contents = BTreeMap<String, (Vec<u8>, bool)>;

/// The files of a folder.
pub fn read(from: &Path) -> Result<Contents, BundleError> {
    let (mut all, mut room) = (Contents::new(), LARGEST);
    for file in folder::list(from)? {
        let content = folder::content(from, &file.path, room)?;
        room -= content.len() as u64;
        all.insert(file.path, (content, file.executable));
    }
    Ok(all)
}

/// Writes the files to a new folder, and where they came from into its `skill.toml`.
pub fn write(
    contents: &Contents,
    source: (&str, Option<&str>),
    to: &Path,
    stop: &Stop,
) -> Result<(), Failure> {
    let failed = |path: &Path, e| super::super::file_failure(Code::ExecutionFailed, path, e);
    std::fs::create_dir(to).map_err(|e| failed(to, e))?;
    for (path, (content, executable)) in contents {
        stop.check()?;
        let target = to.join(path);
        let mode = if *executable { 0o755 } else { 0o644 };
        files::write_new_from(&target, &mut content.as_slice(), mode)
            .map_err(|e| failed(&target, e))?;
    }
    let measured = Integrity::measure(to);
    let measured = measured.map_err(|e| Failure::from_error(Code::ExecutionFailed, e))?;
    let integrity = Integrity {
        source_url: Some(source.0.to_owned()),
        pinned_sha: source.1.map(str::to_owned),
        ..measured
    };
    let own = contents
        .get(METADATA)
        .map(|(content, _)| content.as_slice());
    let own = String::from_utf8_lossy(own.unwrap_or_default());
    let target = to.join(METADATA);
    files::write_atomic(&target, integrity.write_into(&own).as_bytes(), 0o644)
        .map_err(|e| failed(&target, e))
}
