//! How variables are written down.

use super::as_json;
use crate::cli::{Format, Printed, Variable, output};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Lines for a shell: `eval "$(…)"`.
    Env,
    /// A file for programs that read `.env` files.
    Dotenv,
    /// A file for `docker run --env-file`, which knows no quotes.
    Docker,
}

pub fn print(variables: &[Variable], asked: Option<Printed>, json: bool) {
    let layout = match asked {
        _ if json => return output::pretty(&as_json(variables)),
        Some(Printed::As(format @ (Format::Json | Format::Table))) => {
            return output::value(&as_json(variables), format);
        }
        None | Some(Printed::As(Format::Text)) => Layout::Env,
        Some(Printed::Variables(layout)) => layout,
    };
    for Variable(name, value) in variables {
        output::line(&match layout {
            Layout::Env => format!("export {name}={}", for_shell(value)),
            Layout::Dotenv => format!("{name}={}", for_dotenv(value)),
            Layout::Docker => format!("{name}={value}"),
        });
    }
}

/// Whether a shell, and a reader of .env files, takes the text as it is.
fn is_plain(value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    !value.is_empty() && value.chars().all(plain)
}

fn for_shell(value: &str) -> String {
    match is_plain(value) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

fn for_dotenv(value: &str) -> String {
    // Within single quotes nothing is replaced. A value that has one itself needs the other kind.
    match (is_plain(value), value.contains('\'')) {
        (true, _) => value.to_owned(),
        (false, false) => format!("'{value}'"),
        (false, true) => {
            let mut quoted = String::from('"');
            for c in value.chars() {
                if matches!(c, '"' | '\\' | '$' | '`') {
                    quoted.push('\\');
                }
                quoted.push(c);
            }
            quoted + "\""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_where_a_reader_would_change_them() {
        for plain in ["http://127.0.0.1:8090", "eyJ.eyJ-_.x", "a=b"] {
            assert_eq!(for_shell(plain), plain);
            assert_eq!(for_dotenv(plain), plain);
        }
        assert_eq!(for_shell("a b$c"), "'a b$c'");
        assert_eq!(for_shell("it's"), r"'it'\''s'");
        assert_eq!(for_shell(""), "''");
        assert_eq!(for_dotenv("a #b"), "'a #b'");
        assert_eq!(for_dotenv("it's $x"), r#""it's \$x""#);
    }
}
