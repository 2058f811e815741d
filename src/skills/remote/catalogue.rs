//! The catalogue: what a registry says about its skills, from an index or from their documents.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::path::resolve;
use crate::skills::served::SkillFiles;
use crate::skills::{Bindings, is_skill_name};

/// Skills of one catalogue.
const MOST_SKILLS: usize = 100_000;
/// Answers of a search.
const MOST_FOUND: usize = 25;

/// One line of the catalogue, as callers see it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub name: String,
    pub description: String,
    pub skill_directory: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_to_use: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Skill {
    pub entry: Entry,
    /// What it is bound to, for the decision who sees it.
    pub bindings: Bindings,
    /// The entry as JSON, made once for all lists.
    pub text: Box<str>,
    /// Its files without SKILL.md and skill.toml. None: only the registry can tell.
    pub resources: Option<Vec<String>>,
    /// Digests of its files, where the index has them.
    pub files: Option<Arc<SkillFiles>>,
}

impl Skill {
    pub fn new(
        mut entry: Entry,
        resources: Option<Vec<String>>,
        files: Option<SkillFiles>,
    ) -> Self {
        entry.skill_directory = directory(&entry.name);
        let text = serde_json::to_string(&entry).unwrap_or_default();
        Skill {
            bindings: Bindings {
                tools: entry.tools.clone(),
                providers: entry.providers.clone(),
                categories: entry.categories.clone(),
                depends_on: Vec::new(),
            },
            entry,
            text: text.into(),
            resources,
            files: files.map(Arc::new),
        }
    }
}

/// The URI that stands for a skill's folder.
pub fn directory(name: &str) -> String {
    format!("skillati://{name}")
}

/// Where a catalogue is from, and what tells that it is still the same.
#[derive(Debug, Clone)]
pub enum Origin {
    Index { object: String, tag: Option<String> },
    Listing { tags: HashMap<String, String> },
}

#[derive(Debug)]
pub struct Catalogue {
    /// In the order of names.
    pub skills: Vec<Skill>,
    by_name: HashMap<String, usize>,
    pub origin: Origin,
}

impl Catalogue {
    pub fn new(mut skills: Vec<Skill>, origin: Origin) -> Self {
        skills.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        skills.dedup_by(|second, first| second.entry.name == first.entry.name);
        skills.truncate(MOST_SKILLS);
        let names = skills.iter().enumerate();
        let by_name = names.map(|(index, skill)| (skill.entry.name.clone(), index));
        Catalogue {
            by_name: by_name.collect(),
            skills,
            origin,
        }
    }

    pub fn find(&self, name: &str) -> Option<&Skill> {
        self.by_name.get(name).map(|index| &self.skills[*index])
    }

    /// Those that match most of the words come first, then the order of names counts.
    pub fn search<'c>(
        &'c self,
        query: &str,
        is_visible: impl Fn(&Skill) -> bool,
    ) -> Vec<&'c Skill> {
        let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
        let scored = self.skills.iter().filter_map(|skill| {
            let text = searched(&skill.entry);
            let score = words.iter().filter(|word| text.contains(*word)).count();
            (score > 0).then_some((score, skill))
        });
        let mut found: Vec<_> = scored.filter(|(_, skill)| is_visible(skill)).collect();
        // Stable, so equal ones stay in the order of names.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.truncate(MOST_FOUND);
        found.into_iter().map(|(_, skill)| skill).collect()
    }
}

fn searched(entry: &Entry) -> String {
    let lists = [
        &entry.keywords,
        &entry.tools,
        &entry.providers,
        &entry.categories,
    ];
    let mut text = format!("{}\n{}", entry.name, entry.description);
    let more = entry.when_to_use.iter().chain(lists.into_iter().flatten());
    for word in more {
        text.push('\n');
        text.push_str(word);
    }
    text.to_lowercase()
}

#[derive(Deserialize)]
struct RawIndex {
    #[serde(default = "first_version")]
    version: u64,
    skills: Vec<serde_json::Value>,
}

fn first_version() -> u64 {
    1
}

#[derive(Deserialize)]
struct RawSkill {
    /// Some indexes have the entry in a member of its own.
    meta: Option<RawEntry>,
    #[serde(flatten)]
    entry: Option<RawEntry>,
    resources: Option<Vec<String>>,
    resources_complete: Option<bool>,
    files: Option<SkillFiles>,
}

