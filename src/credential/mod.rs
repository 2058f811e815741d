//! Credentials that ati adds to a request, and that its caller never sees.
//!
//! A secret leaves this room in four ways: as a header ([`Attachment::attach`]), as a query
//! parameter ([`Attachment::query`]), as a variable of a child process
//! ([`Attachment::environment`]), and in a text with `${key}` in it ([`Template::expand`]: URLs,
//! arguments of programs). The token request of an OAuth exchange is the one case outside of this
//! room: the executor writes that form itself.
//!
//! What comes back is redacted with [`Attachment::redact`] or, in pieces, with
//! [`Attachment::redactor`]; headers of a response with [`Attachment::redact_header`].

mod error;
mod lookup;
mod per_customer;
pub mod query;
mod redact;
mod redact_header;
mod redact_text;
mod template;
mod used;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use zeroize::Zeroizing;

pub use error::CredentialError;
pub use lookup::Lookup;
pub use per_customer::PerCustomer;
pub use redact::{RedactionPatterns, Redactor};
pub use template::{Filling, Template, Unfilled};
pub use used::UsedSecrets;

use crate::keyring::Secret;
use crate::keyring::stored::Unreadable;
use crate::telemetry::health::{self, KeyHealth};

/// Everything but RFC 3986's unreserved characters.
pub const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The variable in which a program finds the token that a generator made.
const TOKEN_VARIABLE: &str = "ATI_AUTH_TOKEN";

/// How a credential is presented, as a manifest says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Credential {
    #[default]
    None,
    Bearer {
        key: String,
    },
    Header {
        key: String,
        name: HeaderName,
        prefix: String,
    },
    Query {
        key: String,
        name: String,
    },
    /// The value is `user:password`.
    Basic {
        key: String,
    },
    /// The value is `user:password`, or a user name alone, whose password is empty. Manifests of
    /// tools mean either.
    BasicUser {
        key: String,
    },
}

/// Resolved credentials, ready to be put on requests. The values lie in locked memory.
#[derive(Default)]
pub struct Attachment {
    auth: Option<(HeaderName, HeaderValue)>,
    query: Option<Secret>,
    /// Variables of a child process.
    env: Vec<(String, Secret)>,
    extra: Vec<(HeaderName, HeaderValue)>,
    patterns: Arc<RedactionPatterns>,
    /// Secrets that are too short to be searched for. A header that is equal to one is redacted.
    short: Vec<Secret>,
    /// Of every key that it was resolved from.
    health: Vec<Arc<KeyHealth>>,
}

/// The keys that a resolution could not use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Names that the keyring doesn't have.
    pub missing: Vec<String>,
    /// Names whose value can't be sent. Mostly it has a line break.
    pub unsendable: Vec<String>,
    /// Rows of the database that can't be read.
    pub unreadable: Vec<Unreadable>,
}

impl Attachment {
    /// Looks up the credential and the keys of the extra headers.
    pub fn resolve(
        credential: &Credential,
        extra: &[(HeaderName, Template)],
        lookup: &Lookup<'_>,
    ) -> (Self, Gaps) {
        let mut gaps = Gaps::default();
        let mut attachment = Attachment::default();
        let mut used: Vec<Secret> = Vec::new();
        if let Some(key) = credential.key() {
            match lookup.get(key) {
                Err(unreadable) => gaps.unreadable.push(unreadable),
                Ok(None) => gaps.missing.push(key.to_owned()),
                Ok(Some(secret)) => {
                    attachment.health.push(health::of(key));
                    match attachment.set(credential, secret.expose()) {
                        None => gaps.unsendable.push(key.to_owned()),
                        Some(()) => used.push(secret),
                    }
                }
            }
        }
        attachment.add_extra(extra, lookup, &mut gaps);
        for key in extra.iter().flat_map(|(_, template)| template.keys()) {
            // What is missing or can't be read is among the gaps already.
            if let Ok(Some(secret)) = lookup.get(key) {
                attachment.health.push(health::of(key));
                used.push(secret);
            }
        }
        let password = credential.password(used.first().map(|secret| secret.expose()));
        let values = used.iter().map(|secret| secret.expose());
        attachment = attachment.with_redacted(values.chain(password));
        attachment = attachment.with_short(used.iter(), extra);
        (attachment, gaps)
    }

