//! A skill's own words about itself: front-matter of `SKILL.md`, then `skill.toml`, then what the
//! text lets one guess.

use std::borrow::Cow;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use toml::Table;

use super::grants::Bindings;
use super::integrity::Integrity;
use super::name::{LONGEST_NAME, is_skill_name};
use super::{DOCUMENT, METADATA};

/// The version of a skill that names none.
const FIRST_VERSION: &str = "0.1.0";
/// Bytes of front-matter.
const LONGEST_FRONT_MATTER: usize = 64 << 10;

/// Where a skill's description of itself comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Anthropic,
    LegacyToml,
    Inferred,
}

impl Format {
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Anthropic => "anthropic",
            Format::LegacyToml => "legacy-toml",
            Format::Inferred => "inferred",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    pub version: String,
    pub description: String,
    pub author: Option<String>,
    pub bindings: Bindings,
    pub keywords: Vec<String>,
    pub hint: Option<String>,
    /// Skills that go well with it. They aren't loaded with it.
    pub suggests: Vec<String>,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    pub when_to_use: Option<String>,
    pub allowed_tools: Option<String>,
    /// Further entries of the front-matter's `metadata`.
    pub metadata: Map<String, Value>,
    pub format: Format,
    /// `SKILL.md` without its front-matter; empty where there is none.
    pub body: String,
    /// How many bytes and lines `SKILL.md` has; none where there is no such file.
    pub document_size: Option<(usize, usize)>,
    pub integrity: Integrity,
    /// The folder that it was read from; empty for one that wasn't read from a folder.
    pub folder: PathBuf,
}

/// Why a folder is no skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it has neither {DOCUMENT} nor {METADATA}")]
    Empty,
    #[error("{DOCUMENT} is not UTF-8")]
    NotText,
    #[error("{METADATA}: {0}")]
    Metadata(String),
    #[error(
        "'{0}' is no name for a skill: lower-case letters, digits and single hyphens between them, \
         at most {LONGEST_NAME} characters"
    )]
    Name(String),
    #[error("{0}")]
    Unreadable(String),
}

impl Skill {
    /// From the two files of a skill. `folder` is the name of the folder that they are in.
    pub fn parse(
        folder: &str,
        document: Option<&[u8]>,
        metadata: Option<&str>,
    ) -> Result<Self, Fault> {
        if document.is_none() && metadata.is_none() {
            return Err(Fault::Empty);
        }
        let text = match document {
            None => None,
            Some(bytes) => Some(std::str::from_utf8(bytes).map_err(|_| Fault::NotText)?),
        };
        let table = match metadata {
            None => None,
            Some(text) => Some(parse_toml(text).map_err(Fault::Metadata)?),
        };
        let integrity = table.as_ref().map(Integrity::of).unwrap_or_default();
        let written = Fields(table.and_then(skill_table));
        let split = Document::split(text.unwrap_or_default());
        let front = split.front.and_then(front_matter);
        let mut skill = Skill {
            name: String::new(),
            version: FIRST_VERSION.to_owned(),
            description: String::new(),
            author: None,
            bindings: Bindings {
                tools: written.list("tools"),
                providers: written.list("providers"),
                categories: written.list("categories"),
                depends_on: written.list("depends_on"),
            },
            keywords: written.list("keywords"),
            hint: written.text("hint"),
            suggests: written.list("suggests"),
            license: None,
            compatibility: None,
            when_to_use: None,
            allowed_tools: None,
            metadata: Map::new(),
            format: Format::Inferred,
            // Front-matter that can't be read is a part of the text.
            body: match (&front, text) {
                (Some(_), _) => split.body.to_owned(),
                (None, text) => text.unwrap_or_default().to_owned(),
            },
            document_size: text.map(|text| (text.len(), text.lines().count())),
            integrity,
            folder: PathBuf::new(),
        };
        match front {
            Some(front) => skill.take_front_matter(front),
            None => skill.take_metadata(&written),
        }
        if skill.name.is_empty() {
            skill.name = folder.to_owned();
        }
        if skill.description.is_empty() {
            skill.description = inferred_description(split.body);
        }
        if is_skill_name(&skill.name) {
            Ok(skill)
        } else {
            Err(Fault::Name(clip(&skill.name)))
        }
    }

    fn take_front_matter(&mut self, mut front: Map<String, Value>) {
        let mut take = |keys: &[&str]| {
            let found = keys.iter().find_map(|key| front.shift_remove(*key));
            found.as_ref().and_then(plain)
        };
        self.format = Format::Anthropic;
        self.name = take(&["name"]).unwrap_or_default();
        self.description = take(&["description"]).unwrap_or_default();
        self.license = take(&["license"]);
        self.compatibility = take(&["compatibility"]);
        self.when_to_use = take(&["when_to_use", "when-to-use"]);
        self.allowed_tools = take(&["allowed-tools", "allowed_tools"]);
        if let Some(Value::Object(mut metadata)) = front.shift_remove("metadata") {
            let mut take = |key: &str| metadata.shift_remove(key).as_ref().and_then(plain);
            self.author = take("author");
            self.version = take("version").unwrap_or_else(|| FIRST_VERSION.to_owned());
            self.metadata = metadata;
        }
    }

