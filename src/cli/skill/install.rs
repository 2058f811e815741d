//! `ati skill install`: everything is fetched, read and checked before the first file gets its
//! place.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::assist::backend::Choice;
use super::super::interrupt::{Ended, Stop, interruptible, on_thread};
use super::super::{Format, output, runtime};
use super::bundled::{BundledProvider, Outcome};
use super::copy::{self, Contents};
use super::generate;
use super::git;
use super::place::{self, Staging, check_name};
use super::source::Source;
use super::twins;
use crate::error::{Code, Failure};
use crate::skills::integrity::Integrity;
use crate::skills::{Skill, folder, is_skill_name};

#[derive(clap::Args)]
pub struct Args {
    /// A folder, a git URL with perhaps #folder and @commit, or the name of a skill of ati's own
    #[arg(required_unless_present = "from_git")]
    source: Option<String>,

    /// A git URL; URLs are recognised without it
    #[arg(long, value_name = "URL", conflicts_with = "source")]
    from_git: Option<String>,

    /// The name of the folder below skills/
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    name: Option<String>,

    /// Every folder of the source that is a skill
    #[arg(long)]
    all: bool,

    /// Let a manifest in the skill start programs or open routes
    #[arg(long)]
    allow_provider: bool,

    /// Replace a skill that was changed since it was installed, or that has the same name
    #[arg(long)]
    force: bool,

    /// Let the local language model (OLLAMA_HOST) write the manifest, and no other
    #[arg(long)]
    local: bool,
}

/// How skills are installed.
#[derive(Clone)]
pub struct Options {
    pub name: Option<String>,
    pub all: bool,
    pub allow_provider: bool,
    pub force: bool,
    /// Which language model may write manifests.
    pub generate: Option<Choice>,
}

pub fn run(args: &Args, asked: Option<Format>) -> Result<u8, Failure> {
    let (text, is_git) = match (&args.from_git, &args.source) {
        (Some(url), _) => (url.as_str(), true),
        (None, source) => (source.as_deref().unwrap_or_default(), false),
    };
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    let options = Options {
        name: args.name.clone(),
        all: args.all,
        allow_provider: args.allow_provider,
        force: args.force,
        generate: Some(generate::choice(args.local)?),
    };
    match from(Source::parse(text, is_git)?, &options)? {
        Ended::Interrupted(code) => Ok(code),
        Ended::Done(installed) => {
            print(&installed, args.all, asked);
            Ok(0)
        }
    }
}

/// A skill that was installed.
pub struct NewSkill {
    pub name: String,
    pub folder: PathBuf,
    provider: Option<(String, Outcome, Vec<String>)>,
}

/// Installs what a source has. A signal ends it before anything has its place.
pub fn from(source: Source, options: &Options) -> Result<Ended<Vec<NewSkill>>, Failure> {
    let options = options.clone();
    commit(async {
        let fetched = fetch(source).await?;
        on_thread(move |stop| stage(fetched.skills(&options, stop)?, &options, stop)).await
    })
}

/// Installs a skill that is fetched. A signal ends it as it ends `from`.
pub fn put(found: Found, options: Options) -> Result<Ended<Vec<NewSkill>>, Failure> {
    let found = match options.name.clone() {
        Some(name) => Found { name, ..found },
        None => found,
    };
    commit(on_thread(move |stop| stage(vec![found], &options, stop)))
}

fn commit(
    staged: impl Future<Output = Result<Staged, Failure>>,
) -> Result<Ended<Vec<NewSkill>>, Failure> {
    match runtime()?.block_on(interruptible(staged))? {
        Ended::Interrupted(code) => Ok(Ended::Interrupted(code)),
        Ended::Done(staged) => staged.commit().map(Ended::Done),
    }
}

/// What a source has, on this machine.
pub struct Fetched {
    source: Source,
    root: Root,
    /// The commit, where the source is a repository.
    commit: Option<String>,
}

enum Root {
    Folder(PathBuf),
    /// Removed when it is dropped.
    Temporary(PathBuf, #[allow(dead_code)] TempDir),
    Files(Contents),
}

pub async fn fetch(source: Source) -> Result<Fetched, Failure> {
    let failed = |e| Failure::new(Code::ExecutionFailed, "a temporary folder").because(e);
    let (root, commit) = match &source {
        Source::Folder(path) => (Root::Folder(path.clone()), None),
        Source::Shipped(shipped) => {
            let files = shipped.files.iter();
            let files =
                files.map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), false)));
            (Root::Files(files.collect()), None)
        }
        Source::Git(git) => {
            let temporary = tempfile::Builder::new().prefix("ati-skill-").tempdir();
            let temporary = temporary.map_err(failed)?;
            let cloned = git::clone(git, temporary.path()).await?;
            let root = match &git.subdir {
                None => cloned.root,
                Some(subdir) => below(&cloned.root, subdir)?,
            };
            (Root::Temporary(root, temporary), Some(cloned.commit))
        }
    };
    Ok(Fetched {
        source,
        root,
        commit,
    })
}