    /// This attachment with values that were minted for a call: the main one, presented as the
    /// credential says, and headers. `None` where one of them can't be sent.
    pub fn with_minted(
        &self,
        credential: &Credential,
        value: &[u8],
        headers: &[(HeaderName, &[u8])],
    ) -> Option<Self> {
        let mut minted = Attachment {
            auth: None,
            query: None,
            env: Vec::new(),
            extra: self.extra.clone(),
            patterns: self.patterns.clone(),
            short: self.short.clone(),
            health: self.health.clone(),
        };
        // A value that a generator made may have no name in the keyring.
        let own = credential.key().map(health::of);
        let known = |key: &Arc<KeyHealth>| self.health.iter().any(|other| Arc::ptr_eq(other, key));
        minted.health.extend(own.filter(|key| !known(key)));
        minted.set(credential, value)?;
        for (name, value) in headers {
            minted.extra.push((name.clone(), header_value(&[value])?));
        }
        let values = std::iter::once(value).chain(headers.iter().map(|(_, value)| *value));
        Some(minted.with_redacted(values))
    }

    /// This attachment for a child process: the minted value, and more values, as variables.
    pub fn with_environment(mut self, value: &[u8], env: &[(String, Zeroizing<Vec<u8>>)]) -> Self {
        let token = (!value.is_empty()).then_some((TOKEN_VARIABLE, value));
        let env = env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        for (name, value) in token.into_iter().chain(env) {
            if let Ok(secret) = Secret::new(value) {
                self.env.push((name.to_owned(), secret));
            }
        }
        let values: Vec<Secret> = self.env.iter().map(|(_, secret)| secret.clone()).collect();
        self.with_redacted(values.iter().map(Secret::expose))
    }

    /// The variables for a child process that is about to be started.
    pub fn environment(&self) -> impl Iterator<Item = (String, Zeroizing<String>)> {
        self.env.iter().map(|(name, secret)| {
            let text = String::from_utf8_lossy(secret.expose()).into_owned();
            (name.clone(), Zeroizing::new(text))
        })
    }

