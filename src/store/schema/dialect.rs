//! Where the two engines' SQL differs: the names of types, and a few words. Tables are written
//! once, with these in braces.

use crate::store::db::Engine;

/// Word, SQLite, PostgreSQL. SQLite keeps times as milliseconds, lists and documents as JSON text.
const WORDS: &[(&str, &str, &str)] = &[
    ("{int}", "integer", "bigint"),
    ("{time}", "integer", "timestamptz"),
    ("{texts}", "text", "text[]"),
    ("{no_texts}", "'[]'", "'{}'"),
    ("{json}", "text", "jsonb"),
    ("{bytes}", "blob", "bytea"),
    ("{uuid}", "text", "uuid"),
    ("{ip}", "text", "inet"),
    ("{bool}", "integer", "boolean"),
    ("{false}", "0", "false"),
    (
        "{counted}",
        "integer primary key autoincrement",
        "bigserial primary key",
    ),
];

pub fn written_for(engine: Engine, text: &str) -> String {
    let mut text = text.to_owned();
    for (word, sqlite, postgres) in WORDS {
        let written = match engine {
            Engine::Sqlite => sqlite,
            Engine::Postgres => postgres,
        };
        text = text.replace(word, written);
    }
    text
}
