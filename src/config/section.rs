//! One table of a TOML file, read key by key, so that all of its problems are found at once.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::error::Problem;

/// How alike two names must be for one to be offered in place of the other.
const LIKENESS: f64 = 0.8;

pub struct Section<'a> {
    file: &'a Path,
    prefix: String,
    /// What hasn't been taken yet.
    table: Table,
    known: Vec<&'static str>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Section<'a> {
    pub fn root(file: &'a Path, table: Table, problems: &'a mut Vec<Problem>) -> Self {
        Section {
            file,
            prefix: String::new(),
            table,
            known: Vec::new(),
            problems,
        }
    }

    /// One of several tables that share a key: `[[tools]]`.
    pub fn item(file: &'a Path, name: &str, table: Table, problems: &'a mut Vec<Problem>) -> Self {
        Section {
            prefix: format!("{name}."),
            ..Section::root(file, table, problems)
        }
    }

    /// The value of this key, if it is there and has the right type.
    pub fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> Option<T> {
        let value = self.remove(key)?;
        match value.try_into() {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(key, error.message().to_owned());
                None
            }
        }
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A table below this one; empty where it isn't there. It needs a `finish` of its own.
    pub fn section(&mut self, key: &'static str) -> Section<'_> {
        let table = match self.remove(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => {
                let found = other.type_str();
                self.problem(key, format!("expected a table, found {found}"));
                Table::new()
            }
        };
        Section {
            file: self.file,
            prefix: self.name(key) + ".",
            table,
            known: Vec::new(),
            problems: self.problems,
        }
    }

    /// Every table of a `[[key]]`.
    pub fn each(&mut self, key: &'static str, mut read: impl FnMut(&mut Section<'_>)) {
        let tables: Vec<Table> = self.take(key).unwrap_or_default();
        for table in tables {
            let mut item = Section::item(self.file, key, table, self.problems);
            read(&mut item);
            item.finish();
        }
    }

    /// Every table of a table whose keys are names. Keys that `read` doesn't take are warnings.
    pub fn named(
        &mut self,
        key: &'static str,
        warnings: &mut Vec<Problem>,
        mut read: impl FnMut(&str, &mut Section<'_>),
    ) {
        let tables: Table = self.take(key).unwrap_or_default();
        for (name, value) in tables {
            let label = format!("{key}.{name}");
            let Value::Table(table) = value else {
                self.problem(
                    &label,
                    format!("expected a table, found {}", value.type_str()),
                );
                continue;
            };
            let label = self.name(&label);
            let mut item = Section::item(self.file, &label, table, self.problems);
            read(&name, &mut item);
            item.finish_leniently(warnings);
        }
    }

    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        let problem = Problem::new(message).file(self.file).key(self.name(key));
        self.problems.push(problem);
    }

    /// A problem whose message names the key itself.
    pub fn problem_about(&mut self, key: &str, message: &str) {
        let problem = Problem::new(message).file(self.file);
        self.problems.push(problem.about(self.name(key)));
    }

    /// Allows a key that has no effect here.
    pub fn ignore(&mut self, key: &'static str) {
        self.remove(key);
    }

    /// Every key that wasn't taken is a problem.
    pub fn finish(self) {
        let (unknown, problems) = self.unknown();
        problems.extend(unknown);
    }

    /// Every key that wasn't taken is a warning: files that load today must keep loading.
    pub fn finish_leniently(self, warnings: &mut Vec<Problem>) {
        warnings.extend(self.unknown().0);
    }

    fn remove(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        #[cfg(test)]
        RECORDED.with_borrow_mut(|keys| keys.insert(self.name(key)));
        self.table.remove(key)
    }

    fn unknown(mut self) -> (Vec<Problem>, &'a mut Vec<Problem>) {
        let table = std::mem::take(&mut self.table);
        let unknown = table.keys().map(|key| {
            let message = match nearest(key, &self.known) {
                Some(known) => format!("unknown key; did you mean '{known}'?"),
                None => "unknown key".to_owned(),
            };
            Problem::new(message).file(self.file).key(self.name(key))
        });
        (unknown.collect(), self.problems)
    }

    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }
}

/// What to write in place of an unknown name: the nearest one, and all that are known.
pub fn offer(name: &str, known: &[&str]) -> String {
    let list = known.join(", ");
    match nearest(name, known) {
        Some(meant) => format!("did you mean '{meant}'? Known are {list}"),
        None => format!("known are {list}"),
    }
}

/// The known name that a typo most likely meant.
pub fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_lowercase();
    let likeness = |known: &str| strsim::jaro_winkler(&name, &known.to_lowercase());
    known
        .iter()
        .map(|candidate| (likeness(candidate), *candidate))
        .filter(|(likeness, _)| *likeness > LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
thread_local! {
    static RECORDED: std::cell::RefCell<std::collections::BTreeSet<String>> = const {
        std::cell::RefCell::new(std::collections::BTreeSet::new())
    };
}

/// The keys that this thread's sections were asked for since the last call, with their prefixes.
#[cfg(test)]
pub(super) fn recorded_keys() -> std::collections::BTreeSet<String> {
    RECORDED.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_with_several_mistakes_reports_all_of_them() {
        let table: Table = "port = 'x'\nbnd = 1\n[limits]\nconections = 5\n[admin]"
            .parse()
            .unwrap();
        let mut problems = Vec::new();
        let mut root = Section::root(Path::new("f.toml"), table, &mut problems);
        assert_eq!(root.take::<u16>("port"), None);
        assert_eq!(root.take::<String>("bind"), None);
        let mut limits = root.section("limits");
        assert_eq!(limits.take::<usize>("connections"), None);
        limits.finish();
        root.finish();
        let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 4, "{text:#?}");
        assert!(text[0].starts_with("f.toml: port: invalid type"));
        assert_eq!(
            text[1],
            "f.toml: limits.conections: unknown key; did you mean 'connections'?"
        );
        assert_eq!(text[2], "f.toml: admin: unknown key");
        assert_eq!(text[3], "f.toml: bnd: unknown key; did you mean 'bind'?");
    }
}
