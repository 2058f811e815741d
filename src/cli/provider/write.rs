//! Writes manifests as TOML that people can read and edit.

use std::path::{Path, PathBuf};

use serde_json::json;
use toml::Value;
use tracing::info;

use super::super::{Format, file_failure, output};
use crate::config;
use crate::error::{Code, Failure};
use crate::files;

/// A `[provider]` table under construction. Fields keep the order in which they are added.
#[derive(Default)]
pub struct Manifest {
    head: Vec<String>,
    lines: Vec<String>,
    tables: Vec<String>,
}

impl Manifest {
    pub fn new(name: &str, description: &str, handler: &str) -> Self {
        let mut manifest = Manifest::default();
        manifest
            .text("name", name)
            .text("description", description)
            .text("handler", handler);
        manifest
    }

    pub fn text(&mut self, key: &str, value: &str) -> &mut Self {
        self.value(key, Value::String(value.to_owned()))
    }

    pub fn optional(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.text(key, value);
        }
        self
    }

    pub fn list(&mut self, key: &str, values: &[String]) -> &mut Self {
        if !values.is_empty() {
            let list = values.iter().cloned().map(Value::String).collect();
            self.value(key, Value::Array(list));
        }
        self
    }

    pub fn value(&mut self, key: &str, value: Value) -> &mut Self {
        self.lines.push(format!("{key} = {value}"));
        self
    }

    /// A comment at the top of the file.
    pub fn comment(&mut self, text: &str) -> &mut Self {
        let plain: String = text.chars().filter(|c| !c.is_control()).collect();
        self.head.push(format!("# {plain}"));
        self
    }

    pub fn map(&mut self, name: &str, entries: &[(String, String)]) -> &mut Self {
        if !entries.is_empty() {
            let lines = entries.iter().map(|(key, value)| {
                let value = Value::String(value.clone());
                format!("\n{} = {value}", quoted_key(key))
            });
            let table = format!("\n[provider.{name}]{}", lines.collect::<String>());
            self.tables.push(table);
        }
        self
    }

    pub fn render(&self) -> String {
        let mut all = self.head.clone();
        all.push("[provider]".to_owned());
        all.extend(self.lines.iter().cloned());
        all.extend(self.tables.iter().cloned());
        all.join("\n") + "\n"
    }
}

fn quoted_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !key.is_empty() && key.chars().all(bare) {
        key.to_owned()
    } else {
        Value::String(key.to_owned()).to_string()
    }
}

pub fn manifest_path(name: &str) -> PathBuf {
    config::ati_dir()
        .join("manifests")
        .join(format!("{name}.toml"))
}

/// Write a new manifest. An existing one is never replaced.
pub fn save_new(name: &str, manifest: &Manifest, asked: Option<Format>) -> Result<(), Failure> {
    let path = manifest_path(name);
    if path.exists() {
        let message = format!("Manifest already exists: {}", path.display());
        return Err(Failure::invalid(message).hint("--force replaces it"));
    }
    replace(name, manifest, asked)
}

/// Write a manifest in the place of one that may be there.
pub fn replace(name: &str, manifest: &Manifest, asked: Option<Format>) -> Result<(), Failure> {
    let path = manifest_path(name);
    save(&path, manifest.render().as_bytes())?;
    info!("saved manifest {}", path.display());
    output::done(
        asked,
        || json!({"status": "saved", "name": name, "manifest": path}),
    );
    Ok(())
}

/// Write a file atomically.
pub fn save(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write(path, content, 0o644)
}

/// Write a file atomically, readable by its owner alone.
pub fn save_private(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write(path, content, 0o600)
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    let failed = |e: std::io::Error| file_failure(Code::ExecutionFailed, path, e);
    if let Some(dir) = path.parent() {
        files::create_private_dir(dir).map_err(failed)?;
    }
    files::write_atomic(path, content, mode).map_err(failed)
}