    fn take_metadata(&mut self, written: &Fields) {
        if written.0.is_some() {
            self.format = Format::LegacyToml;
        }
        self.name = written.text("name").unwrap_or_default();
        self.description = written.text("description").unwrap_or_default();
        self.author = written.text("author");
        if let Some(version) = written.text("version") {
            self.version = version;
        }
        self.license = written.text("license");
        self.compatibility = written.text("compatibility");
        self.when_to_use = written.text("when_to_use");
        self.allowed_tools = written.text("allowed_tools");
        if let Some(toml::Value::Table(more)) = written.value("extra_metadata")
            && let Ok(Value::Object(more)) = serde_json::to_value(more)
        {
            self.metadata = more;
        }
    }

    /// A row of a list.
    pub fn item(&self) -> Value {
        json!({
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "tools": self.bindings.tools,
            "providers": self.bindings.providers,
            "categories": self.bindings.categories,
            "hint": self.hint,
        })
    }

    /// Everything but the text.
    pub fn meta(&self) -> Value {
        json!({
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "author": self.author,
            "tools": self.bindings.tools,
            "providers": self.bindings.providers,
            "categories": self.bindings.categories,
            "keywords": self.keywords,
            "hint": self.hint,
            "depends_on": self.bindings.depends_on,
            "suggests": self.suggests,
            "license": self.license,
            "compatibility": self.compatibility,
            "allowed_tools": self.allowed_tools,
            "when_to_use": self.when_to_use,
            "metadata": self.metadata,
            "format": self.format.as_str(),
        })
    }
}

/// A text with front-matter between two lines of three hyphens.
struct Document<'a> {
    front: Option<&'a str>,
    /// What follows it.
    body: &'a str,
}

impl<'a> Document<'a> {
    fn split(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let without = Document {
            front: None,
            body: text,
        };
        let mut at = 0;
        let mut begin = None;
        for line in text.split_inclusive('\n') {
            let is_mark = line.trim_end() == "---";
            match (is_mark, begin) {
                (true, None) if at == 0 => begin = Some(line.len()),
                (_, None) => return without,
                (true, Some(begin)) => {
                    let body = &text[at + line.len()..];
                    return Document {
                        front: Some(&text[begin..at]),
                        body: body.trim_start_matches(['\r', '\n']),
                    };
                }
                (false, Some(_)) => {}
            }
            at += line.len();
        }
        without
    }
}

/// The front-matter of a document as a map, every entry as it is written. None where there is none
/// that can be read.
pub fn front_matter_of(text: &str) -> Option<Map<String, Value>> {
    Document::split(text).front.and_then(front_matter)
}

/// The front-matter as a map. None where it isn't YAML, or no map.
fn front_matter(text: &str) -> Option<Map<String, Value>> {
    if text.len() > LONGEST_FRONT_MATTER {
        return None;
    }
    // With a budget: an alias can stand for a million of itself.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_events: 20_000,
            max_nodes: 10_000,
            max_depth: 32,
            max_total_scalar_bytes: LONGEST_FRONT_MATTER,
        },
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}

/// A value as text: lists are joined, numbers and booleans are written.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().filter_map(plain).collect();
            Some(items.join(", "))
        }
        Value::Null | Value::Object(_) => None,
    }
    .filter(|text| !text.is_empty())
}

/// The first line that is neither empty nor a heading.
fn inferred_description(body: &str) -> String {
    let mut lines = body.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#') && *line != "---");
    line.unwrap_or_default().to_owned()
}

fn parse_toml(text: &str) -> Result<Table, String> {
    text.parse::<Table>()
        .map_err(|e| clip(e.message().lines().next().unwrap_or_default()))
}

fn skill_table(mut table: Table) -> Option<Table> {
    match table.remove("skill") {
        Some(toml::Value::Table(skill)) => Some(skill),
        _ => None,
    }
}

/// The `[skill]` table. Fields of another type than they should have are as good as absent.
struct Fields(Option<Table>);

impl Fields {
    fn value(&self, key: &str) -> Option<&toml::Value> {
        self.0.as_ref()?.get(key)
    }

    fn text(&self, key: &str) -> Option<String> {
        let text: Cow<'_, str> = match self.value(key)? {
            toml::Value::String(text) => text.trim().into(),
            toml::Value::Array(_) => self.list(key).join(", ").into(),
            other => other.to_string().into(),
        };
        Some(text.into_owned()).filter(|text| !text.is_empty())
    }

    /// A list of texts; a text alone is a list of one.
    fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(toml::Value::Array(items)) => {
                let texts = items.iter().filter_map(toml::Value::as_str);
                texts.map(str::to_owned).collect()
            }
            Some(toml::Value::String(text)) => vec![text.clone()],
            _ => Vec::new(),
        }
    }
}

