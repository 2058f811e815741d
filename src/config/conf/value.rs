//! The types of conf values, and the macro that makes a section's raw form.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::config::Section;

/// How the value of a key is read. What is wrong with it becomes a problem of its section.
pub(in crate::config) trait ConfType {
    type Value;

    fn take(section: &mut Section<'_>, key: &'static str, conf: &Path) -> Option<Self::Value>;
}

/// What serde makes of it.
pub(in crate::config) struct Plain<T>(PhantomData<T>);

/// A number of at least 1.
pub(in crate::config) struct Positive;

/// A duration in whole seconds, perhaps 0.
pub(in crate::config) struct Seconds;

/// A duration of at least one second, in whole seconds.
pub(in crate::config) struct PositiveSeconds;

/// A path, relative to the conf file's folder.
pub(in crate::config) struct RelativePath;

impl<T: DeserializeOwned> ConfType for Plain<T> {
    type Value = T;

    fn take(section: &mut Section<'_>, key: &'static str, _: &Path) -> Option<T> {
        section.take(key)
    }
}

impl ConfType for Positive {
    type Value = usize;

    fn take(section: &mut Section<'_>, key: &'static str, _: &Path) -> Option<usize> {
        let value = section.take(key)?;
        if value == 0 {
            section.problem(key, "must be at least 1");
            return None;
        }
        Some(value)
    }
}

impl ConfType for Seconds {
    type Value = Duration;

    fn take(section: &mut Section<'_>, key: &'static str, _: &Path) -> Option<Duration> {
        section.take(key).map(Duration::from_secs)
    }
}

impl ConfType for PositiveSeconds {
    type Value = Duration;

    fn take(section: &mut Section<'_>, key: &'static str, conf: &Path) -> Option<Duration> {
        let seconds = Positive::take(section, key, conf)?;
        Some(Duration::from_secs(seconds as u64))
    }
}

impl ConfType for RelativePath {
    type Value = PathBuf;

    fn take(section: &mut Section<'_>, key: &'static str, conf: &Path) -> Option<PathBuf> {
        let path: PathBuf = section.take(key)?;
        Some(relative_to(conf, &path))
    }
}

/// `path`, if it is relative, below the folder of the conf file.
pub(super) fn relative_to(conf: &Path, path: &Path) -> PathBuf {
    conf.parent().unwrap_or(Path::new("")).join(path)
}

/// The raw form of a section: a field for each key, of the same name, `None` where the conf file
/// doesn't have it. A new key is a line here and a line in the section's `resolve`.
macro_rules! raw_section {
    ($(#[$meta:meta])* $name:ident { $($key:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Default)]
        pub(in crate::config) struct $name {
            $(pub(in crate::config) $key:
                Option<<$type as $crate::config::conf::value::ConfType>::Value>,)*
        }

        impl $crate::config::conf::value::RawSection for $name {
            fn take(section: &mut $crate::config::Section<'_>, conf: &std::path::Path) -> Self {
                $name {
                    $($key: <$type as $crate::config::conf::value::ConfType>::take(
                        section,
                        stringify!($key),
                        conf,
                    ),)*
                }
            }
        }
    };
}
pub(super) use raw_section;

/// Made by [`raw_section!`].
pub(in crate::config) trait RawSection {
    /// Takes every key of the section, in the order of the fields.
    fn take(section: &mut Section<'_>, conf: &Path) -> Self;
}
