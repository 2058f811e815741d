use http::Version;
use http::header::TRANSFER_ENCODING;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

/// HTTP/1.0 has no chunks: the body ends with the connection.
pub(super) fn run(session: &mut Session, response: &mut ResponseHeader) {
    if session.req_header().version == Version::HTTP_10 {
        response.remove_header(&TRANSFER_ENCODING);
        session.set_keepalive(None);
    }
}
