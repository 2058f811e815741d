//! A folder of this machine. Links may not lead out of a skill's folder: a token opens one skill,
//! and not those that it links to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Got, Listed, MOST_LISTED, Object, failed};
use crate::error::RemoteSkillError;

pub struct Folder {
    pub root: PathBuf,
}

impl Folder {
    pub async fn get(
        &self,
        name: &str,
        known: Option<&str>,
        most: usize,
    ) -> Result<Got, RemoteSkillError> {
        let (root, name) = (self.root.clone(), name.to_owned());
        let known = known.map(str::to_owned);
        blocking(move || get(&root, &name, known.as_deref(), most)).await
    }

    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, RemoteSkillError> {
        let (root, prefix) = (self.root.clone(), prefix.to_owned());
        blocking(move || list(&root, &prefix)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RemoteSkillError> + Send + 'static,
) -> Result<T, RemoteSkillError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(failed("reading it was given up")))
}

fn get(root: &Path, name: &str, known: Option<&str>, most: usize) -> Result<Got, RemoteSkillError> {
    if !root.is_dir() {
        return Err(failed("its folder isn't there"));
    }
    let Some((folder, name)) = within(root, name) else {
        return Ok(Got::Missing);
    };
    let (folder, name) = (folder.as_path(), Path::new(name));
    let file = match crate::files::open_beneath(folder, name) {
        Ok(file) => file,
        // What leads out, and what is no file, isn't there.
        Err(_) => return Ok(Got::Missing),
    };
    let tag = file.metadata().ok().as_ref().and_then(tag);
    if tag.is_some() && tag.as_deref() == known {
        return Ok(Got::Unchanged);
    }
    match crate::files::read_beneath(folder, name, most as u64) {
        Ok(content) => Ok(Got::Found(Object { content, tag })),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Got::Missing),
        Err(e) => Err(failed(format!("{}: {e}", name.display()))),
    }
}

/// The folder that a file has to stay in, and its path below that: a skill's, if it is in one. A
/// link in place of a skill's folder is none.
fn within<'a>(root: &Path, name: &'a str) -> Option<(PathBuf, &'a str)> {
    let Some((skill, path)) = name.split_once('/') else {
        return Some((root.to_owned(), name));
    };
    if skill == ".." {
        return None;
    }
    let folder = root.join(skill);
    is_own(&folder).then_some((folder, path))
}

fn is_own(folder: &Path) -> bool {
    folder.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn tag(metadata: &std::fs::Metadata) -> Option<String> {
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("\"{}-{}\"", modified.as_nanos(), metadata.len()))
}

fn list(root: &Path, prefix: &str) -> Result<Vec<Listed>, RemoteSkillError> {
    let mut found = Vec::new();
    let below = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
    // Without a link on the way.
    let mut path = root.to_owned();
    for part in below.split('/').filter(|part| !part.is_empty()) {
        path.push(part);
        if !is_own(&path) {
            return Ok(Vec::new());
        }
    }
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        let path = match folder.is_empty() {
            true => root.to_owned(),
            false => root.join(&folder),
        };
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound && !folder.is_empty() => continue,
            Err(e) => return Err(failed(format!("its folder can't be read: {e}"))),
        };
        for entry in entries.flatten() {
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                continue;
            };
            let name = match folder.is_empty() {
                true => name,
                false => format!("{folder}/{name}"),
            };
            // Links are followed by `get` where they stay in their skill; they aren't listed.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(name),
                Ok(kind) if kind.is_file() && name.starts_with(prefix) => found.push(Listed {
                    tag: entry.metadata().ok().as_ref().and_then(tag),
                    name,
                }),
                _ => {}
            }
            if found.len() + folders.len() > MOST_LISTED {
                return Err(failed("it holds too many files; an index would help"));
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_are_read_listed_and_checked_by_their_tag_and_links_stay_inside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("foo/references")).unwrap();
        std::fs::write(root.join("foo/SKILL.md"), "text").unwrap();
        std::fs::write(root.join("foo/references/r.md"), "r").unwrap();
        std::fs::write(dir.path().join("secret"), "planted").unwrap();
        std::os::unix::fs::symlink("../../secret", root.join("foo/out")).unwrap();
        std::os::unix::fs::symlink("SKILL.md", root.join("foo/in")).unwrap();
        // Another skill is as foreign as another folder.
        std::fs::create_dir_all(root.join("bar/references")).unwrap();
        std::fs::write(root.join("bar/SKILL.md"), "planted").unwrap();
        std::fs::write(root.join("bar/references/b.md"), "planted").unwrap();
        std::os::unix::fs::symlink("../bar", root.join("foo/barlink")).unwrap();
        std::os::unix::fs::symlink("../../bar/SKILL.md", root.join("foo/references/bar.md"))
            .unwrap();
        std::os::unix::fs::symlink("bar", root.join("baz")).unwrap();
        std::fs::write(root.join("index.json"), "{}").unwrap();
        let folder = Folder { root };
        let Got::Found(object) = folder.get("foo/SKILL.md", None, 100).await.unwrap() else {
            panic!("not found");
        };
        assert_eq!(object.content, b"text");
        let again = folder.get("foo/SKILL.md", object.tag.as_deref(), 100).await;
        assert!(matches!(again, Ok(Got::Unchanged)));
        for found in ["foo/in", "index.json"] {
            let got = folder.get(found, None, 100).await;
            assert!(matches!(got, Ok(Got::Found(_))), "{found}");
        }
        for missing in [
            "foo/out",
            "foo/x",
            "../secret",
            "foo",
            "foo/barlink/SKILL.md",
            "foo/references/bar.md",
            "baz/SKILL.md",
            "/etc/passwd",
        ] {
            let got = folder.get(missing, None, 100).await;
            assert!(matches!(got, Ok(Got::Missing)), "{missing}");
        }
        assert!(folder.get("foo/SKILL.md", None, 3).await.is_err());
        let names = |listed: Vec<Listed>| -> Vec<String> {
            listed.into_iter().map(|one| one.name).collect()
        };
        let all = names(folder.list("").await.unwrap());
        assert_eq!(
            all,
            [
                "bar/SKILL.md",
                "bar/references/b.md",
                "foo/SKILL.md",
                "foo/references/r.md",
                "index.json"
            ]
        );
        let some = names(folder.list("foo/references/").await.unwrap());
        assert_eq!(some, ["foo/references/r.md"]);
        for empty in ["absent/", "baz/", "foo/barlink/"] {
            assert!(folder.list(empty).await.unwrap().is_empty(), "{empty}");
        }
    }
}
