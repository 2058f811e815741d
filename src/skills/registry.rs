//! The skills of one snapshot: found by name, and by what they are bound to.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::{Fault, Skill};
use super::folder;
use super::grants::{Grants, declared_name};
use super::search;
use crate::auth::Scopes;
use crate::catalog::{Catalog, Tool};
use crate::error::{Problem, Weight};

/// Below the ATI folder.
pub const FOLDER: &str = "skills";
/// More folders than this are not looked at.
const MOST_SKILLS: usize = 20_000;

#[derive(Default)]
pub struct Registry {
    /// In the order of their names.
    skills: Vec<Arc<Skill>>,
    by_name: HashMap<String, usize>,
    by_folder: HashMap<String, usize>,
    by_tool: HashMap<String, Vec<usize>>,
    by_provider: HashMap<String, Vec<usize>>,
    by_category: HashMap<String, Vec<usize>>,
}

/// One folder below `skills/`.
pub struct Installed {
    pub path: PathBuf,
    pub skill: Result<Skill, Fault>,
}

impl Installed {
    /// The name of its folder.
    pub fn folder_name(&self) -> Option<&str> {
        self.path.file_name().and_then(|name| name.to_str())
    }

    /// The folder that is used in place of this one, because it has a skill of the same name.
    pub fn shadowed_by<'a>(&self, all: &'a [Installed]) -> Option<&'a Path> {
        let own = self.skill.as_ref().ok()?;
        let others = all.iter().filter_map(|other| other.skill.as_ref().ok());
        let first = others
            .filter(|other| other.name == own.name)
            .min_by_key(|one| rank(one))?;
        (first.folder != own.folder).then_some(first.folder.as_path())
    }
}

/// The order of skills. Of those with the same name the first one is used: the one whose folder is
/// named like it. A stranger's skill must not take the place of one that is there by the name of
/// its folder.
fn rank(skill: &Skill) -> (&str, bool, &Path) {
    let is_foreign = skill
        .folder
        .file_name()
        .is_none_or(|own| own != skill.name.as_str());
    (&skill.name, is_foreign, &skill.folder)
}

impl Registry {
    /// The skills of an ATI folder. A folder that is no skill is skipped, and named in a warning.
    pub fn load(ati_dir: &Path, warnings: &mut Vec<Problem>) -> Self {
        let mut found = Vec::new();
        for installed in Registry::scan(ati_dir, warnings) {
            match installed.skill {
                Ok(skill) => found.push(skill),
                Err(fault) => warnings.push(skipped(&installed.path, &fault)),
            }
        }
        Registry::of(found, warnings)
    }