    /// This attachment, which redacts these values as well.
    pub fn with_redacted<'a>(mut self, values: impl Iterator<Item = &'a [u8]>) -> Self {
        self.patterns = Arc::new(self.patterns.with(values));
        self
    }

    fn add_extra(
        &mut self,
        extra: &[(HeaderName, Template)],
        lookup: &Lookup<'_>,
        gaps: &mut Gaps,
    ) {
        for (name, template) in extra {
            match template.expand(lookup) {
                Err(Unfilled::Missing(names)) => gaps.missing.extend(names),
                Err(Unfilled::Unreadable(row)) => gaps.unreadable.push(row),
                Ok(value) => match header_value(&[&value]) {
                    Some(value) => self.extra.push((name.clone(), value)),
                    None => gaps
                        .unsendable
                        .push(template.keys().collect::<Vec<_>>().join(", ")),
                },
            }
        }
    }

    fn set(&mut self, credential: &Credential, value: &[u8]) -> Option<()> {
        match credential {
            Credential::None => {}
            Credential::Bearer { .. } => {
                self.auth = Some((AUTHORIZATION, header_value(&[b"Bearer ", value])?));
            }
            Credential::Header { name, prefix, .. } => {
                self.auth = Some((name.clone(), header_value(&[prefix.as_bytes(), value])?));
            }
            Credential::Basic { .. } => {
                let encoded = Zeroizing::new(STANDARD.encode(value));
                self.auth = Some((
                    AUTHORIZATION,
                    header_value(&[b"Basic ", encoded.as_bytes()])?,
                ));
            }
            Credential::BasicUser { .. } => {
                let end: &[u8] = if value.contains(&b':') { b"" } else { b":" };
                let pair = Zeroizing::new([value, end].concat());
                let encoded = Zeroizing::new(STANDARD.encode(&*pair));
                self.auth = Some((
                    AUTHORIZATION,
                    header_value(&[b"Basic ", encoded.as_bytes()])?,
                ));
            }
            Credential::Query { name, .. } => {
                let name = percent_encode(name.as_bytes(), UNRESERVED);
                let value = percent_encode(value, UNRESERVED);
                let pair = Zeroizing::new(format!("{name}={value}"));
                self.query = Some(Secret::new(pair.as_bytes()).ok()?);
            }
        }
        Some(())
    }

    /// Puts the headers on a request, each in place of the caller's header of that name.
    /// `with_auth` is false where the caller's own authorization is forwarded.
    pub fn attach<E>(
        &self,
        with_auth: bool,
        mut insert: impl FnMut(HeaderName, HeaderValue) -> Result<(), E>,
    ) -> Result<(), E> {
        for (name, value) in self
            .extra
            .iter()
            .chain(self.auth.iter().filter(|_| with_auth))
        {
            insert(name.clone(), value.clone())?;
        }
        Ok(())
    }

    /// Whether [`Attachment::attach`] sets this header. The name is in lower case.
    pub fn sets(&self, with_auth: bool, name: &[u8]) -> bool {
        let auth = self.auth.iter().filter(|_| with_auth);
        let mut set = self.extra.iter().chain(auth);
        set.any(|(own, _)| own.as_str().as_bytes() == name)
    }

    /// What [`Attachment::attach`] leaves on a request: of two headers with the same name, the
    /// second.
    pub fn headers(&self, with_auth: bool) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        let auth = self.auth.iter().filter(move |_| with_auth);
        let extra = self.extra.iter().enumerate();
        let extra = extra.filter(move |(index, (name, _))| {
            let later = self.extra[index + 1..].iter();
            let later = later.chain(self.auth.iter().filter(|_| with_auth));
            !later.map(|(other, _)| other).any(|other| other == name)
        });
        let extra = extra.map(|(_, header)| header);
        extra.chain(auth).map(|(name, value)| (name, value))
    }

    /// Whether it was resolved from a key of the keyring.
    pub fn has_credential(&self) -> bool {
        !self.health.is_empty()
    }

    /// Whether its main key was there, and is sent in a header or in the query.
    pub fn sends_main(&self) -> bool {
        self.auth.is_some() || self.query.is_some()
    }

    /// The names of the headers that it sets.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.extra.iter().chain(&self.auth).map(|(name, _)| name)
    }

    /// The query parameter to append, `name=value`, already encoded.
    pub fn query(&self, with_auth: bool) -> Option<&Secret> {
        self.query.as_ref().filter(|_| with_auth)
    }

    /// Records the upstream's status for the health of each key.
    pub fn observe(&self, status: u16) {
        for key in &self.health {
            key.observe(status);
        }
    }

    /// Takes every attached secret out of a complete answer, because the caller must not get it.
    pub fn redact(&self, answer: &mut Vec<u8>) {
        self.patterns.redact(answer);
    }

    /// What [`Attachment::redact`] searches for, for work on another thread.
    pub fn patterns(&self) -> Arc<RedactionPatterns> {
        self.patterns.clone()
    }

    /// Redacts an answer that comes in pieces.
    pub fn redactor(&self) -> Redactor {
        Redactor::new(self.patterns.clone())
    }
}

impl Credential {
    /// None where it has no name: a generator mints it, or the manifest lacks the name, which is
    /// reported.
    pub fn key(&self) -> Option<&str> {
        match self {
            Credential::None => None,
            Credential::Bearer { key }
            | Credential::Header { key, .. }
            | Credential::Query { key, .. }
            | Credential::Basic { key }
            | Credential::BasicUser { key } => Some(key.as_str()).filter(|key| !key.is_empty()),
        }
    }

    /// The part of the value that is a secret of its own.
    fn password<'v>(&self, value: Option<&'v [u8]>) -> Option<&'v [u8]> {
        let is_basic = matches!(
            self,
            Credential::Basic { .. } | Credential::BasicUser { .. }
        );
        if !is_basic {
            return None;
        }
        let value = value?;
        let colon = value.iter().position(|byte| *byte == b':')?;
        Some(&value[colon + 1..])
    }
}