/// A folder of a clone, without a link on the way.
fn below(root: &Path, subdir: &str) -> Result<PathBuf, Failure> {
    let mut path = root.to_path_buf();
    for part in Path::new(subdir).components() {
        path.push(part);
        if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            let message = format!("the repository has no folder '{subdir}'");
            return Err(Failure::new(Code::ExecutionFailed, message));
        }
    }
    Ok(path)
}

/// A skill of a source, read.
pub struct Found {
    /// Of its folder below `skills/`.
    pub name: String,
    pub contents: Contents,
    pub source: Source,
    /// The commit, where the source names one.
    pinned: Option<String>,
    provider: Option<BundledProvider>,
}

impl Fetched {
    fn skills(&self, options: &Options, stop: &Stop) -> Result<Vec<Found>, Failure> {
        if options.all {
            return self.children(options, stop);
        }
        let found = match &self.root {
            Root::Files(contents) => Found {
                name: shipped_name(&self.source),
                contents: contents.clone(),
                source: self.source.clone(),
                pinned: None,
                provider: None,
            },
            Root::Folder(path) | Root::Temporary(path, _) => self.one(path, &self.source)?,
        };
        let name = options.name.clone().unwrap_or(found.name);
        Ok(vec![Found { name, ..found }])
    }

    /// The skill of the source itself, under the name that it is installed as.
    pub fn only(&self) -> Result<Found, Failure> {
        let options = Options {
            name: None,
            all: false,
            allow_provider: false,
            force: false,
            generate: None,
        };
        let mut found = self.skills(&options, &Stop::default())?;
        found
            .pop()
            .ok_or_else(|| Failure::invalid("the source has no skill"))
    }

    fn children(&self, options: &Options, stop: &Stop) -> Result<Vec<Found>, Failure> {
        let (Root::Folder(root) | Root::Temporary(root, _)) = &self.root else {
            let options = Options {
                all: false,
                name: options.name.clone(),
                ..*options
            };
            return self.skills(&options, stop);
        };
        let mut found = Vec::new();
        for path in skills_below(root) {
            stop.check()?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            found.push(self.one(&path, &self.source.child(&name))?);
        }
        if found.is_empty() {
            let message = format!("No skills found in '{}'", self.source.recorded());
            return Err(Failure::new(Code::ExecutionFailed, message));
        }
        let mut names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("two skills of the source are named '{}'", twice[0]);
            return Err(Failure::invalid(message));
        }
        Ok(found)
    }

    fn one(&self, path: &Path, source: &Source) -> Result<Found, Failure> {
        let shown = source.recorded();
        if !folder::is_skill(path) {
            let message = format!("'{shown}' has neither SKILL.md nor skill.toml");
            let failure = Failure::invalid(message);
            return Err(match skills_below(path).len() {
                0 => failure,
                many => failure.hint(format!("--all installs the {many} skills of its folders")),
            });
        }
        let skill = folder::read(path);
        let skill = skill.map_err(|fault| Failure::invalid(format!("'{shown}': {fault}")))?;
        let contents = copy::read(path);
        let contents = contents.map_err(|e| Failure::invalid(format!("'{shown}'")).because(e))?;
        Ok(Found {
            name: self.name(path, source, &skill)?,
            contents,
            source: source.clone(),
            pinned: self.source.pin().and(self.commit.clone()),
            provider: BundledProvider::of(path)?,
        })
    }

    /// The root of a repository is named after the skill in it, or after the repository. Another
    /// folder is named as it is.
    fn name(&self, path: &Path, source: &Source, skill: &Skill) -> Result<String, Failure> {
        let folder = path.file_name().unwrap_or_default().to_string_lossy();
        let own = match source {
            Source::Git(git) if git.subdir.is_none() => match skill.format {
                crate::skills::Format::Inferred => git.repository(),
                _ if skill.name == folder => git.repository(),
                _ => &skill.name,
            },
            _ => &folder,
        };
        let name = if is_skill_name(own) { own } else { &skill.name };
        check_name(name).map(str::to_owned)
    }
}

fn shipped_name(source: &Source) -> String {
    match source {
        Source::Shipped(shipped) => shipped.name.to_owned(),
        _ => String::new(),
    }
}

/// The folders of a folder that are skills, in the order of their names.
fn skills_below(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let is_folder = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.filter(is_folder).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = folders.filter(|path| folder::is_skill(path)).collect();
    found.sort();
    found
}

/// Skills that are written, and have no place yet.
pub struct Staged {
    staging: Staging,
    skills: Vec<(String, Option<BundledProvider>)>,
    /// Folders that leave their places, because they have skills of the same names.
    replaced: Vec<PathBuf>,
    generate: Option<Choice>,
    allow_provider: bool,
}