    /// Every folder below `skills/` in the order of their names, bad ones included. Names that
    /// begin with a dot are none: installations in progress have such names.
    pub fn scan(ati_dir: &Path, warnings: &mut Vec<Problem>) -> Vec<Installed> {
        let dir = ati_dir.join(FOLDER);
        let listed = std::fs::read_dir(&dir).and_then(|entries| {
            let entries = entries.take(MOST_SKILLS);
            entries.collect::<std::io::Result<Vec<_>>>()
        });
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
            Err(e) => {
                warnings.push(advised(
                    Problem::new(format!("can't be read: {e}")).file(&dir),
                ));
                return Vec::new();
            }
        };
        entries.retain(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type();
            let skill = match kind {
                Ok(kind) if kind.is_dir() => folder::read(&path),
                Ok(kind) if kind.is_symlink() => Err(Fault::Unreadable(
                    "it is a link, and must be a folder".to_owned(),
                )),
                Ok(_) => continue,
                Err(e) => Err(Fault::Unreadable(e.to_string())),
            };
            found.push(Installed { path, skill });
        }
        found
    }

    /// Of two skills with the same name the first one stays.
    fn of(mut skills: Vec<Skill>, warnings: &mut Vec<Problem>) -> Self {
        skills.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let mut registry = Registry::default();
        for skill in skills {
            if let Some(&known) = registry.by_name.get(&skill.name) {
                let first = registry.skills[known].folder.display();
                let message = format!("skipped: {first} has the same name, '{}'", skill.name);
                warnings.push(advised(Problem::new(message).file(&skill.folder)));
                continue;
            }
            let at = registry.skills.len();
            registry.by_name.insert(skill.name.clone(), at);
            if let Some(folder) = skill.folder.file_name().and_then(|name| name.to_str()) {
                registry.by_folder.insert(folder.to_owned(), at);
            }
            let index = |map: &mut HashMap<String, Vec<usize>>, names: &[String]| {
                for name in names {
                    let places = map.entry(name.clone()).or_default();
                    if places.last() != Some(&at) {
                        places.push(at);
                    }
                }
            };
            index(&mut registry.by_tool, &skill.bindings.tools);
            index(&mut registry.by_provider, &skill.bindings.providers);
            index(&mut registry.by_category, &skill.bindings.categories);
            registry.skills.push(Arc::new(skill));
        }
        registry
    }

    pub fn len(&self) -> usize {
        self.skills.len()
    }

    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.iter()
    }

    /// By its name, or by the name of its folder.
    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        let at = self
            .by_name
            .get(name)
            .or_else(|| self.by_folder.get(name))?;
        Some(&self.skills[*at])
    }

    pub fn bound_to_tool(&self, tool: &str) -> impl Iterator<Item = &Arc<Skill>> {
        self.at(self.by_tool.get(tool))
    }

    pub fn bound_to_provider(&self, provider: &str) -> impl Iterator<Item = &Arc<Skill>> {
        self.at(self.by_provider.get(provider))
    }

    fn at(&self, places: Option<&Vec<usize>>) -> impl Iterator<Item = &Arc<Skill>> {
        places.into_iter().flatten().map(|at| &self.skills[*at])
    }

    /// What a tool's description names: the manifest's skills, then those that are bound to the
    /// tool, then those that are bound to its provider.
    pub fn names_for<'a>(&'a self, tool: &'a Tool) -> Vec<&'a str> {
        let named = tool
            .provider
            .skills
            .iter()
            .map(|named| declared_name(named));
        let bound = self.bound_to_tool(&tool.name);
        let bound = bound.chain(self.bound_to_provider(&tool.provider.name));
        let mut seen = HashSet::new();
        let mut names: Vec<&str> = named
            .chain(bound.map(|skill| skill.name.as_str()))
            .collect();
        names.retain(|name| seen.insert(*name));
        names
    }

    /// The skills that a caller with these scopes may see.
    pub fn visible<'a>(&'a self, scopes: &Scopes, catalog: &Catalog) -> Visible<'a> {
        let seen = if scopes.iter().any(|word| word == "*") {
            vec![true; self.skills.len()]
        } else {
            self.granted(&Grants::to_see(scopes, catalog))
        };
        Visible {
            registry: self,
            seen,
        }
    }

    /// The skills that these scopes load by themselves. A lone `*` loads none.
    pub fn resolve(&self, scopes: &Scopes, catalog: &Catalog) -> Vec<&Arc<Skill>> {
        let words: Vec<&str> = scopes.iter().filter(|word| *word != "*").collect();
        let scopes = Scopes::parse(&words.join(" "));
        let granted = self.granted(&Grants::to_load(&scopes, catalog));
        let all = self.skills.iter().zip(granted);
        all.filter(|(_, granted)| *granted)
            .map(|(skill, _)| skill)
            .collect()
    }

    /// Which skills are granted, with everything that they depend on.
    fn granted(&self, grants: &Grants<'_>) -> Vec<bool> {
        let open = |skill: &Arc<Skill>| grants.open(&skill.name, &skill.bindings);
        let mut granted: Vec<bool> = self.skills.iter().map(open).collect();
        let mut left: Vec<usize> = (0..granted.len()).filter(|at| granted[*at]).collect();
        while let Some(at) = left.pop() {
            for name in &self.skills[at].bindings.depends_on {
                if let Some(&wanted) = self.by_name.get(name)
                    && !granted[wanted]
                {
                    granted[wanted] = true;
                    left.push(wanted);
                }
            }
        }
        granted
    }
}

/// Which skills of a list are wanted. Only the first one that is set is used.
#[derive(Default)]
pub struct Filter<'a> {
    pub search: Option<&'a str>,
    pub category: Option<&'a str>,
    pub provider: Option<&'a str>,
    pub tool: Option<&'a str>,
}

impl<'a> Filter<'a> {
    /// As parameters of `/skills`.
    pub fn pairs(&self) -> Vec<(&'static str, &'a str)> {
        let all = [
            ("search", self.search),
            ("category", self.category),
            ("provider", self.provider),
            ("tool", self.tool),
        ];
        let set = all.into_iter();
        set.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// The part of a registry that one caller may see.
pub struct Visible<'a> {
    registry: &'a Registry,
    seen: Vec<bool>,
}

impl<'a> Visible<'a> {
    pub fn iter(&self) -> impl Iterator<Item = &'a Arc<Skill>> {
        let skills = self.registry.skills.iter().zip(&self.seen);
        skills.filter(|(_, seen)| **seen).map(|(skill, _)| skill)
    }

