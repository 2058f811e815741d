//! Redaction of the headers of a response: few bytes, at every request.

use http::{HeaderName, HeaderValue};

use super::redact::{REPLACEMENT, SHORTEST};
use super::{Attachment, Template};
use crate::keyring::Secret;

impl Attachment {
    /// This attachment, which also redacts headers that repeat one of these secrets where it is too
    /// short to be searched for: a header that is equal to it, or that repeats the attached one.
    pub(super) fn with_short<'a>(
        mut self,
        secrets: impl Iterator<Item = &'a Secret>,
        extra: &[(HeaderName, Template)],
    ) -> Self {
        let is_short = |secret: &&Secret| secret.expose().len() < SHORTEST;
        self.short = secrets.filter(is_short).cloned().collect();
        if self.short.is_empty() {
            return self;
        }
        let has_key = |name: &HeaderName| {
            let mut named = extra.iter().filter(|(known, _)| known == name);
            named.any(|(_, template)| template.keys().next().is_some())
        };
        let extra = self.extra.iter().filter(|(name, _)| has_key(name));
        let attached = extra.chain(&self.auth).map(|(_, value)| value.clone());
        let attached: Vec<HeaderValue> = attached.collect();
        self.with_redacted(attached.iter().map(HeaderValue::as_bytes))
    }

    /// The value of a response's header without the attached secrets. `None` where it has none, and
    /// nothing is copied.
    pub fn redact_header(&self, value: &[u8]) -> Option<Vec<u8>> {
        if self.short.iter().any(|secret| secret.expose() == value) {
            return Some(REPLACEMENT.to_vec());
        }
        self.patterns.are_in(value).then(|| {
            let mut clean = value.to_vec();
            self.redact(&mut clean);
            clean
        })
    }

    /// Whether it has a secret that is searched for.
    pub fn redacts(&self) -> bool {
        !self.patterns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Credential, Lookup};
    use super::*;
    use crate::keyring::{Keyring, Source};

    fn attachment(credential: &Credential, extra: &str) -> Attachment {
        let entries = [
            ("long", "planted/secret value"),
            ("user", "me:planted-password"),
            ("short", "k3y"),
        ];
        let entries =
            entries.map(|(name, value)| (name.to_owned(), Secret::new(value.as_bytes()).unwrap()));
        let keyring = Keyring::new(entries.into_iter().collect(), Source::Credentials);
        let extra = [(HeaderName::from_static("x-extra"), Template::parse(extra))];
        Attachment::resolve(credential, &extra, &Lookup::passthrough(&keyring, None)).0
    }

    fn clean(attachment: &Attachment, value: &str) -> String {
        let clean = attachment.redact_header(value.as_bytes());
        clean.map_or("as it is".to_owned(), |clean| {
            String::from_utf8(clean).unwrap()
        })
    }

    #[test]
    fn header_that_repeats_an_attached_secret_is_redacted() {
        let key = |key: &str| key.to_owned();
        let bearer = attachment(&Credential::Bearer { key: key("long") }, "v1 ${short}!");
        for (value, expected) in [
            ("Token planted/secret value", "Token [REDACTED]"),
            ("planted/secret value", "[REDACTED]"),
            ("planted/secret valu", "as it is"),
            ("k=planted%2Fsecret+value; Path=/", "k=[REDACTED]; Path=/"),
            (
                "{\"k\":\"planted\\/secret value\"}",
                "{\"k\":\"[REDACTED]\"}",
            ),
            ("k3y", "[REDACTED]"),
            // The attached header is shorter than what is searched for, too.
            ("sent v1 k3y!", "as it is"),
            ("a k3yboard", "as it is"),
            ("text/plain", "as it is"),
            ("", "as it is"),
        ] {
            assert_eq!(clean(&bearer, value), expected, "{value}");
        }
        let short = attachment(&Credential::Bearer { key: key("short") }, "plain text");
        assert_eq!(clean(&short, "got Bearer k3y"), "got [REDACTED]");
        assert_eq!(clean(&short, "plain text"), "as it is");
        let basic = attachment(&Credential::Basic { key: key("user") }, "");
        assert_eq!(clean(&basic, "pw planted-password"), "pw [REDACTED]");
        assert!(!clean(&basic, "Basic bWU6cGxhbnRlZC1wYXNzd29yZA==").contains("bWU6cGxhbnRlZC1"));
        assert!(basic.redacts() && !attachment(&Credential::None, "x").redacts());
    }
}