/// Writes the skills next to their places.
fn stage(found: Vec<Found>, options: &Options, stop: &Stop) -> Result<Staged, Failure> {
    for one in &found {
        if let Some(provider) = &one.provider {
            provider.check(&one.name, options.allow_provider)?;
        }
        if !options.force {
            keep_changes(one)?;
        }
    }
    let staging = Staging::open()?;
    let mut skills = Vec::new();
    for one in found {
        let source = one.source.recorded();
        let source = (source.as_str(), one.pinned.as_deref());
        copy::write(&one.contents, source, &staging.path(&one.name), stop)?;
        skills.push((one.name, one.provider));
    }
    let folders: Vec<&str> = skills.iter().map(|(name, _)| name.as_str()).collect();
    let replaced = twins::replaced(&staging, &folders, options.force)?;
    Ok(Staged {
        staging,
        skills,
        replaced,
        generate: options.generate,
        allow_provider: options.allow_provider,
    })
}

/// A skill that was changed here, or written here, isn't replaced.
fn keep_changes(new: &Found) -> Result<(), Failure> {
    let target = place::folder().join(&new.name);
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    let refused = |why: String| {
        let message = format!("Skill '{}' is there already, and {why}", new.name);
        Err(Failure::invalid(message).hint("--force replaces it"))
    };
    let (Ok(skill), Ok(now)) = (folder::read(&target), Integrity::measure(&target)) else {
        return refused("can't be read".to_owned());
    };
    let recorded = &skill.integrity;
    if recorded.content_hash.is_none() && recorded.files.is_empty() {
        return refused("was not installed by ati".to_owned());
    }
    let changes = recorded.changes(&now);
    if changes.is_empty() {
        return Ok(());
    }
    let paths = changes.iter().map(|(_, path)| output::printable(path));
    let paths = paths.collect::<Vec<_>>().join(", ");
    refused(format!("was changed since it was installed: {paths}"))
}

impl Staged {
    /// Skills first, then the manifests that they bring. It takes no time worth interrupting.
    fn commit(self) -> Result<Vec<NewSkill>, Failure> {
        let names: Vec<String> = self.skills.iter().map(|(name, _)| name.clone()).collect();
        // Before anything has its place: where it fails, nothing was installed.
        let mut skills = Vec::new();
        for (name, bundled) in self.skills {
            let folder = self.staging.path(&name);
            let provider = match self.generate {
                None => bundled,
                Some(choice) => {
                    let (name, allowed) = (name.as_str(), self.allow_provider);
                    generate::manifest(&folder, name, choice, bundled, allowed)?
                }
            };
            skills.push((name, provider));
        }
        self.staging.commit(&names, &self.replaced)?;
        let mut installed = Vec::new();
        for (name, provider) in skills {
            let provider = match provider {
                None => None,
                Some(one) => {
                    let outcome = one.install()?;
                    Some((one.name, outcome, one.keys))
                }
            };
            installed.push(NewSkill {
                folder: place::folder().join(&name),
                name,
                provider,
            });
        }
        Ok(installed)
    }
}

pub fn print(installed: &[NewSkill], all: bool, asked: Option<Format>) {
    output::lines_or_value(
        asked,
        || {
            for one in installed {
                match all {
                    true => output::line(&format!("Installed '{}'", one.name)),
                    false => {
                        let folder = one.folder.display();
                        output::line(&format!("Installed '{}' to {folder}", one.name));
                    }
                }
                one.print_provider();
            }
            if all {
                output::line(&format!("Installed {} skill(s).", installed.len()));
            }
        },
        || {
            let rows: Vec<Value> = installed.iter().map(NewSkill::as_json).collect();
            json!({"status": "installed", "skills": rows})
        },
    );
}

impl NewSkill {
    pub fn print_provider(&self) {
        let Some((name, outcome, keys)) = &self.provider else {
            return;
        };
        match outcome {
            Outcome::Kept => output::line(&format!(
                "Provider '{name}' already installed, skipping bundled manifest."
            )),
            Outcome::Written(path) => {
                let path = path.display();
                output::line(&format!("Installed bundled provider '{name}' to {path}"));
                if !keys.is_empty() {
                    output::line(&format!("  its tools use these keys: {}", keys.join(", ")));
                }
            }
        }
    }

    fn as_json(&self) -> Value {
        let mut row = json!({"name": self.name, "directory": self.folder});
        if let Some(provider) = self.provider() {
            row["provider"] = provider;
        }
        row
    }

    /// What became of the manifest that it brings along.
    pub fn provider(&self) -> Option<Value> {
        let (name, outcome, keys) = self.provider.as_ref()?;
        let manifest = match outcome {
            Outcome::Written(path) => Some(path),
            Outcome::Kept => None,
        };
        Some(json!({"name": name, "manifest": manifest, "keys": keys}))
    }
}
