//! The index of a catalogue, made of a folder of skills before it is published.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use super::catalogue::directory;
use super::path::resolve;
use super::source::{LARGEST_FILE, entry};
use crate::error::Problem;
use crate::skills::served::{FileDigest, SkillFiles};
use crate::skills::{self, DOCUMENT, METADATA, is_skill_name};

/// The index, and what was left out of it.
pub struct Built {
    pub index: Value,
    pub count: usize,
    pub warnings: Vec<Problem>,
}

/// `source` is the folder of a skill, or a folder of such folders.
pub fn build(source: &Path, generated_at: &str) -> io::Result<Built> {
    let mut warnings = Vec::new();
    let folders = if source.join(DOCUMENT).is_file() {
        vec![source.canonicalize()?]
    } else {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(source)? {
            let path = entry?.path();
            let is_hidden = |name: &str| name.starts_with('.');
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_none_or(is_hidden) && path.is_dir() && path.join(DOCUMENT).is_file() {
                folders.push(path);
            }
        }
        folders.sort();
        folders
    };
    let mut skills = Vec::new();
    for folder in folders {
        match skill(&folder) {
            Ok(skill) => skills.push(skill),
            Err(why) => warnings.push(Problem::new(why).file(&folder)),
        }
    }
    Ok(Built {
        count: skills.len(),
        index: json!({"version": 1, "generated_at": generated_at, "skills": skills}),
        warnings,
    })
}

fn skill(folder: &Path) -> Result<Value, String> {
    let name = folder.file_name().and_then(|name| name.to_str());
    let name = name.filter(|name| is_skill_name(name));
    let name = name.ok_or("the name of the folder is no name for a skill")?;
    let mut contents = BTreeMap::new();
    files(folder, "", &mut contents).map_err(|e| e.to_string())?;
    let text = |path: &str| contents.get(path).map(Vec::as_slice);
    let metadata = text(METADATA).map(|text| String::from_utf8_lossy(text).into_owned());
    let parsed = skills::Skill::parse(name, text(DOCUMENT), metadata.as_deref());
    let parsed = parsed.map_err(|fault| fault.to_string())?;
    let frontmatter = text(DOCUMENT)
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(skills::document::front_matter_of);
    let mut entry = entry(name.to_owned(), parsed);
    entry.skill_directory = directory(name);
    let is_resource = |path: &&String| *path != DOCUMENT && *path != METADATA;
    let resources: Vec<&String> = contents.keys().filter(is_resource).collect();
    let mut value = serde_json::to_value(&entry).map_err(|e| e.to_string())?;
    value["resources"] = json!(resources);
    value["resources_complete"] = true.into();
    if let Some(frontmatter) = frontmatter {
        let digests = contents.iter();
        let files = SkillFiles {
            frontmatter,
            digests: digests
                .map(|(path, content)| (path.clone(), FileDigest::of(content)))
                .collect(),
        };
        value["files"] = serde_json::to_value(&files).map_err(|e| e.to_string())?;
    }
    Ok(value)
}

/// Regular files with names that callers can ask for. Links are left out.
fn files(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        let path = match prefix {
            "" => name,
            prefix => format!("{prefix}/{name}"),
        };
        if !resolve("x", &path).is_ok_and(|place| place.path == path) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files(&entry.path(), &path, found)?;
        } else if kind.is_file() {
            let content = crate::files::read_at_most(&entry.path(), LARGEST_FILE as u64)?;
            found.insert(path, content);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::remote::catalogue::read_index;

    #[test]
    fn index_of_a_folder_is_what_the_reader_reads() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let document = "---\nname: foo\ndescription: Foo things\nwhen_to_use: often\n---\nBody\n";
        write("foo/SKILL.md", document);
        write(
            "foo/skill.toml",
            "[skill]\nname = 'foo'\nproviders = ['p']\nkeywords = ['k']\n",
        );
        write("foo/references/r.md", "r");
        write("foo/.hidden/x", "x");
        write("Bad/SKILL.md", "text");
        write("no-skill/README.md", "text");
        let built = build(dir.path(), "2026-01-01T00:00:00Z").unwrap();
        assert_eq!((built.count, built.warnings.len()), (1, 1));
        let text = built.index.to_string();
        let (skills, unusable) = read_index(text.as_bytes()).unwrap();
        assert_eq!((skills.len(), unusable), (1, 0));
        let skill = &skills[0];
        assert_eq!(
            &*skill.text,
            "{\"name\":\"foo\",\"description\":\"Foo things\",\
             \"skill_directory\":\"skillati://foo\",\"when_to_use\":\"often\",\
             \"keywords\":[\"k\"],\"providers\":[\"p\"]}"
        );
        assert_eq!(skill.resources.as_deref().unwrap(), ["references/r.md"]);
        let files = skill.files.as_ref().unwrap();
        assert_eq!(files.frontmatter["description"], "Foo things");
        assert_eq!(
            files.digests["SKILL.md"],
            FileDigest::of(document.as_bytes())
        );
        assert_eq!(files.digests.len(), 3);
        let one = build(&dir.path().join("foo"), "t").unwrap();
        assert_eq!(one.index["skills"][0]["name"], "foo");
    }
}
