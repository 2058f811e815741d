//! The parameters in the head of a function: `(env, version: str = "latest", ...rest)`.

use super::attributes::ArgTag;
use super::function::{Kind, Parameter};

/// Parameters of one function. More are a mistake.
const MOST: usize = 100;

/// The parameters of a head, without those that only comments have.
pub fn parse(text: &str) -> Result<Vec<Parameter>, String> {
    let mut parameters: Vec<Parameter> = Vec::new();
    if text.trim().is_empty() {
        return Ok(parameters);
    }
    for part in split(text)? {
        let part = part.trim();
        if parameters.last().is_some_and(|last| last.is_rest) {
            return Err("nothing can follow the parameter with '...'".to_owned());
        }
        if parameters.len() == MOST {
            return Err(format!("a function has at most {MOST} parameters"));
        }
        let (part, is_rest) = match part.strip_prefix("...") {
            Some(rest) => (rest.trim(), true),
            None => (part, false),
        };
        let (declared, default) = match part.split_once('=') {
            Some((declared, default)) => (declared.trim(), Some(unquoted(default.trim()))),
            None => (part, None),
        };
        let (name, kind) = match declared.split_once(':') {
            Some((name, kind)) => {
                let kind = kind.trim();
                let known = Kind::named(kind);
                let unknown = || {
                    format!(
                        "unknown type '{kind}'; known are string, integer, number, boolean, object"
                    )
                };
                (name.trim(), known.ok_or_else(unknown)?)
            }
            None => (declared, Kind::String),
        };
        if !is_identifier(name) {
            return Err(format!("'{name}' is no name of a parameter"));
        }
        if parameters.iter().any(|known| known.name == name) {
            return Err(format!("the parameter '{name}' is there twice"));
        }
        parameters.push(Parameter {
            name: name.to_owned(),
            position: parameters.len() + 1,
            kind,
            required: default.is_none() && !is_rest,
            default,
            description: None,
            is_rest,
            is_variable: true,
            evaluated: None,
        });
    }
    Ok(parameters)
}

pub fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// At commas that stand in no quotes.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ',') => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if quote.is_some() {
        return Err("a quotation mark has no end".to_owned());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        let inner = text.strip_prefix(quote);
        if let Some(inner) = inner.and_then(|rest| rest.strip_suffix(quote)) {
            return inner.to_owned();
        }
    }
    text.to_owned()
}

/// Adds what the comments say. An error has the line of its comment.
pub fn describe(parameters: &mut Vec<Parameter>, tags: &[ArgTag]) -> Result<(), (u32, String)> {
    for tag in tags {
        let wrong = |message: String| Err((tag.line, message));
        let by_name = parameters.iter().position(|one| one.name == tag.name);
        match (by_name, tag.position) {
            (Some(place), position) if parameters[place].is_variable => {
                let known = &mut parameters[place];
                if position.is_some_and(|position| position != known.position) {
                    let at = known.position;
                    return wrong(format!("'{}' has position {at} in the head", tag.name));
                }
                known.description = tag.description.clone().or(known.description.take());
                if let Some(kind) = tag.kind.filter(|_| known.kind == Kind::String) {
                    known.kind = kind;
                }
                known.required &= !tag.is_optional;
            }
            (Some(_), _) => return wrong(format!("the argument '{}' is there twice", tag.name)),
            (None, None) => {
                return wrong(format!(
                    "the head has no parameter '{}'; without one, write '@arg 1:{}'",
                    tag.name, tag.name
                ));
            }
            (None, Some(position)) => {
                if let Some(taken) = parameters.iter().find(|one| one.position == position) {
                    let name = &taken.name;
                    return wrong(format!("the position {position} is that of '{name}'"));
                }
                parameters.push(Parameter {
                    name: tag.name.clone(),
                    position,
                    kind: tag.kind.unwrap_or_default(),
                    required: !tag.is_optional,
                    default: None,
                    description: tag.description.clone(),
                    is_rest: false,
                    is_variable: false,
                    evaluated: None,
                });
            }
        }
    }
    parameters.sort_by_key(|one| one.position);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_gives_names_types_and_defaults() {
        let all = parse("env, n: int = 3, tag: str = \"a, b\", ...rest").unwrap();
        let shown: Vec<_> = all
            .iter()
            .map(|one| {
                (
                    one.name.as_str(),
                    one.kind,
                    one.required,
                    one.default.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("env", Kind::String, true, None),
                ("n", Kind::Integer, false, Some("3")),
                ("tag", Kind::String, false, Some("a, b")),
                ("rest", Kind::String, false, None),
            ]
        );
        assert!(all[3].is_rest && all[3].position == 4);
        for wrong in [
            "a,", "a a", "1a", "a: cobol", "a, a", "...r, b", "a = \"x", "$x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn comments_describe_parameters_and_clashes_have_their_line() {
        let tag = |position, name: &str, line| ArgTag {
            position,
            name: name.to_owned(),
            kind: Some(Kind::Integer),
            is_optional: false,
            description: Some("d".to_owned()),
            line,
        };
        let mut all = parse("a").unwrap();
        describe(&mut all, &[tag(None, "a", 1)]).unwrap();
        assert_eq!(
            (all[0].kind, all[0].description.as_deref()),
            (Kind::Integer, Some("d"))
        );
        let fails =
            |head: &str, tags: &[ArgTag]| describe(&mut parse(head).unwrap(), tags).unwrap_err().0;
        assert_eq!(fails("a", &[tag(Some(2), "a", 7)]), 7);
        assert_eq!(fails("", &[tag(None, "a", 8)]), 8);
        assert_eq!(fails("", &[tag(Some(1), "a", 1), tag(Some(1), "b", 9)]), 9);
        assert_eq!(fails("", &[tag(Some(1), "a", 1), tag(Some(2), "a", 5)]), 5);
    }
}