    pub fn filtered(&self, filter: &Filter<'_>) -> Vec<&'a Arc<Skill>> {
        let all = self.registry;
        let places = if let Some(query) = filter.search {
            return search::search(self.iter(), query);
        } else if let Some(category) = filter.category {
            all.by_category.get(category)
        } else if let Some(provider) = filter.provider {
            all.by_provider.get(provider)
        } else if let Some(tool) = filter.tool {
            all.by_tool.get(tool)
        } else {
            return self.iter().collect();
        };
        all.at(places)
            .filter(|skill| self.contains(skill))
            .collect()
    }

    pub fn get(&self, name: &str) -> Option<&'a Arc<Skill>> {
        let skill = self.registry.get(name)?;
        self.contains(skill).then_some(skill)
    }

    pub fn contains(&self, skill: &Skill) -> bool {
        let at = self.registry.by_name.get(&skill.name);
        at.is_some_and(|at| self.seen[*at])
    }
}

fn skipped(path: &Path, fault: &Fault) -> Problem {
    let problem = advised(Problem::new(format!("skipped: {fault}")).file(path));
    match fault {
        // A folder that is for something else does no harm.
        Fault::Empty => problem.weight(Weight::Tolerated),
        _ => problem,
    }
}

fn advised(problem: Problem) -> Problem {
    problem.advice(
        "skills",
        "mend or remove it; ati skill validate checks one: docs/skills.md",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(skills: &[(&str, &str)]) -> Registry {
        let parse = |(name, toml): &(&str, &str)| {
            let toml = format!("[skill]\nname = '{name}'\n{toml}");
            Skill::parse(name, None, Some(&toml)).unwrap()
        };
        let mut warnings = Vec::new();
        let registry = Registry::of(skills.iter().map(parse).collect(), &mut warnings);
        assert!(warnings.is_empty());
        registry
    }

    fn names<'a>(skills: impl IntoIterator<Item = &'a Arc<Skill>>) -> Vec<&'a str> {
        skills
            .into_iter()
            .map(|skill| skill.name.as_str())
            .collect()
    }

    #[test]
    fn dependencies_come_along_and_a_circle_ends() {
        let registry = registry(&[
            ("a", "depends_on = ['b']"),
            ("b", "depends_on = ['c', 'absent']"),
            ("c", "depends_on = ['a']"),
            ("d", ""),
        ]);
        let catalog = Catalog::default();
        let scopes = Scopes::parse("skill:a");
        assert_eq!(names(registry.resolve(&scopes, &catalog)), ["a", "b", "c"]);
        let visible = registry.visible(&scopes, &catalog);
        assert_eq!(names(visible.iter()), ["a", "b", "c"]);
        assert!(visible.get("d").is_none());
    }

    #[test]
    fn lone_star_shows_everything_and_loads_nothing() {
        let registry = registry(&[("a", ""), ("b", "tools = ['t']")]);
        let catalog = Catalog::default();
        let all = Scopes::parse("*");
        assert_eq!(names(registry.visible(&all, &catalog).iter()), ["a", "b"]);
        assert!(registry.resolve(&all, &catalog).is_empty());
        let both = Scopes::parse("* skill:a");
        assert_eq!(names(registry.resolve(&both, &catalog)), ["a"]);
        let none = Scopes::parse("help");
        assert!(names(registry.visible(&none, &catalog).iter()).is_empty());
    }

    #[test]
    fn bad_folders_are_skipped_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &[u8]| {
            let path = dir.path().join("skills").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("good/SKILL.md", b"---\nname: good\n---\n");
        write("again/SKILL.md", b"---\nname: good\n---\n");
        write("broken/skill.toml", b"[skill");
        write("binary/SKILL.md", &[0xff]);
        write("empty/notes.txt", b"");
        write(".install-1/SKILL.md", b"half");
        write("README.md", b"");
        std::os::unix::fs::symlink("/etc", dir.path().join("skills/link")).unwrap();
        let mut warnings = Vec::new();
        let registry = Registry::load(dir.path(), &mut warnings);
        assert_eq!(names(registry.iter()), ["good"]);
        assert_eq!(
            registry.get("good").unwrap().folder,
            dir.path().join("skills/good")
        );
        let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        for bad in ["again", "broken", "binary", "empty", "link"] {
            assert!(
                texts
                    .iter()
                    .any(|text| text.contains(&format!("skills/{bad}: "))),
                "{texts:?}"
            );
        }
        assert_eq!(texts.len(), 5, "{texts:?}");
        let nothing = Registry::load(Path::new("/nonexistent"), &mut warnings);
        assert!(nothing.is_empty());
    }
}