/// A header value whose bytes stay in locked memory. It is marked sensitive, so that no `Debug`
/// prints it.
fn header_value(parts: &[&[u8]]) -> Option<HeaderValue> {
    struct Owner(Secret);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            self.0.expose()
        }
    }
    let secret = Secret::concat(parts).ok()?;
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(Owner(secret))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::{Keyring, Source};

    fn lookup(keyring: &Keyring) -> Lookup<'_> {
        Lookup::passthrough(keyring, None)
    }

    fn keyring() -> Keyring {
        let entries = [
            ("api_key", "k3y/+ &"),
            ("User", "me:pw"),
            ("broken", "a\nb"),
            ("empty", ""),
        ];
        let entries =
            entries.map(|(name, value)| (name.to_owned(), Secret::new(value.as_bytes()).unwrap()));
        Keyring::new(entries.into_iter().collect(), Source::Credentials)
    }

    fn resolve(credential: &Credential) -> (Attachment, Gaps) {
        Attachment::resolve(credential, &[], &lookup(&keyring()))
    }

    fn headers(attachment: &Attachment, with_auth: bool) -> Vec<(String, String)> {
        let mut all = Vec::new();
        attachment
            .attach(with_auth, |name, value| {
                all.push((
                    name.to_string(),
                    String::from_utf8(value.as_bytes().to_vec()).unwrap(),
                ));
                Ok::<_, ()>(())
            })
            .unwrap();
        all
    }

    fn key(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn credential_of_each_kind_is_presented_its_own_way() {
        let (bearer, _) = resolve(&Credential::Bearer {
            key: key("api_key"),
        });
        assert_eq!(
            headers(&bearer, true),
            [("authorization".into(), "Bearer k3y/+ &".into())]
        );
        assert!(headers(&bearer, false).is_empty());
        let (basic, _) = resolve(&Credential::Basic { key: key("user") });
        assert_eq!(
            headers(&basic, true),
            [("authorization".into(), "Basic bWU6cHc=".into())]
        );
        let header = Credential::Header {
            key: key("api_key"),
            name: HeaderName::from_static("x-key"),
            prefix: "Token ".into(),
        };
        assert_eq!(
            headers(&resolve(&header).0, true),
            [("x-key".into(), "Token k3y/+ &".into())]
        );
        let (query, _) = resolve(&Credential::Query {
            key: key("api_key"),
            name: "a key".into(),
        });
        assert_eq!(
            query.query(true).unwrap().expose(),
            b"a%20key=k3y%2F%2B%20%26"
        );
        assert!(query.query(false).is_none() && headers(&query, true).is_empty());
    }

    #[test]
    fn key_that_is_missing_or_unsendable_is_named() {
        for name in ["absent", "empty"] {
            let (attachment, gaps) = resolve(&Credential::Bearer { key: key(name) });
            assert_eq!(gaps.missing, [name]);
            assert!(headers(&attachment, true).is_empty());
        }
        let (_, gaps) = resolve(&Credential::Bearer { key: key("broken") });
        assert_eq!(gaps.unsendable, ["broken"]);
    }

    #[test]
    fn attachment_printed_for_debugging_shows_no_value() {
        let (bearer, _) = resolve(&Credential::Bearer {
            key: key("api_key"),
        });
        assert!(!format!("{:?}", bearer.auth).contains("k3y"));
    }

    #[test]
    fn extra_header_whose_key_is_missing_is_left_out() {
        let extra = [
            (
                HeaderName::from_static("x-a"),
                Template::parse("v1 ${api_key}!"),
            ),
            (HeaderName::from_static("x-b"), Template::parse("${absent}")),
            (HeaderName::from_static("x-c"), Template::parse("plain")),
        ];
        let (attachment, gaps) =
            Attachment::resolve(&Credential::None, &extra, &lookup(&keyring()));
        let expected = [
            ("x-a".into(), "v1 k3y/+ &!".into()),
            ("x-c".into(), "plain".into()),
        ];
        assert_eq!(headers(&attachment, false), expected);
        assert_eq!(gaps.missing, ["absent"]);
    }
}
