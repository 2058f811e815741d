//! How argument values are written in a URL, a header or a form: OpenAPI's styles, and plain text.

use percent_encoding::{AsciiSet, utf8_percent_encode};
use serde_json::Value;

use crate::catalog::schema::{Form, Style};
use crate::credential::UNRESERVED;

/// For `allowReserved`: unreserved characters and the reserved ones that can't end or change a
/// value. `&`, `#` and `+` are encoded.
const RESERVED: &AsciiSet = &UNRESERVED
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// A value as text: nothing for null, JSON for arrays and objects.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The name-value pairs of a query or a form, each side encoded by `write`.
pub fn pairs(
    name: &str,
    value: &Value,
    style: Style,
    write: impl Fn(&str) -> String,
) -> Vec<(String, String)> {
    let one = |text: String| vec![(write(name), write(&text))];
    match (value, style.form) {
        (Value::Null, _) => Vec::new(),
        (_, Form::Json) => one(value.to_string()),
        (Value::Object(_) | Value::Array(_), Form::Deep) => {
            let mut found = Vec::new();
            deep(name, value, &write, &mut found);
            found
        }
        (Value::Array(list), form) => {
            let items = || list.iter().filter_map(text).map(|item| write(&item));
            let separator = match form {
                _ if style.explode => return items().map(|item| (write(name), item)).collect(),
                Form::Space => write(" "),
                Form::Tab => write("\t"),
                Form::Pipe => write("|"),
                _ => ",".to_owned(),
            };
            let joined: Vec<String> = items().collect();
            if joined.is_empty() {
                return Vec::new();
            }
            vec![(write(name), joined.join(&separator))]
        }
        (Value::Object(map), Form::Form) if style.explode => map
            .iter()
            .filter_map(|(key, value)| Some((write(key), write(&text(value)?))))
            .collect(),
        (Value::Object(map), Form::Form | Form::Space | Form::Pipe) => {
            let separator = match style.form {
                Form::Space => write(" "),
                Form::Pipe => write("|"),
                _ => ",".to_owned(),
            };
            let parts: Vec<String> = map
                .iter()
                .filter_map(|(key, value)| Some([write(key), write(&text(value)?)]))
                .flatten()
                .collect();
            vec![(write(name), parts.join(&separator))]
        }
        (value, _) => text(value).map(one).unwrap_or_default(),
    }
}

/// `name[key][inner]=value`. List items get numbers, which tell the fields of one item from
/// another's.
fn deep(
    name: &str,
    value: &Value,
    write: &impl Fn(&str) -> String,
    found: &mut Vec<(String, String)>,
) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                deep(&format!("{name}[{key}]"), value, write, found);
            }
        }
        Value::Array(list) => {
            for (place, item) in list.iter().enumerate() {
                deep(&format!("{name}[{place}]"), item, write, found);
            }
        }
        value => found.extend(text(value).map(|text| (write(name), write(&text)))),
    }
}

/// A query, without its `?`.
pub fn query<'a>(parameters: impl Iterator<Item = (&'a str, &'a Value, Style)>) -> String {
    let mut query = String::new();
    for (name, value, style) in parameters {
        let set = if style.reserved { RESERVED } else { UNRESERVED };
        let write = |text: &str| utf8_percent_encode(text, set).to_string();
        for (name, value) in pairs(name, value, style, write) {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(&name);
            query.push('=');
            query.push_str(&value);
        }
    }
    query
}

