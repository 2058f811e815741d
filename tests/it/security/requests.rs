//! Requests that two programs could read differently.

use super::signed_setup;
use crate::support::ati::Setup;

#[test]
fn ambiguous_framing_gets_400_and_ends_the_connection() {
    let proxy = Setup::new().start();
    let cases = [
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /call HTTP/1.1\r\nhost: x\r\ncontent-length: 5, 5\r\n\r\nhello",
        "POST /call HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    ];
    for request in cases {
        let mut client = proxy.client();
        client.write(request.as_bytes());
        assert_eq!(client.read(false).status, 400, "{request}");
        // A further request on this connection is not served.
        let _ = client.try_write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(client.try_read(false).is_none(), "{request}");
    }
}

#[test]
fn ambiguous_paths_get_400() {
    let proxy = signed_setup("enforce").start();
    for path in [
        "/npm/../tools",
        "/npm/%2e%2e/tools",
        "/npm/..%2ftools",
        "/npm/%252e%252e/tools",
        "/npm/..\\tools",
        "/npm/%5c..%5ctools",
        "/npm/%00",
        "/npm/%0d%0aX:1",
        "/./health",
    ] {
        assert_eq!(proxy.client().get(path).status, 400, "{path}");
    }
    assert_eq!(proxy.client().get("//health").status, 200);
    assert_eq!(proxy.client().get("/%68ealth").status, 200);
}
