//! ATIP metadata: what `tool --agent` prints, and what a shim says for a tool that prints nothing.
//! Versions 0.1 to 0.6 are read, leniently.

use serde_json::Value;

use super::parameter::Parameter;
use crate::catalog::effects::{Effects, Source};
use crate::catalog::json_reader::{Findings, Object, join};

/// Bytes of a document.
pub const LARGEST: u64 = 8 << 20;
/// Commands below commands, and leaf commands of a tool.
const DEEPEST: usize = 16;
const MOST_COMMANDS: usize = 10_000;
/// Characters of a description.
const LONGEST_DESCRIPTION: usize = 200;
/// The revisions that have been published.
const VERSIONS: &[&str] = &["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"];

#[derive(Debug)]
pub struct Metadata {
    pub name: String,
    pub version: String,
    pub description: String,
    pub homepage: Option<String>,
    /// `binary.hash`: the SHA-256 of the only program that the document speaks of.
    pub hash: Option<Hash>,
    /// `trust.source`, which is the document's own claim.
    pub claimed_source: Option<Source>,
    /// Every leaf command.
    pub commands: Vec<Command>,
    pub global_options: Vec<Parameter>,
    pub authentication: Option<Authentication>,
    pub patterns: Vec<Value>,
}

/// A SHA-256 in hexadecimal, small letters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hash(pub String);

impl Hash {
    /// From `sha256:<64 hex>`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hash = digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit());
        is_hash.then(|| Hash(digits.to_ascii_lowercase()))
    }

    /// `sha256:<64 hex>`.
    pub fn text(&self) -> String {
        format!("sha256:{}", self.0)
    }
}

#[derive(Debug)]
pub struct Command {
    /// The words between the program and its arguments; none for the root command.
    pub path: Vec<String>,
    pub description: String,
    pub arguments: Vec<Parameter>,
    pub options: Vec<Parameter>,
    /// Of the command, with those of the tool as a whole.
    pub effects: Effects,
    pub examples: Vec<Value>,
}

#[derive(Debug, Default)]
pub struct Authentication {
    pub required: bool,
    /// The variables that a credential may come in.
    pub env_vars: Vec<String>,
    /// What a person types to log in.
    pub setup_commands: Vec<String>,
    /// What ends well where the tool is logged in.
    pub check_command: Option<String>,
}

impl Metadata {
    /// None where it is no ATIP document at all. Commands that can't be used are left out; `found`
    /// has a problem for each.
    pub fn read(document: &Value, found: &mut Findings) -> Option<Self> {
        let mut o = Object::open(document, "", found)?;
        let before = found.problems.len();
        let version_of_atip = atip_version(&mut o, found);
        let name = o.needed_text("name", found).unwrap_or_default();
        if !name.is_empty() && !is_name(&name) {
            found.problem("name", "only letters, digits, '_' and '-' are allowed");
        }
        let version = o.needed_text("version", found).unwrap_or_default();
        let description = o.needed_text("description", found).unwrap_or_default();
        if description.chars().count() > LONGEST_DESCRIPTION {
            let message = format!("it has more than {LONGEST_DESCRIPTION} characters");
            found.warning("description", message);
        }
        let is_atip = found.problems.len() == before;
        let strict = version_of_atip.as_deref() != Some("0.1");
        let effects = o
            .get("effects")
            .map(|it| Effects::read(it, "effects", found));
        let effects = effects.unwrap_or_default();
        let mut commands = Vec::new();
        if let Some(table) = o.get("commands") {
            let mut tree = Tree {
                strict,
                tool: &effects,
                found,
                commands: &mut commands,
            };
            tree.read(table, "commands", &[], None);
        }
        let options = o.objects("globalOptions", found).into_iter();
        let global_options = options
            .filter_map(|option| Parameter::read_option(option, strict, found))
            .collect();
        let metadata = Metadata {
            name,
            version,
            description,
            homepage: o.text("homepage", found),
            hash: read_hash(&mut o, found),
            claimed_source: read_trust(&mut o, found),
            commands,
            global_options,
            authentication: o
                .object("authentication", found)
                .map(|o| Authentication::read(o, found)),
            patterns: read_patterns(&mut o, found),
        };
        // Of partial discovery: what isn't there isn't a tool.
        for key in [
            "partial",
            "filter",
            "totalCommands",
            "includedCommands",
            "omitted",
        ] {
            o.get(key);
        }
        o.finish(found);
        is_atip.then_some(metadata)
    }

    pub fn parse(text: &str, found: &mut Findings) -> Option<Self> {
        match serde_json::from_str(text) {
            Ok(document) => Metadata::read(&document, found),
            Err(error) => {
                found.problem("", format!("it is no JSON: {error}"));
                None
            }
        }
    }
}

