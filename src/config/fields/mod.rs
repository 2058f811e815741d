//! Every field of a manifest, described once: for the reference page and for the JSON Schema that
//! editors use.

mod handlers;
mod provider;
mod schema;
#[cfg(test)]
mod tests;
mod tools;

pub use schema::json_schema;
pub use tools::RESULT_FORMATS;

use super::HandlerKind;

pub struct Field {
    pub name: &'static str,
    pub kind: FieldKind,
    /// As the page shows it; empty where there is none.
    pub default: &'static str,
    pub meaning: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Text,
    Flag,
    Number,
    TextList,
    TextMap,
    NumberMap,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Anything, for example a JSON Schema.
    Free,
    /// A table with the fields of this group.
    Table(&'static str),
    /// Tables with the fields of this group, by name.
    TableMap(&'static str),
}

impl FieldKind {
    /// As the page shows it.
    pub fn words(self) -> String {
        match self {
            FieldKind::Text => "text".to_owned(),
            FieldKind::Flag => "true or false".to_owned(),
            FieldKind::Number => "number".to_owned(),
            FieldKind::TextList => "list of texts".to_owned(),
            FieldKind::TextMap => "texts by name".to_owned(),
            FieldKind::NumberMap => "numbers by name".to_owned(),
            FieldKind::Word(words) => words
                .iter()
                .map(|word| format!("`{word}`"))
                .collect::<Vec<_>>()
                .join(", "),
            FieldKind::Free => "any".to_owned(),
            FieldKind::Table(_) => "table".to_owned(),
            FieldKind::TableMap(_) => "tables by name".to_owned(),
        }
    }
}

pub struct Group {
    /// The table's name in a manifest. Groups with the same table are one table.
    pub table: &'static str,
    pub title: &'static str,
    /// The one handler that reads these fields, where not all of them do.
    pub handler: Option<HandlerKind>,
    pub fields: &'static [Field],
}

impl Group {
    /// What the page says below the title.
    pub fn note(&self) -> Option<&'static str> {
        let absence = self.handler.as_ref().and_then(HandlerKind::absence);
        absence.map(|_| {
            "**Not in this build yet.** A manifest with this handler loads with a warning, and its \
             tools are absent."
        })
    }
}

const fn field(name: &'static str, kind: FieldKind, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default: "",
        meaning,
    }
}

impl Field {
    const fn default(self, default: &'static str) -> Self {
        Field { default, ..self }
    }
}

/// In the order of the page.
pub const GROUPS: &[Group] = &[
    provider::COMMON,
    provider::CREDENTIALS,
    handlers::OPENAPI,
    handlers::OPENAPI_OVERRIDES,
    handlers::PASSTHROUGH,
    handlers::MCP,
    handlers::CLI,
    handlers::ATIP,
    handlers::CMP,
    handlers::RUNFILE,
    handlers::SANDBOX,
    handlers::FILE_MANAGER,
    handlers::UPLOAD_DESTINATIONS,
    provider::AUTH_GENERATOR,
    provider::INJECT,
    tools::TOOLS,
    tools::RESPONSE,
];

fn fields_of(table: &str) -> impl Iterator<Item = &'static Field> {
    let groups = GROUPS.iter().filter(move |group| group.table == table);
    groups.flat_map(|group| group.fields)
}

/// The names of a table's fields.
pub fn names(table: &str) -> impl Iterator<Item = &'static str> {
    fields_of(table).map(|field| field.name)
}

/// A table with a value for each field.
#[cfg(test)]
pub fn sample_table(table: &str) -> toml::Table {
    fields_of(table)
        .map(|field| match field.name {
            "run_as" => (field.name.to_owned(), "user:group".into()),
            "cli_cwd" => (field.name.to_owned(), "/folder".into()),
            name => (name.to_owned(), sample(field.kind)),
        })
        .collect()
}

/// A value that a field of this kind could have.
#[cfg(test)]
fn sample(kind: FieldKind) -> toml::Value {
    use toml::Value as T;
    match kind {
        FieldKind::Text => T::String("http://h".into()),
        FieldKind::Flag => T::Boolean(true),
        FieldKind::Number => T::Integer(1),
        FieldKind::TextList => T::Array(vec![T::String("/a".into()), T::String("/b".into())]),
        FieldKind::Word(words) => T::String(words[0].into()),
        FieldKind::TextMap | FieldKind::NumberMap | FieldKind::Free | FieldKind::TableMap(_) => {
            T::Table(toml::Table::new())
        }
        FieldKind::Table(table) => T::Table(sample_table(table)),
    }
}
