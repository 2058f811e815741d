//! Where skills are installed from: a folder, a git repository, or ati itself.

use std::path::{Component, Path, PathBuf};

use url::Url;

use crate::egress;
use crate::error::Failure;
use crate::skills::{SHIPPED, Shipped};

/// What stands in front of the name of a skill that comes with ati, where a source is recorded.
const SHIPPED_PREFIX: &str = "ati:";
/// The shortest beginning of a commit's id that pins one.
const SHORTEST_PIN: usize = 7;
const LONGEST_PIN: usize = 64;

#[derive(Clone)]
pub enum Source {
    Shipped(&'static Shipped),
    Folder(PathBuf),
    Git(GitSource),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// As git takes it. It holds no password.
    pub url: String,
    /// The beginning of a commit's id.
    pub pin: Option<String>,
    /// Below the repository's root.
    pub subdir: Option<String>,
}

impl Source {
    /// `is_git`: it was said to be a repository.
    pub fn parse(text: &str, is_git: bool) -> Result<Self, Failure> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Failure::invalid("the source is empty"));
        }
        if text.starts_with('-') {
            let message = format!("'{text}' is no source: it begins like an option");
            return Err(Failure::invalid(message));
        }
        let named = text.strip_prefix(SHIPPED_PREFIX).unwrap_or(text);
        let shipped = SHIPPED.iter().find(|shipped| shipped.name == named);
        if let Some(shipped) = shipped.filter(|_| named != text || !Path::new(text).exists()) {
            return Ok(Source::Shipped(shipped));
        }
        let git = GitSource::split(text);
        if is_git || git.looks_like_git() {
            return git.check().map(Source::Git);
        }
        // What has a transport that isn't known is no folder.
        refuse_transport(&git.url)?;
        match Path::new(text).canonicalize() {
            Ok(path) if path.is_dir() => Ok(Source::Folder(path)),
            Ok(_) => Err(Failure::invalid(format!("'{text}' is no folder"))),
            Err(e) => Err(Failure::invalid(format!("'{text}'")).because(e)),
        }
    }

    /// As it is recorded with an installed skill, and parsed again for an update. The pin is
    /// recorded next to it.
    pub fn recorded(&self) -> String {
        match self {
            Source::Shipped(shipped) => format!("{SHIPPED_PREFIX}{}", shipped.name),
            Source::Folder(path) => path.display().to_string(),
            Source::Git(git) => match &git.subdir {
                Some(subdir) => format!("{}#{subdir}", git.url),
                None => git.url.clone(),
            },
        }
    }

    pub fn pin(&self) -> Option<&str> {
        match self {
            Source::Git(git) => git.pin.as_deref(),
            Source::Shipped(_) | Source::Folder(_) => None,
        }
    }

    /// The source of a folder below this one.
    pub fn child(&self, name: &str) -> Source {
        match self {
            Source::Shipped(_) => self.clone(),
            Source::Folder(path) => Source::Folder(path.join(name)),
            Source::Git(git) => Source::Git(GitSource {
                subdir: Some(match &git.subdir {
                    Some(above) => format!("{above}/{name}"),
                    None => name.to_owned(),
                }),
                ..git.clone()
            }),
        }
    }
}

impl GitSource {
    /// `url`, `url#subdir`, `url@sha#subdir` and `url#subdir@sha`.
    fn split(text: &str) -> Self {
        let (url, fragment) = match text.split_once('#') {
            Some((url, fragment)) => (url, Some(fragment)),
            None => (text, None),
        };
        let (url, first) = split_pin(url);
        let (subdir, second) = match fragment {
            Some(fragment) => {
                let (subdir, pin) = split_pin(fragment);
                (Some(subdir), pin)
            }
            None => (None, None),
        };
        GitSource {
            url: url.to_owned(),
            pin: first.or(second).map(str::to_ascii_lowercase),
            subdir: subdir.filter(|dir| !dir.is_empty()).map(str::to_owned),
        }
    }

    fn looks_like_git(&self) -> bool {
        let url = &self.url;
        let begins = ["https://", "http://", "ssh://", "file://", "git@"];
        begins.iter().any(|begin| url.starts_with(begin)) || url.ends_with(".git")
    }

    /// Whether git may be given this.
    fn check(self) -> Result<Self, Failure> {
        let url = self.url.as_str();
        refuse_transport(url)?;
        if url.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(Failure::invalid("the URL has spaces or control characters"));
        }
        let parsed = Url::parse(url).ok().filter(|_| url.contains("://"));
        if let Some(parsed) = &parsed {
            let has_secret = parsed.password().is_some()
                || (egress::is_http_url(parsed) && !parsed.username().is_empty());
            if has_secret {
                let message = "the URL holds a credential, which other users of this machine \
                               could see";
                return Err(Failure::invalid(message)
                    .hint("configure a credential helper of git, and leave it out of the URL"));
            }
        }
        let host = match &parsed {
            Some(parsed) => parsed.host_str().unwrap_or_default(),
            None => url.split_once('@').map_or("", |(_, rest)| rest),
        };
        if host.starts_with('-')
            || parsed
                .as_ref()
                .is_some_and(|it| it.username().starts_with('-'))
        {
            return Err(Failure::invalid(
                "the URL has a host that begins like an option",
            ));
        }
        if let Some(subdir) = &self.subdir {
            check_subdir(subdir)?;
        }
        // git would look for a relative path from a folder of its own.
        let is_path = parsed.is_none() && !url.starts_with("git@");
        if is_path {
            let path = Path::new(url).canonicalize();
            let path = path.map_err(|e| Failure::invalid(format!("'{url}'")).because(e))?;
            let url = path.to_str();
            let url = url.ok_or_else(|| Failure::invalid("the path is not UTF-8"))?;
            // So that what is recorded is known to be a repository.
            let url = match url.ends_with(".git") {
                true => url.to_owned(),
                false => format!("file://{url}"),
            };
            return Ok(GitSource { url, ..self });
        }
        Ok(self)
    }

    /// The name of the repository.
    pub fn repository(&self) -> &str {
        let last = self.url.trim_end_matches('/').rsplit(['/', ':']).next();
        last.unwrap_or_default().trim_end_matches(".git")
    }
}

