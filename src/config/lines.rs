//! The lines of keys that something is wrong with. The file is read a second time for it, so that
//! what loads without problems pays nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use crate::error::Problem;

/// Gives each problem of a TOML file the line of its key, or of the table that lacks the key.
pub fn add_lines(problems: &mut [Problem]) {
    let mut by_file: BTreeMap<PathBuf, Vec<&mut Problem>> = BTreeMap::new();
    for problem in problems.iter_mut().filter(|problem| problem.key.is_some()) {
        let file = problem.file.clone();
        if let Some(file) = file.filter(|file| file.extension().is_some_and(|ext| ext == "toml")) {
            by_file.entry(file).or_default().push(problem);
        }
    }
    for (file, problems) in by_file {
        let Ok(text) = crate::files::read_text(&file) else {
            continue;
        };
        let Ok(table) = DeTable::parse(&text) else {
            continue;
        };
        for problem in problems {
            let key = problem.key.as_deref().unwrap_or_default();
            let offset = offset(table.get_ref(), key);
            problem.line = offset.and_then(|offset| {
                let before = text[..offset].matches('\n').count();
                u32::try_from(1 + before).ok()
            });
        }
    }
}

/// Where a key stands in a conf file or in a manifest.
fn offset(root: &DeTable<'_>, key: &str) -> Option<usize> {
    if let Some(rest) = key.strip_prefix("tools") {
        return of_tool(root, rest);
    }
    // Routes name their keys without the table that they are in.
    find(root, key).or_else(|| {
        let (at, provider) = entry(root, "provider")?;
        Some(
            provider
                .as_table()
                .and_then(|it| find(it, key))
                .unwrap_or(at),
        )
    })
}

/// `.NAME.key` or `[INDEX].key`, in the array `tools`.
fn of_tool(root: &DeTable<'_>, rest: &str) -> Option<usize> {
    let (_, tools) = entry(root, "tools")?;
    let tables = tools.as_array()?.iter();
    let mut tables = tables.filter_map(|tool| tool.get_ref().as_table());
    let (table, key) = if let Some(rest) = rest.strip_prefix('[') {
        let (index, key) = rest.split_once("].")?;
        (tables.nth(index.parse().ok()?)?, key)
    } else {
        let rest = rest.strip_prefix('.')?;
        tables.find_map(|table| {
            let name = table.iter().find(|(key, _)| key.get_ref() == "name");
            let rest = rest.strip_prefix(name?.1.get_ref().as_str()?)?;
            Some((table, rest.strip_prefix('.').unwrap_or_default()))
        })?
    };
    find(table, key).or_else(|| entry(table, "name").map(|(at, _)| at))
}

/// The place of the key, or of the deepest table on the way to it. None where not even the first
/// part of it is there.
fn find(table: &DeTable<'_>, key: &str) -> Option<usize> {
    let (part, rest) = match entry(table, key) {
        Some((at, _)) => return Some(at),
        None => key.split_once('.')?,
    };
    let (at, value) = entry(table, part)?;
    let deeper = match value {
        DeValue::Table(table) => find(table, rest),
        // Of several tables it isn't known which one is meant.
        DeValue::Array(tables) if tables.len() != 1 => return None,
        DeValue::Array(tables) => {
            let table = tables
                .iter()
                .next()
                .and_then(|one| one.get_ref().as_table());
            table.and_then(|table| find(table, rest))
        }
        _ => None,
    };
    Some(deeper.unwrap_or(at))
}

fn entry<'t, 'i>(table: &'t DeTable<'i>, key: &str) -> Option<(usize, &'t DeValue<'i>)> {
    let (key, value) = table.iter().find(|(known, _)| known.get_ref() == key)?;
    Some((key.span().start, value.get_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
[provider]
name = 'p'
auth_type = 'barer'
[provider.auth_generator]
type = 'x'

[[tools]]
name = 'p:one.two'
method = 'FETCH'

[[tools]]
method = 'BREW'
";

    fn line(key: &str) -> Option<usize> {
        let table = DeTable::parse(TEXT).unwrap();
        let offset = offset(table.get_ref(), key)?;
        Some(1 + TEXT[..offset].matches('\n').count())
    }

    #[test]
    fn key_has_the_line_that_it_is_written_on() {
        assert_eq!(line("provider.auth_type"), Some(3));
        assert_eq!(line("auth_type"), Some(3));
        assert_eq!(line("provider.auth_generator.type"), Some(5));
        assert_eq!(line("tools.p:one.two.method"), Some(9));
        assert_eq!(line("tools[1].method"), Some(12));
    }

    #[test]
    fn missing_key_has_the_line_of_its_table() {
        assert_eq!(line("provider.base_url"), Some(1));
        assert_eq!(line("path_prefix"), Some(1));
        assert_eq!(line("provider.auth_generator.command"), Some(4));
        assert_eq!(line("tools.p:one.two.endpoint"), Some(8));
        assert_eq!(line("tools.other.endpoint"), None);
        let conf = DeTable::parse("[[listener]]\nname = 'a'\n[[listener]]\nname = 'b'\n").unwrap();
        assert_eq!(offset(conf.get_ref(), "listener.name"), None);
    }

    #[test]
    fn problem_of_a_file_gets_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.toml");
        std::fs::write(&path, TEXT).unwrap();
        let problem = |path| Problem::new("unknown").file(path).key("provider.auth_type");
        let mut problems = [problem(&path), problem(&dir.path().join("gone.toml"))];
        add_lines(&mut problems);
        assert_eq!(problems[0].line, Some(3));
        assert_eq!(problems[1].line, None);
    }
}
