//! Programs as tools: the fields of `handler = "cli"`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use zeroize::Zeroizing;

use super::captures::{CaptureRules, RuleFault};
use crate::config::Section;
use crate::credential::Template;
use crate::error::Problem;

/// What `cli_timeout_secs` and `cli_max_concurrent` are where a manifest doesn't say.
const TIMEOUT_SECONDS: u64 = 120;
const MOST_AT_A_TIME: usize = 8;
/// More than a century: clocks can't count much further.
const LONGEST_TIMEOUT: u64 = u32::MAX as u64;
/// Bytes of a key's name that becomes the name of a file.
const LONGEST_FILE_NAME: usize = 200;

#[derive(Debug, Clone)]
pub struct Cli {
    /// By name, which is looked up in PATH, or by path.
    pub command: String,
    /// Before the caller's words.
    pub default_args: Vec<String>,
    pub env: Vec<(String, Variable)>,
    /// From the program's start to its end.
    pub timeout: Duration,
    /// The folder that it runs in, in place of the usual one.
    pub folder: Option<PathBuf>,
    /// Calls of this provider that run at a time.
    pub most_at_a_time: usize,
    /// Which words are files that the program writes.
    pub captures: CaptureRules,
    keys: ProgramKeys,
    /// Whether the manifest says how long a call may take.
    pub timeout_is_set: bool,
    capture_faults: Vec<RuleFault>,
}

/// The value of a variable in `cli_env`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// A text, in which `${key}` stands for a credential.
    Text(Template),
    /// `@{key}`: the path of a file that holds the credential.
    File(String),
}

impl Variable {
    /// `@{key}` is a file only where it is the whole value: `HEAD@{1}` is a text.
    fn parse(text: &str) -> Self {
        let key = text
            .strip_prefix("@{")
            .and_then(|rest| rest.strip_suffix('}'));
        match key.filter(|key| !key.contains('}')) {
            Some(key) => Variable::File(key.to_owned()),
            None => Variable::Text(Template::parse(text)),
        }
    }

    pub fn keys(&self) -> Vec<&str> {
        match self {
            Variable::Text(template) => template.keys().collect(),
            Variable::File(key) => vec![key],
        }
    }
}

/// The fields in which a handler names its program and the variables; the others are the same for
/// every handler that runs programs.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramKeys {
    pub command: &'static str,
    pub env: &'static str,
}

impl ProgramKeys {
    pub(super) const CLI: Self = ProgramKeys {
        command: "cli_command",
        env: "cli_env",
    };
}

impl Cli {
    pub(super) fn read(s: &mut Section<'_>, keys: ProgramKeys) -> Self {
        let env: BTreeMap<String, String> = s.take(keys.env).unwrap_or_default();
        let mut variables = Vec::new();
        for (name, value) in env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                s.problem(keys.env, format!("'{name}' can't be a variable"));
                continue;
            }
            let variable = Variable::parse(&value);
            if let Variable::File(key) = &variable
                && !is_file_name(key)
            {
                let message = format!("{name}: '@{{{key}}}' can't be the name of a file");
                s.problem(keys.env, message);
            }
            variables.push((name, variable));
        }
        let timeout: Option<u64> = s.take("cli_timeout_secs");
        let most: Option<usize> = s.take("cli_max_concurrent");
        for (key, is_zero) in [
            ("cli_timeout_secs", timeout == Some(0)),
            ("cli_max_concurrent", most == Some(0)),
        ] {
            if is_zero {
                s.problem(key, "it has to be at least 1");
            }
        }
        let folder: Option<PathBuf> = s.take("cli_cwd");
        if folder.as_ref().is_some_and(|folder| folder.is_relative()) {
            s.problem("cli_cwd", "it has to be an absolute path");
        }
        let default_args: Vec<String> = s.take("cli_default_args").unwrap_or_default();
        let command: String = s.take(keys.command).unwrap_or_default();
        for (key, has_nul) in [
            (keys.command, command.contains('\0')),
            (
                "cli_default_args",
                default_args.iter().any(|it| it.contains('\0')),
            ),
        ] {
            if has_nul {
                s.problem(key, "it has a NUL byte");
            }
        }
        let (captures, capture_faults) = CaptureRules::new(
            &s.take::<Vec<String>>("cli_output_args").unwrap_or_default(),
            &s.take("cli_output_positional").unwrap_or_default(),
        );
        Cli {
            command,
            default_args,
            env: variables,
            timeout: Duration::from_secs(timeout.unwrap_or(TIMEOUT_SECONDS).min(LONGEST_TIMEOUT)),
            folder,
            most_at_a_time: most.unwrap_or(MOST_AT_A_TIME),
            captures,
            keys,
            timeout_is_set: timeout.is_some(),
            capture_faults,
        }
    }

    /// The same terms for another program, in a folder of its own where it has one.
    pub fn for_program(&self, command: &str, folder: Option<PathBuf>, timeout: Duration) -> Self {
        Cli {
            command: command.to_owned(),
            timeout: timeout.min(self.timeout),
            folder: self.folder.clone().or(folder),
            default_args: Vec::new(),
            ..self.clone()
        }
    }

    /// What makes calls fail, or do less than it seems to. Existing manifests load with it.
    pub(super) fn faults(&self) -> Vec<Problem> {
        let mut faults = Vec::new();
        if self.command.is_empty() {
            let message = "without it there is no program, and there are no tools";
            faults.push(Problem::new(message).key(self.key(self.keys.command)));
        }
        for (name, variable) in &self.env {
            if let Variable::Text(template) = variable
                && template.has_text("@{")
            {
                let message = format!(
                    "{name}: '@{{name}}' stands for a file only where it is the whole value"
                );
                faults.push(Problem::new(message).key(self.key(self.keys.env)));
            }
        }
        for fault in &self.capture_faults {
            let key = match fault {
                RuleFault::Flag(_) => "provider.cli_output_args",
                RuleFault::Subcommand(_) | RuleFault::Twice(_) => "provider.cli_output_positional",
            };
            faults.push(Problem::new(format!("{fault}; it is ignored")).key(key));
        }
        faults
    }

    /// The same program, with another time.
    pub(super) fn limited_to(&self, timeout: Duration) -> Self {
        Cli {
            timeout,
            ..self.clone()
        }
    }

    /// Another program, run in the same way.
    pub fn with_command(&self, command: String) -> Self {
        Cli {
            command,
            ..self.clone()
        }
    }

    fn key(&self, field: &str) -> String {
        format!("provider.{field}")
    }

    /// The manifest's field that names the program.
    pub fn command_field(&self) -> &'static str {
        self.keys.command
    }

    /// The variables that hold no credential.
    pub fn plain_env(&self) -> Vec<(String, Zeroizing<String>)> {
        let plain = self.env.iter().filter_map(|(name, variable)| {
            let Variable::Text(template) = variable else {
                return None;
            };
            Some((name.clone(), Zeroizing::new(template.without_keys()?)))
        });
        plain.collect()
    }

    /// Names of the keyring entries in the program's environment.
    pub(super) fn keys(&self) -> Vec<&str> {
        self.env.iter().flat_map(|(_, it)| it.keys()).collect()
    }
}