/// `"0.6"`, or `{"version": "0.6", "features": […]}`.
fn atip_version(o: &mut Object<'_>, found: &mut Findings) -> Option<String> {
    let version = match o.get("atip") {
        Some(Value::Object(_)) => {
            let mut inner = o.object("atip", found)?;
            let version = inner.needed_text("version", found);
            inner.texts("features", found);
            inner.text("minAgentVersion", found);
            inner.finish(found);
            version
        }
        _ => o.needed_text("atip", found),
    }?;
    if !VERSIONS.contains(&version.as_str()) {
        let message = format!("'{version}' is none of {}", VERSIONS.join(", "));
        found.warning("atip", message);
    }
    Some(version)
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    name.chars().all(plain)
}

fn read_hash(o: &mut Object<'_>, found: &mut Findings) -> Option<Hash> {
    let mut binary = o.object("binary", found)?;
    for key in ["name", "version"] {
        binary.text(key, found);
    }
    binary.get("platform");
    let text = binary.text("hash", found);
    let hash = text.as_deref().and_then(Hash::parse);
    if text.is_some() && hash.is_none() {
        found.problem(
            "binary.hash",
            "'sha256:' and 64 hexadecimal digits are wanted",
        );
    }
    binary.finish(found);
    // A hash that can't be read matches no program: the document must not count as one without.
    hash.or(text.map(|_| Hash(String::new())))
}

fn read_trust(o: &mut Object<'_>, found: &mut Findings) -> Option<Source> {
    let mut trust = o.object("trust", found)?;
    let text = trust.text("source", found)?;
    let source = Source::named(&text);
    if source.is_none() {
        let message = format!("'{text}' is none of {}", Source::NAMES.join(", "));
        found.problem("trust.source", message);
    }
    source
}

/// The objects of `patterns`, each with a name.
pub fn read_patterns(o: &mut Object<'_>, found: &mut Findings) -> Vec<Value> {
    let (place, items) = (o.place("patterns"), o.items("patterns", found));
    let mut patterns = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let place = format!("{place}[{index}]");
        if is_pattern(item, &place, found) {
            patterns.push(item.clone());
        }
    }
    patterns
}

/// Whether it has a name, and steps with commands.
pub fn is_pattern(item: &Value, place: &str, found: &mut Findings) -> bool {
    let before = found.problems.len();
    let Some(mut o) = Object::open(item, place, found) else {
        return false;
    };
    o.needed_text("name", found);
    o.text("description", found);
    let steps = o.objects("steps", found);
    for mut step in steps {
        step.needed_text("command", found);
        step.text("description", found);
    }
    if let Some(variables) = o.object("variables", found) {
        for (name, value) in variables.members() {
            Object::open(value, &variables.place(name), found);
        }
    }
    found.problems.len() == before
}

impl Authentication {
    fn read(mut o: Object<'_>, found: &mut Findings) -> Self {
        let mut auth = Authentication {
            required: o.flag("required", found).unwrap_or(false),
            check_command: o.text("checkCommand", found),
            ..Authentication::default()
        };
        for mut method in o.objects("methods", found) {
            method.needed_text("type", found);
            method.text("description", found);
            auth.env_vars.extend(method.text("envVar", found));
            auth.setup_commands
                .extend(method.text("setupCommand", found));
            method.finish(found);
        }
        o.finish(found);
        auth
    }
}

/// Walks `commands`, and collects its leaves.
struct Tree<'a> {
    strict: bool,
    /// The effects of the tool as a whole.
    tool: &'a Effects,
    found: &'a mut Findings,
    commands: &'a mut Vec<Command>,
}

