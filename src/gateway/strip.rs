//! The strip table: which headers of a caller go on to an upstream. One predicate on a name, for
//! Pingora's hooks and for the short way.

use crate::credential::Attachment;
use crate::filters::forwarded;
use crate::request_id;

/// What becomes of a caller's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Drop,
}

/// What the fate of a header depends on.
pub(super) struct Strip<'a> {
    /// Of the request.
    pub attachment: &'a Attachment,
    /// The caller's own Authorization header is sent on instead of the route's credential.
    pub keep_authorization: bool,
    /// The peer is a trusted proxy.
    pub behind_proxy: bool,
}

impl Strip<'_> {
    /// `name` is in lower case. Hop-by-hop headers are no part of this table.
    pub fn fate(&self, name: &[u8]) -> Fate {
        if self.is_stripped(name) || (name.contains(&b'_') && self.is_copy(name)) {
            Fate::Drop
        } else {
            Fate::Keep
        }
    }

    fn is_stripped(&self, name: &[u8]) -> bool {
        match name {
            b"authorization" => !self.keep_authorization,
            b"traceparent" | b"tracestate" | b"proxy-authorization" | b"proxy-authenticate" => true,
            // A caller doesn't choose the id under which an upstream knows a request of ati's.
            _ if name == request_id::HEADER.as_bytes() => true,
            // A trusted proxy's forwarding headers are meant for ati. A sandbox's own are passed
            // on, as in existing deployments.
            other => {
                other.starts_with(b"x-sandbox-")
                    || (self.behind_proxy && forwarded::is_forwarding(other))
            }
        }
    }

    /// CGI-style servers read `X_Api_Key` as `X-Api-Key`: such a copy of any header that ati sets
    /// or strips is dropped.
    fn is_copy(&self, name: &[u8]) -> bool {
        let mut plain = name.to_vec();
        for byte in plain.iter_mut().filter(|byte| **byte == b'_') {
            *byte = b'-';
        }
        let mut set = self.attachment.names();
        self.is_stripped(&plain)
            || matches!(
                plain.as_slice(),
                b"content-length" | b"transfer-encoding" | b"host"
            )
            || set.any(|set| set.as_str().as_bytes() == plain)
    }
}
