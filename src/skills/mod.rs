//! Skills: documents that teach an agent how to use tools. A skill is a folder with a `SKILL.md`
//! and perhaps a `skill.toml`; the registry has those of `<ati_dir>/skills`.
//!
//! What a caller may see follows from its scopes and from what a skill is bound to: [`Grants`].

pub mod document;
pub mod folder;
mod grants;
pub mod integrity;
mod name;
pub mod registry;
pub mod remote;
pub mod search;
pub mod served;
mod shipped;

pub use document::{Format, Skill};
pub use folder::{BundleError, Bundled};
pub use grants::{Bindings, Grants, declared_name};
pub use name::{LONGEST_NAME, is_skill_name};
pub use registry::{FOLDER, Installed, Registry, Visible};
pub use shipped::{SHIPPED, Shipped};

/// The document of a skill.
pub const DOCUMENT: &str = "SKILL.md";
/// Its bindings, and what is known about where it came from.
pub const METADATA: &str = "skill.toml";
/// A manifest that a skill brings along.
pub const PROVIDER: &str = "provider.toml";
/// Documents that are read on demand.
pub const REFERENCES: &str = "references";