impl Tree<'_> {
    fn read(&mut self, table: &Value, place: &str, path: &[String], above: Option<&Effects>) {
        if path.len() > DEEPEST {
            let message = format!("there are more than {DEEPEST} levels of commands");
            self.found.problem(place, message);
            return;
        }
        let Some(table) = Object::open(table, place, self.found) else {
            return;
        };
        for (name, value) in table.members() {
            let place = join(place, name);
            if !is_command_name(name) {
                let message = "a command can't begin with '-', or have white space in its name";
                self.found.problem(&place, message);
                continue;
            }
            let mut path = path.to_vec();
            // The command itself, of a command that has others below it.
            path.extend(Some(name.clone()).filter(|name| !name.is_empty()));
            self.read_command(value, &place, path, above);
        }
    }

    fn read_command(
        &mut self,
        value: &Value,
        place: &str,
        path: Vec<String>,
        above: Option<&Effects>,
    ) {
        let before = self.found.problems.len();
        let Some(mut o) = Object::open(value, place, self.found) else {
            return;
        };
        let description = o.text("description", self.found).unwrap_or_default();
        if description.is_empty() {
            self.found.warning(&o.place("description"), "it is missing");
        }
        let own = o.get("effects");
        let own = own.map(|it| Effects::read(it, &o.place("effects"), self.found));
        // A group's effects are often those of all its commands together, so they count only for
        // commands that say nothing themselves.
        let own = own.or_else(|| above.cloned());
        if let Some(below) = o.get("commands")
            && below.as_object().is_none_or(|below| !below.is_empty())
        {
            self.read(below, &o.place("commands"), &path, own.as_ref());
            return;
        }
        let arguments = o.objects("arguments", self.found);
        let options = o.objects("options", self.found);
        let (strict, found) = (self.strict, &mut *self.found);
        let arguments: Vec<_> = arguments
            .into_iter()
            .filter_map(|it| Parameter::read_argument(it, strict, found))
            .collect();
        let options = options
            .into_iter()
            .filter_map(|it| Parameter::read_option(it, strict, found))
            .collect();
        let command = Command {
            path,
            description,
            arguments,
            options,
            effects: self.tool.with_command(&own.unwrap_or_default()),
            examples: o.items("examples", found).to_vec(),
        };
        o.finish(found);
        if self.commands.len() >= MOST_COMMANDS {
            let message = format!("there are more than {MOST_COMMANDS} commands");
            self.found.problem(place, message);
        } else if self.found.problems.len() == before {
            self.commands.push(command);
        }
    }
}

/// The empty name is that of the root command.
fn is_command_name(name: &str) -> bool {
    !name.starts_with('-') && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(document: Value) -> (Option<Metadata>, Findings) {
        let mut found = Findings::default();
        (Metadata::read(&document, &mut found), found)
    }

    fn with(more: Value) -> Value {
        let mut document = json!({
            "atip": {"version": "0.6", "features": ["trust-v1"]}, "name": "t", "version": "1",
            "description": "d",
        });
        let members = document.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        document
    }

    #[test]
    fn leaf_has_the_effects_of_the_tool_and_its_own_but_not_those_of_its_group() {
        let (metadata, found) = read(with(json!({
            "effects": {"network": true},
            "commands": {"space": {
                "description": "g", "effects": {"destructive": true, "idempotent": true},
                "commands": {
                    "list": {"description": "l", "effects": {"destructive": false}},
                    "other": {"description": "o"},
                    "": {"description": "The group itself"},
                },
            }},
        })));
        assert!(found.is_empty(), "{found:?}");
        let commands = metadata.unwrap().commands;
        let effects = |n: usize| serde_json::to_value(&commands[n].effects).unwrap();
        assert_eq!(effects(0), json!({"network": true, "destructive": false}));
        let groups = json!({"network": true, "destructive": true, "idempotent": true});
        assert_eq!(effects(1), groups);
        assert_eq!(commands[2].path, ["space"]);
    }

    #[test]
    fn document_without_a_required_field_is_no_metadata() {
        for missing in ["atip", "name", "version", "description"] {
            let mut document = with(json!({}));
            document.as_object_mut().unwrap().remove(missing);
            let (metadata, found) = read(document);
            assert!(metadata.is_none() && found.problems.len() == 1, "{missing}");
        }
        assert!(read(json!([])).0.is_none());
        assert!(read(with(json!({"name": "a/b"}))).0.is_none());
    }

    #[test]
    fn command_with_a_mistake_is_left_out_and_the_others_stay() {
        let (metadata, found) = read(with(json!({"commands": {
            "bad": {"description": "d", "options": [{"name": "x", "flags": [], "type": "string"}]},
            "good": {"description": "d"},
        }})));
        assert_eq!(metadata.unwrap().commands.len(), 1);
        assert_eq!(found.problems.len(), 1);
    }

    #[test]
    fn hash_that_cannot_be_read_matches_no_program() {
        let (metadata, found) = read(with(json!({"binary": {"hash": "md5:00"}})));
        assert_eq!(metadata.unwrap().hash, Some(Hash(String::new())));
        assert_eq!(found.problems.len(), 1);
        let hash = format!("sha256:{}", "AB".repeat(32));
        assert_eq!(Hash::parse(&hash).unwrap().0, "ab".repeat(32));
        assert_eq!(Hash::parse(&"ab".repeat(32)), None);
    }

    #[test]
    fn commands_nested_without_end_are_refused() {
        let mut command = json!({"description": "leaf"});
        for _ in 0..60 {
            command = json!({"description": "d", "commands": {"x": command}});
        }
        let (metadata, found) = read(with(json!({"commands": {"x": command}})));
        assert!(metadata.unwrap().commands.is_empty());
        assert!(found.problems[0].to_string().contains("levels of commands"));
    }
}
