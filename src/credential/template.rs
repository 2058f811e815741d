//! Texts of manifests that refer to keys of the keyring.

use zeroize::Zeroizing;

use super::Lookup;
use crate::keyring::Secret;
use crate::keyring::stored::Unreadable;

/// A text with `${key}` in it. The value of a key is not expanded again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(String),
    Key(String),
}

/// What a `${key}` stands for.
pub enum Filling<'a> {
    /// Not secret.
    Text(&'a [u8]),
    Secret(Secret),
}

impl Filling<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Filling::Text(text) => text,
            Filling::Secret(secret) => secret.expose(),
        }
    }
}

/// Why a text couldn't be filled in.
#[derive(Debug, PartialEq, Eq)]
pub enum Unfilled {
    /// The names of the keys that are missing.
    Missing(Vec<String>),
    Unreadable(Unreadable),
}

impl From<Unreadable> for Unfilled {
    fn from(unreadable: Unreadable) -> Self {
        Unfilled::Unreadable(unreadable)
    }
}

impl Template {
    /// A `${` without its `}` is text.
    pub fn parse(mut text: &str) -> Self {
        let mut parts = Vec::new();
        while let Some((before, rest)) = text.split_once("${") {
            let Some((key, after)) = rest.split_once('}') else {
                break;
            };
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Key(key.to_owned()));
            text = after;
        }
        parts.push(Part::Text(text.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Template(parts)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Key(key) => Some(key.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The whole text, where no key is part of it.
    pub fn without_keys(&self) -> Option<String> {
        let mut parts = self.0.iter();
        parts.try_fold(String::new(), |whole, part| match part {
            Part::Text(text) => Some(whole + text),
            Part::Key(_) => None,
        })
    }

    /// Whether this stands in its texts.
    pub fn has_text(&self, text: &str) -> bool {
        self.0
            .iter()
            .any(|part| matches!(part, Part::Text(own) if own.contains(text)))
    }

    /// The text with the values of its keys.
    pub fn expand(&self, lookup: &Lookup<'_>) -> Result<Zeroizing<Vec<u8>>, Unfilled> {
        self.expand_with(|key| Ok(lookup.get(key)?.map(Filling::Secret)))
    }

    /// As [`Template::expand`], with the values of another source.
    pub fn expand_with<'v>(
        &'v self,
        get: impl Fn(&str) -> Result<Option<Filling<'v>>, Unreadable>,
    ) -> Result<Zeroizing<Vec<u8>>, Unfilled> {
        let (mut pieces, mut missing) = (Vec::with_capacity(self.0.len()), Vec::new());
        for part in &self.0 {
            match part {
                Part::Text(text) => pieces.push(Filling::Text(text.as_bytes())),
                Part::Key(key) => match get(key)? {
                    Some(value) => pieces.push(value),
                    None => missing.push(key.clone()),
                },
            }
        }
        if !missing.is_empty() {
            return Err(Unfilled::Missing(missing));
        }
        let bytes = || pieces.iter().map(Filling::bytes);
        // With its final size, because a buffer that grows leaves copies of the secret in freed
        // memory.
        let mut out = Zeroizing::new(Vec::with_capacity(bytes().map(<[u8]>::len).sum()));
        bytes().for_each(|piece| out.extend_from_slice(piece));
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_without_its_closing_brace_is_text() {
        let keys = |text: &str| {
            Template::parse(text)
                .keys()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(keys("a ${b} c ${d}"), ["b", "d"]);
        assert!(keys("no keys").is_empty());
        assert!(keys("${open").is_empty());
        assert_eq!(
            Template::parse("${open"),
            Template(vec![Part::Text("${open".into())])
        );
    }
}