/// Only transports that run no program of the source's choice.
fn refuse_transport(url: &str) -> Result<(), Failure> {
    const ALLOWED: [&str; 4] = ["https", "http", "ssh", "file"];
    let refused = |name: &str| {
        let message = format!("the transport '{name}' is not allowed");
        Err(Failure::invalid(message).hint("https, http, ssh and file are"))
    };
    if let Some((scheme, _)) = url.split_once("://") {
        return match ALLOWED.contains(&scheme) {
            true => Ok(()),
            false => refused(scheme),
        };
    }
    match url.split_once("::") {
        Some((helper, _)) if !Path::new(url).exists() => refused(helper),
        _ => Ok(()),
    }
}

/// A folder below the root, and no other.
fn check_subdir(subdir: &str) -> Result<(), Failure> {
    let path = Path::new(subdir);
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_));
    let is_plain = path.components().all(plain) && !subdir.contains(['\\', '\0']);
    let hidden = path.components().any(|part| part.as_os_str() == ".git");
    match is_plain && !hidden {
        true => Ok(()),
        false => {
            let message = format!("'#{subdir}' is no folder below the repository's root");
            Err(Failure::invalid(message))
        }
    }
}

/// A text and the beginning of a commit's id behind its last `@`.
fn split_pin(text: &str) -> (&str, Option<&str>) {
    let is_pin = |pin: &str| {
        (SHORTEST_PIN..=LONGEST_PIN).contains(&pin.len())
            && pin.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match text.rsplit_once('@') {
        Some((before, pin)) if is_pin(pin) => (before, Some(pin)),
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(text: &str) -> GitSource {
        match Source::parse(text, false) {
            Ok(Source::Git(git)) => git,
            Ok(_) => panic!("{text} is no repository"),
            Err(failure) => panic!("{text}: {failure}"),
        }
    }

    #[test]
    fn pin_is_taken_in_both_spellings() {
        let expected = GitSource {
            url: "https://github.com/org/repo".into(),
            pin: Some("abc1234".into()),
            subdir: Some("skills/name".into()),
        };
        assert_eq!(
            git("https://github.com/org/repo@abc1234#skills/name"),
            expected
        );
        assert_eq!(
            git("https://github.com/org/repo#skills/name@abc1234"),
            expected
        );
        let root = git("https://github.com/org/repo.git@ABC1234567");
        assert_eq!(root.pin.as_deref(), Some("abc1234567"));
        assert_eq!((root.subdir.as_deref(), root.repository()), (None, "repo"));
        let ssh = git("git@github.com:org/repo.git#x");
        assert_eq!((ssh.pin.as_deref(), ssh.repository()), (None, "repo"));
        // Six digits, and words, are no pin.
        assert_eq!(git("https://h/r@abc123").pin, None);
        assert_eq!(git("https://h/r@main").url, "https://h/r@main");
    }

    #[test]
    fn odd_sources_are_refused() {
        for bad in [
            "",
            "-oProxyCommand=x",
            "--upload-pack=x.git",
            "ext::sh -c 'id' .git",
            "ext::sh%20-c%20id.git",
            "fd::17/x.git",
            "transport::https://h/x.git",
            "git://h/x.git",
            "ftp://h/x",
            "s3://bucket/x",
            "https://user:planted-password@h/x.git",
            "https://planted-token@h/x.git",
            "ssh://-oProxyCommand=x/y.git",
            "git@-oProxyCommand=x:y",
            "https://h/x#../y",
            "https://h/x#/etc",
            "https://h/x#a/../../b",
            "https://h/x#.git/hooks",
            "https://h/x y.git",
            "/nonexistent/folder",
            "/nonexistent/repository.git",
            "/etc/passwd",
        ] {
            let refused = Source::parse(bad, false).err();
            let text = refused.map(|failure| failure.one_line());
            assert!(text.is_some(), "{bad}");
            assert!(!text.unwrap().contains("planted"), "{bad}");
        }
    }

    #[test]
    fn source_is_recorded_so_that_it_can_be_parsed_again() {
        let source = Source::parse("https://h/o/r@abc1234#a", false).unwrap();
        assert_eq!(
            (source.recorded().as_str(), source.pin()),
            ("https://h/o/r#a", Some("abc1234"))
        );
        assert_eq!(source.child("b").recorded(), "https://h/o/r#a/b");
        let shipped = Source::parse("google-workspace", false).unwrap();
        assert_eq!(shipped.recorded(), "ati:google-workspace");
        assert!(matches!(
            Source::parse("ati:google-workspace", false),
            Ok(Source::Shipped(_))
        ));
    }
}