/// Whether a key's name can be the name of a file in the folder of credentials, and of none that
/// lies outside of it.
fn is_file_name(key: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_-.@+".contains(c);
    !key.is_empty()
        && key.len() <= LONGEST_FILE_NAME
        && !key.starts_with('.')
        && key.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> (Cli, Vec<String>) {
        let mut problems = Vec::new();
        let table: toml::Table = toml::from_str(text).unwrap();
        let mut s = Section::item(Path::new("m.toml"), "provider", table, &mut problems);
        let cli = Cli::read(&mut s, ProgramKeys::CLI);
        s.finish();
        (cli, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn fields_that_a_manifest_leaves_out_have_their_defaults() {
        let (cli, problems) = read("cli_command = 'gh'");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!((cli.timeout.as_secs(), cli.most_at_a_time), (120, 8));
        assert!(cli.default_args.is_empty() && cli.folder.is_none() && cli.faults().is_empty());
        let (cli, problems) = read("");
        assert!(problems.is_empty());
        assert!(cli.faults()[0].to_string().contains("there is no program"));
    }

    #[test]
    fn variable_is_a_file_only_where_that_is_its_whole_value() {
        let text = |value: &str| Variable::Text(Template::parse(value));
        let file = |key: &str| Variable::File(key.to_owned());
        for (value, expected) in [
            ("@{key}", file("key")),
            ("plain", text("plain")),
            ("a ${key} b", text("a ${key} b")),
            ("HEAD@{1}", text("HEAD@{1}")),
            ("@{a}@{b}", text("@{a}@{b}")),
            ("@{open", text("@{open")),
        ] {
            assert_eq!(Variable::parse(value), expected, "{value}");
        }
        let (cli, _) = read("cli_command = 'x'\ncli_env = { A = 'file:@{k}', B = '${x}${y}' }");
        assert!(cli.faults()[0].to_string().contains("A: '@{name}'"));
        assert_eq!(cli.keys(), ["x", "y"]);
    }

    #[test]
    fn values_that_can_never_work_are_problems() {
        for (text, what) in [
            ("cli_timeout_secs = 0", "cli_timeout_secs: it has to be"),
            ("cli_max_concurrent = 0", "cli_max_concurrent: it has to be"),
            (
                "cli_cwd = 'below'",
                "cli_cwd: it has to be an absolute path",
            ),
            ("cli_env = { A = '@{../x}' }", "can't be the name of a file"),
            ("cli_env = { A = '@{.x}' }", "can't be the name of a file"),
            ("cli_env = { A = '@{}' }", "can't be the name of a file"),
            ("cli_env = { 'A=B' = 'x' }", "can't be a variable"),
            ("cli_default_args = [\"a\\u0000\"]", "NUL"),
        ] {
            let (_, problems) = read(text);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
            assert!(problems[0].contains(what), "{problems:?}");
        }
    }
}