/// The items or keys of a value, each checked and encoded by `write`, joined by the style of a path
/// or a header parameter.
pub fn joined<E>(
    name: &str,
    value: &Value,
    style: Style,
    write: impl Fn(&str) -> Result<String, E>,
) -> Result<Option<String>, E> {
    let items = match value {
        Value::Null => return Ok(None),
        value if style.form == Form::Json => return write(&value.to_string()).map(Some),
        Value::Array(list) => list
            .iter()
            .filter_map(text)
            .map(|item| write(&item))
            .collect::<Result<Vec<_>, E>>()?,
        Value::Object(map) if style.form != Form::Plain && style.form != Form::Json => {
            let glue = if style.explode { "=" } else { "," };
            map.iter()
                .filter_map(|(key, value)| Some((key, text(value)?)))
                .map(|(key, value)| Ok(format!("{}{glue}{}", write(key)?, write(&value)?)))
                .collect::<Result<Vec<_>, E>>()?
        }
        value => vec![write(&text(value).unwrap_or_default())?],
    };
    let is_object = value.is_object();
    Ok(Some(match style.form {
        Form::Label => {
            let glue = if style.explode { "." } else { "," };
            format!(".{}", items.join(glue))
        }
        Form::Matrix => {
            let name = write(name)?;
            match (style.explode, is_object) {
                (true, true) => items.iter().map(|item| format!(";{item}")).collect(),
                (true, false) => items.iter().map(|item| format!(";{name}={item}")).collect(),
                (false, _) => format!(";{name}={}", items.join(",")),
            }
        }
        Form::Space => items.join(&write(" ")?),
        Form::Tab => items.join(&write("\t")?),
        Form::Pipe => items.join(&write("|")?),
        _ => items.join(","),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::convert::Infallible;

    fn style(form: Form, explode: bool) -> Style {
        Style {
            form,
            explode,
            reserved: false,
        }
    }

    /// OpenAPI's own table of examples.
    #[test]
    fn query_values_follow_their_style() {
        let (list, object) = (json!(["blue", "black"]), json!({"R": 100, "G": 200}));
        for (value, form, explode, expected) in [
            (&json!("a b"), Form::Form, true, "color=a%20b"),
            (&json!(5), Form::Plain, true, "color=5"),
            (&list, Form::Form, true, "color=blue&color=black"),
            (&list, Form::Form, false, "color=blue,black"),
            (&list, Form::Plain, true, "color=blue&color=black"),
            (&list, Form::Space, false, "color=blue%20black"),
            (&list, Form::Tab, false, "color=blue%09black"),
            (&list, Form::Pipe, false, "color=blue%7Cblack"),
            (&object, Form::Form, true, "R=100&G=200"),
            (&object, Form::Form, false, "color=R,100,G,200"),
            (
                &object,
                Form::Deep,
                true,
                "color%5BR%5D=100&color%5BG%5D=200",
            ),
            (
                &object,
                Form::Json,
                false,
                "color=%7B%22R%22%3A100%2C%22G%22%3A200%7D",
            ),
            (
                &object,
                Form::Plain,
                true,
                "color=%7B%22R%22%3A100%2C%22G%22%3A200%7D",
            ),
            (&json!([]), Form::Form, false, ""),
            (&json!(null), Form::Form, true, ""),
        ] {
            let made = query([("color", value, style(form, explode))].into_iter());
            assert_eq!(made, expected, "{form:?} {explode} {value}");
        }
        let reserved = Style {
            reserved: true,
            ..style(Form::Form, true)
        };
        let value = json!("a/b?c&d#e");
        assert_eq!(
            query([("q", &value, reserved)].into_iter()),
            "q=a/b?c%26d%23e"
        );
    }

    #[test]
    fn path_values_follow_their_style() {
        let (list, object) = (json!(["blue", "black"]), json!({"R": 100, "G": 200}));
        let one = json!("blue");
        for (value, form, explode, expected) in [
            (&one, Form::Simple, false, "blue"),
            (&list, Form::Simple, false, "blue,black"),
            (&list, Form::Plain, true, "blue,black"),
            (&object, Form::Simple, false, "R,100,G,200"),
            (&object, Form::Simple, true, "R=100,G=200"),
            (&one, Form::Label, false, ".blue"),
            (&list, Form::Label, false, ".blue,black"),
            (&list, Form::Label, true, ".blue.black"),
            (&object, Form::Label, true, ".R=100.G=200"),
            (&one, Form::Matrix, false, ";color=blue"),
            (&list, Form::Matrix, false, ";color=blue,black"),
            (&list, Form::Matrix, true, ";color=blue;color=black"),
            (&object, Form::Matrix, false, ";color=R,100,G,200"),
            (&object, Form::Matrix, true, ";R=100;G=200"),
        ] {
            let write = |text: &str| Ok::<_, Infallible>(encode(text));
            let made = joined("color", value, style(form, explode), write).unwrap();
            assert_eq!(
                made.as_deref(),
                Some(expected),
                "{form:?} {explode} {value}"
            );
        }
    }
}