fn clip(text: &str) -> String {
    crate::text::clip(text, 200).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(document: Option<&str>, metadata: Option<&str>) -> Skill {
        Skill::parse("own-folder", document.map(str::as_bytes), metadata).unwrap()
    }

    #[test]
    fn front_matter_comes_first_and_bindings_from_the_other_file() {
        let skill = parse(
            Some(
                "---\nname: in-front\ndescription: From the front\nlicense: MIT\n\
                 allowed-tools: [Bash, Read]\nwhen-to-use: always\n\
                 metadata:\n  author: ann\n  version: 1.5\n  team: x\n---\n\n# Title\nText\n",
            ),
            Some(
                "[skill]\nname = 'in-toml'\ndescription = 'no'\nversion = '9'\nauthor = 'no'\n\
                 tools = ['t']\nproviders = ['p']\ncategories = ['c']\nkeywords = ['k']\nhint = 'h'\n\
                 depends_on = ['d']\nsuggests = ['s']\n",
            ),
        );
        assert_eq!(skill.name, "in-front");
        assert_eq!(skill.description, "From the front");
        assert_eq!(
            (skill.version.as_str(), skill.author.as_deref()),
            ("1.5", Some("ann"))
        );
        assert_eq!(skill.allowed_tools.as_deref(), Some("Bash, Read"));
        assert_eq!(skill.when_to_use.as_deref(), Some("always"));
        assert_eq!(skill.license.as_deref(), Some("MIT"));
        assert_eq!(Value::Object(skill.metadata.clone()), json!({"team": "x"}));
        assert_eq!(skill.bindings.tools, ["t"]);
        assert_eq!(skill.bindings.depends_on, ["d"]);
        assert_eq!(
            (skill.hint.as_deref(), skill.format),
            (Some("h"), Format::Anthropic)
        );
        assert_eq!(skill.body, "# Title\nText\n");
    }

    #[test]
    fn without_front_matter_the_other_file_and_then_the_text_say_what_it_is() {
        let toml = "[skill]\nname = 'in-toml'\ndescription = 'D'\nversion = '2.0'\nauthor = 'bob'";
        let skill = parse(Some("# Title\n\nText\n"), Some(toml));
        assert_eq!(
            (skill.name.as_str(), skill.format),
            ("in-toml", Format::LegacyToml)
        );
        assert_eq!(
            (skill.description.as_str(), skill.version.as_str()),
            ("D", "2.0")
        );
        assert_eq!(parse(None, Some(toml)).body, "");

        let skill = parse(Some("\n# Title\n\nFirst line.\nMore.\n"), None);
        assert_eq!(
            (skill.name.as_str(), skill.format),
            ("own-folder", Format::Inferred)
        );
        assert_eq!(skill.description, "First line.");
        assert_eq!(skill.version, "0.1.0");
    }

    #[test]
    fn front_matter_that_cannot_be_read_is_text() {
        for odd in [
            "---\nname: [\n---\nText\n",
            "---\njust words\n---\nText\n",
            "---\nname: x\nText without an end\n",
            "text\n---\nname: x\n---\n",
        ] {
            let skill = parse(Some(odd), None);
            assert_eq!(skill.format, Format::Inferred, "{odd}");
            assert_eq!(
                (skill.name.as_str(), skill.body.as_str()),
                ("own-folder", odd)
            );
        }
        let bomb = format!(
            "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [{0}]\nc: &c [{1}]\nd: &d [{2}]\ne: [{3}]\n---\n",
            "*a,".repeat(40),
            "*b,".repeat(40),
            "*c,".repeat(40),
            "*d,".repeat(40)
        );
        assert_eq!(parse(Some(&bomb), None).format, Format::Inferred);
    }

    #[test]
    fn windows_line_ends_and_a_byte_order_mark_are_taken() {
        let skill = parse(
            Some("\u{feff}---\r\nname: win\r\n---\r\n\r\nText\r\n"),
            None,
        );
        assert_eq!(
            (skill.name.as_str(), skill.body.as_str()),
            ("win", "Text\r\n")
        );
    }

    #[test]
    fn folder_that_is_no_skill_says_why() {
        let fault =
            |document: Option<&[u8]>, metadata| Skill::parse("x", document, metadata).unwrap_err();
        assert_eq!(fault(None, None), Fault::Empty);
        assert_eq!(fault(Some(&[0xff]), None), Fault::NotText);
        assert!(matches!(fault(None, Some("[skill")), Fault::Metadata(_)));
        for bad in ["../x", "Bad_Name", "a b"] {
            let text = format!("---\nname: {bad}\n---\n");
            assert_eq!(
                fault(Some(text.as_bytes()), None),
                Fault::Name(bad.to_owned())
            );
        }
    }
}