#[derive(Deserialize)]
struct RawEntry {
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    when_to_use: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    keywords: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    providers: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    categories: Vec<String>,
}

/// `null` counts as absent.
fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    value: D,
) -> Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// The skills of an index. Those that can't be used are left out, with their number; an index that
/// can't be read is an error.
pub fn read_index(text: &[u8]) -> Result<(Vec<Skill>, usize), &'static str> {
    let index: RawIndex =
        serde_json::from_slice(text).map_err(|_| "it is no JSON object with a list of skills")?;
    if index.version != 1 {
        return Err("its version is not 1");
    }
    let total = index.skills.len();
    let skills: Vec<Skill> = index.skills.into_iter().filter_map(read_skill).collect();
    let unusable = total - skills.len();
    Ok((skills, unusable))
}

fn read_skill(value: serde_json::Value) -> Option<Skill> {
    let raw: RawSkill = serde_json::from_value(value).ok()?;
    let entry = raw.meta.or(raw.entry)?;
    if !is_skill_name(&entry.name) {
        return None;
    }
    let is_inside = |path: &str| resolve(&entry.name, path).is_ok_and(|place| place.path == path);
    let files = raw.files;
    let files = files.filter(|files| files.digests.keys().all(|path| is_inside(path)));
    let complete = raw.resources_complete.unwrap_or(true);
    let resources = raw.resources.filter(|_| complete).map(|mut paths| {
        paths.retain(|path| is_inside(path));
        paths.sort();
        paths.dedup();
        paths
    });
    let entry = Entry {
        name: entry.name,
        description: entry.description,
        skill_directory: String::new(),
        when_to_use: entry.when_to_use.filter(|text| !text.is_empty()),
        keywords: entry.keywords,
        tools: entry.tools,
        providers: entry.providers,
        categories: entry.categories,
    };
    Some(Skill::new(entry, resources, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, description: &str) -> Skill {
        let entry = Entry {
            name: name.into(),
            description: description.into(),
            ..Entry::default()
        };
        Skill::new(entry, None, None)
    }

    #[test]
    fn index_is_read_with_flat_and_nested_entries_and_without_unusable_ones() {
        let text = br#"{"version":1,"generated_at":"x","skills":[
            {"name":"b","description":"B","tools":["t"],"keywords":null,
             "resources":["scripts/x","../a/SKILL.md","references/r.md"]},
            {"meta":{"name":"a","description":"A","when_to_use":"w"},"resources":[],
             "resources_complete":false},
            {"name":"../x","description":"no name"}, 7, {"description":"none"}]}"#;
        let (skills, unusable) = read_index(text).unwrap();
        assert_eq!(unusable, 3);
        let origin = Origin::Listing {
            tags: HashMap::new(),
        };
        let catalogue = Catalogue::new(skills, origin);
        let a = catalogue.find("a").unwrap();
        assert_eq!(a.resources, None);
        assert_eq!(a.entry.when_to_use.as_deref(), Some("w"));
        let b = catalogue.find("b").unwrap();
        assert_eq!(
            b.resources.as_deref().unwrap(),
            ["references/r.md", "scripts/x"]
        );
        assert_eq!(
            &*b.text,
            r#"{"name":"b","description":"B","skill_directory":"skillati://b","tools":["t"]}"#
        );
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"version":2,"skills":[]}"#,
            r#"{"skills":{}}"#,
        ] {
            assert!(read_index(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn search_ranks_by_matching_words_then_by_name_and_ends_at_25() {
        let mut skills: Vec<Skill> = (0..40)
            .map(|n| named(&format!("s{n:02}"), "about sanctions"))
            .collect();
        skills.push(named("zz", "Sanctions lists of companies"));
        let origin = Origin::Listing {
            tags: HashMap::new(),
        };
        let catalogue = Catalogue::new(skills, origin);
        let found = catalogue.search("SANCTIONS companies", |skill| skill.entry.name != "s01");
        let names: Vec<&str> = found.iter().map(|skill| &*skill.entry.name).collect();
        assert_eq!(names.len(), 25);
        assert_eq!(names[..3], ["zz", "s00", "s02"]);
        assert!(catalogue.search("nothing", |_| true).is_empty());
        assert!(catalogue.search("  ", |_| true).is_empty());
    }
}
