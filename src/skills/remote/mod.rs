//! SkillATI: skills of a remote catalogue, read when an agent asks for them.
//!
//! A [`Registry`] says where the catalogue is, a [`Source`] asks it, [`RemoteSkills`] keeps what it
//! answered, and a [`Reader`] answers callers, each with the skills that it may see.

mod access;
mod answer;
pub mod build_index;
mod catalogue;
mod files;
mod path;
mod proxy;
mod reader;
mod registry;
mod slot;
mod source;
mod store;
mod substitute;

pub use access::{Access, RemoteSkills};
pub use answer::{Answer, Viewer};
pub use catalogue::{Catalogue, Entry, Skill};
pub use reader::Reader;
pub use registry::Registry;
use source::Source;
