//! Reads JSON documents that others have written, as ATIP metadata. Every mistake is noted with its
//! place, so that loading and validating are one and the same reading.

mod lines;

use std::path::Path;

use serde_json::{Map, Value};

pub use lines::add_lines;

use crate::error::Problem;

/// What is wrong with a document.
#[derive(Debug, Default)]
pub struct Findings {
    /// The document, or a part of it, can't be used.
    pub problems: Vec<Problem>,
    /// It can be used, and isn't what its specification asks for.
    pub warnings: Vec<Problem>,
}

impl Findings {
    pub fn problem(&mut self, place: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(message).key(place));
    }

    pub fn warning(&mut self, place: &str, message: impl Into<String>) {
        self.warnings.push(Problem::new(message).key(place));
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty() && self.warnings.is_empty()
    }

    /// Names the file that they are about, and the lines of its text.
    pub fn locate(&mut self, file: &Path, text: &str) {
        add_lines(text, self.problems.iter_mut().chain(&mut self.warnings));
        for problem in self.problems.iter_mut().chain(&mut self.warnings) {
            problem.file = Some(file.to_owned());
            // The document as a whole.
            problem.key = problem.key.take().filter(|key| !key.is_empty());
        }
    }
}

/// One object of a document.
pub struct Object<'a> {
    /// The way to it: `commands.pr.options[0]`. Empty for the whole document.
    place: String,
    members: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Object<'a> {
    /// None where it is no object, which is noted.
    pub fn open(value: &'a Value, place: &str, found: &mut Findings) -> Option<Self> {
        match value.as_object() {
            Some(members) => Some(Object {
                place: place.to_owned(),
                members,
                known: Vec::new(),
            }),
            None => {
                found.problem(place, format!("an object is wanted, not {}", kind(value)));
                None
            }
        }
    }

    /// The way to one of its members.
    pub fn place(&self, key: &str) -> String {
        join(&self.place, key)
    }

    pub fn own_place(&self) -> &str {
        &self.place
    }

    /// A member; null is the same as none.
    pub fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.members.get(key).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, key: &'static str, found: &mut Findings) -> Option<String> {
        let value = self.get(key)?;
        let text = value.as_str().map(str::to_owned);
        self.typed(key, text, "a text", value, found)
    }

    /// A text that has to be there, and not empty.
    pub fn needed_text(&mut self, key: &'static str, found: &mut Findings) -> Option<String> {
        let before = found.problems.len();
        let text = self.text(key, found);
        if found.problems.len() == before && text.as_deref().is_none_or(|it| it.trim().is_empty()) {
            found.problem(&self.place(key), "it is missing");
            return None;
        }
        text
    }

    pub fn flag(&mut self, key: &'static str, found: &mut Findings) -> Option<bool> {
        let value = self.get(key)?;
        self.typed(key, value.as_bool(), "true or false", value, found)
    }

    pub fn texts(&mut self, key: &'static str, found: &mut Findings) -> Vec<String> {
        let items = self.items(key, found);
        let mut texts = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => {
                    let place = format!("{}[{index}]", self.place(key));
                    found.problem(&place, format!("a text is wanted, not {}", kind(item)));
                }
            }
        }
        texts
    }

    /// The items of a list; none where there is no list.
    pub fn items(&mut self, key: &'static str, found: &mut Findings) -> &'a [Value] {
        let Some(value) = self.get(key) else {
            return &[];
        };
        let items = value.as_array().map(Vec::as_slice);
        self.typed(key, items, "a list", value, found)
            .unwrap_or_default()
    }

    /// The objects of a list, each with its place.
    pub fn objects(&mut self, key: &'static str, found: &mut Findings) -> Vec<Object<'a>> {
        let place = self.place(key);
        let items = self.items(key, found).iter().enumerate();
        items
            .filter_map(|(index, item)| Object::open(item, &format!("{place}[{index}]"), found))
            .collect()
    }

    /// A member that is an object.
    pub fn object(&mut self, key: &'static str, found: &mut Findings) -> Option<Object<'a>> {
        let value = self.get(key)?;
        Object::open(value, &self.place(key), found)
    }

    /// Every member, where the names are the author's own.
    pub fn members(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.members.iter()
    }

    /// Warns of members that were never asked for, but for those with `x-` in front.
    pub fn finish(self, found: &mut Findings) {
        let unknown = self
            .members
            .keys()
            .filter(|key| !key.starts_with("x-") && !self.known.iter().any(|known| known == key));
        for key in unknown {
            found.warning(&self.place(key), "unknown member");
        }
    }

    fn typed<T>(
        &self,
        key: &str,
        read: Option<T>,
        wanted: &str,
        value: &Value,
        found: &mut Findings,
    ) -> Option<T> {
        if read.is_none() {
            let message = format!("{wanted} is wanted, not {}", kind(value));
            found.problem(&self.place(key), message);
        }
        read
    }
}

/// A place below another one.
pub fn join(place: &str, key: &str) -> String {
    let key = match key {
        "" => "\"\"",
        key => key,
    };
    match place {
        "" => key.to_owned(),
        place => format!("{place}.{key}"),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mistakes_are_noted_with_their_place() {
        let document = json!({
            "name": 5, "list": [{"flag": "yes"}, 3], "tags": ["a", 1], "x-own": 1, "odd": 1,
            "nothing": null,
        });
        let mut found = Findings::default();
        let mut root = Object::open(&document, "", &mut found).unwrap();
        assert_eq!(root.text("name", &mut found), None);
        assert_eq!(root.text("nothing", &mut found), None);
        assert_eq!(root.needed_text("version", &mut found), None);
        assert_eq!(root.texts("tags", &mut found), ["a"]);
        for mut item in root.objects("list", &mut found) {
            assert_eq!(item.flag("flag", &mut found), None);
        }
        root.finish(&mut found);
        let texts = |list: &[Problem]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts(&found.problems),
            [
                "name: a text is wanted, not a number",
                "version: it is missing",
                "tags[1]: a text is wanted, not a number",
                "list[1]: an object is wanted, not a number",
                "list[0].flag: true or false is wanted, not a text",
            ]
        );
        assert_eq!(texts(&found.warnings), ["odd: unknown member"]);
    }
}
