//! Requests of the generated exchanges.

use super::generate::Rng;
use crate::support::tokens::sign;

#[derive(Clone)]
pub struct Request {
    pub what: String,
    pub method: String,
    /// The short way may serve it.
    pub is_plain: bool,
    target: String,
    version: &'static str,
    lines: Vec<Vec<u8>>,
    end: &'static [u8],
    pub body: Vec<u8>,
}

/// Routes of each lane, by how their paths begin; the lane's number follows. The ways of
/// `super::routes` to configure them.
const ROUTES: &[&str] = &[
    "/open", "/open", "/open", "/svc", "/svc", "/svc", "/key", "/query", "/deny", "/fwd", "/small",
    "/scrub",
];

const HEADERS: &[&str] = &[
    "Accept: */*",
    "accept: text/html, application/json;q=0.9",
    "User-Agent: agent/1.0 (a; b)",
    "Cookie: a=1; b=2",
    "cookie: c=3",
    "Authorization: Bearer mine",
    "authorization: Basic bWluZTptaW5l",
    "X-Api-Key: mine",
    "X_Api_Key: mine",
    "X-Sandbox-Job-Id: job-7",
    "X-Sandbox-Other: 1",
    "x-sandbox-: 1",
    "X-Request-Id: from-the-caller",
    "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate: a=1",
    "Keep-Alive: timeout=5",
    "Proxy-Connection: keep-alive",
    "Proxy-Authorization: Basic eA==",
    "Connection: keep-alive",
    "Connection: close",
    "connection: Close",
    "Accept-Encoding: gzip, br",
    "Range: bytes=0-3",
    "If-None-Match: \"x\"",
    "Content-Type: application/json",
    "Forwarded: for=1.2.3.4",
    "X-Forwarded-For: 1.2.3.4",
    "X-Forwarded-Proto: https",
    "Via: 1.0 before",
    "Max-Forwards: 3",
    "X-Empty:",
    "X-Blanks:   \t a  b \t ",
    "X-UPPER: YES",
    "x_under: 1",
    "x-!#$%&'*+.^`|~: odd",
    "X-Colons: a:b:c",
    "Sec-Fetch-Mode: cors",
    "Origin: http://x.test",
];

const TAILS: &[&str] = &[
    "",
    "/",
    "/a/b",
    "/a%20b",
    "/a%2Fb",
    "//double",
    "/a;p=1",
    "/~x/_y-.z",
    "/%E2%82%AC",
    "/a+b",
];
const QUERIES: &[&str] = &[
    "",
    "",
    "",
    "?",
    "?q=1",
    "?a=1&b=2",
    "?api_key=mine&a=1",
    "?x=%20%26",
    "?a=b?c",
    "?/../x",
    "?q='\"|^",
];

/// Header lines that aren't as they should be, or that are at the edge of what is allowed.
const ODD_LINES: &[&[u8]] = &[
    b"X Space: 1",
    b"X-Space : 1",
    b" X-Leading: 1",
    b"\tfolded",
    b": no name",
    b"no colon",
    b"",
    b"X-Nul: a\0b",
    b"X-Cr: a\rb",
    b"X-Lf: a\nX-Smuggled: b",
    b"X-Lf-End: a\n",
    b"X-Fold: a\r\n b",
    b"X-Fold: a\r\n\tb",
    b"X-High: caf\xe9 \xff",
    b"X-Control: \x01",
    b"X-Delete: \x7f",
    b"X-Tab: a\tb",
    b"X-\xe9: 1",
    b"(X): 1",
    b"X@Y: 1",
    b"Connection: x-hop, close\r\nX-Hop: 1",
    b"Connection: x-hop\r\nX-Hop: 1",
    b"Connection: X-Hop ,, x-sandbox-job-id\r\nX-Hop: 1\r\nX-Sandbox-Job-Id: 9",
    b"Connection: keep-alive, keep-alive",
    b"Connection: authorization\r\nAuthorization: mine",
    b"Connection: content-length",
    b"Connection: transfer-encoding",
    b"Connection: host",
    b"Connection: x-sandbox-signature",
    b"Connection:",
    b"Connection: ,",
    b"Connection: close\r\nConnection: keep-alive",
    b"Connection: \"close\"",
    b"Content-Length: 0",
    b"Content-Length: 0\r\nContent-Length: 0",
    b"Content-Length: 0, 0",
    b"Content-Length:",
    b"Content-Length: +0",
    b"Content-Length: -1",
    b"Content-Length: 0x0",
    b"Content-Length: 00",
    b"Content-Length: 1e0",
    b"Content-Length: 99999999999999999999999",
    b"Content-Length: 4294967296000",
    b"Content_Length: 5",
    b"Content-Length : 5",
    b"Content-Length: 5\r\n\r\nhello",
    b"Content-Length: 05\r\n\r\nhello",
    b"content-length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    b"Content-Length: 5 \t\r\n\r\nhello",
    b"Content-Length: 5,\r\n\r\nhello",
    b"Content-Length:\x0b5\r\n\r\nhello",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    b"Transfer_Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:",
    b"TE: trailers",
    b"TE: chunked",
    b"Trailer: x-later",
    b"Upgrade: h2c",
    b"Host: other.test",
    b"X-Sandbox-Signature: t=1,s=00",
    b"X-Sandbox-Signature:",
];

impl Request {
    /// One that the short way may serve.
    pub fn plain(rng: &mut Rng, lane: usize, id: &str) -> Self {
        let method = rng.pick(&[
            "GET", "GET", "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS",
        ]);
        let route = rng.pick(ROUTES);
        let first = match route {
            "/deny" => rng.pick(&["/ok", "/old/x", "/ok"]),
            "/fwd" => rng.pick(&["/mine", "/other"]),
            _ => "",
        };
        let path = match rng.chance(7) {
            true => format!("/{id}{}", rng.pick(TAILS)),
            false => format!("{route}{lane}{first}/{id}{}", rng.pick(TAILS)),
        };
        let is_hosted = path.starts_with(&format!("/{id}"));
        let mut request = Request {
            what: format!("{method} {path}"),
            method: method.to_owned(),
            is_plain: true,
            target: format!("{path}{}", rng.pick(QUERIES)),
            version: "HTTP/1.1",
            lines: Vec::new(),
            end: b"\r\n",
            body: Vec::new(),
        };
        if route == "/svc" {
            // The signature is over the path as it is sent.
            request.line(&format!("X-Sandbox-Signature: {}", sign(method, &path)));
        }
        for _ in 0..rng.below(6) {
            let header = rng.pick(HEADERS);
            // A second method or connection header is a case of its own.
            request.line(header);
        }
        let place = rng.below(request.lines.len() + 1);
        let host = rng.pick(&["Host: edge.test", "host: edge.test:8080", "HOST: 127.0.0.1"]);
        let host = match is_hosted {
            true => format!("Host: {}{lane}.test", rng.pick(&["h", "H"])),
            false => host.to_owned(),
        };
        request.lines.insert(place, host.into_bytes());
        if rng.chance(if method == "POST" || method == "PUT" {
            90
        } else {
            5
        }) {
            let size = *[0, 1, 5, 60, 700, 20_000].get(rng.below(6)).unwrap();
            let size = if route == "/small" {
                size.min(60)
            } else {
                size
            };
            request.with_body(vec![b'b'; size]);
        }
        request
    }

    pub fn with_body(&mut self, body: Vec<u8>) {
        self.lines
            .retain(|line| !line.to_ascii_lowercase().starts_with(b"content-length"));
        self.line(&format!("Content-Length: {}", body.len()));
        self.what += &format!(" with {} bytes", body.len());
        self.body = body;
    }

    fn line(&mut self, line: &str) {
        self.lines.push(line.as_bytes().to_vec());
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} {}", self.method, self.target, self.version).into_bytes();
        bytes.extend_from_slice(self.end);
        for line in &self.lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(self.end);
        }
        bytes.extend_from_slice(self.end);
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// One thing that isn't as it should be, or that is at the edge of what is allowed.
    pub fn make_odd(&mut self, rng: &mut Rng) {
        self.is_plain = false;
        match rng.below(12) {
            0 => self.odd_line(rng),
            1 => {
                self.end = rng.pick(&[b"\n" as &[u8], b"\r\r\n", b" \r\n"]);
                self.what += &format!(", lines end with {:?}", String::from_utf8_lossy(self.end));
            }
            2 => {
                let host: &[&str] = &[
                    "",
                    "Host:",
                    "Host: a b",
                    "Host: a/b",
                    "Host: u@a",
                    "Host: a:b",
                ];
                let host = rng.pick(host);
                self.lines
                    .retain(|line| !line.to_ascii_lowercase().starts_with(b"host"));
                if !host.is_empty() {
                    self.line(host);
                }
                self.what += &format!(", {host:?} as host");
            }
            3 => {
                let size = *[900, 8_000, 60_000, 70_000].get(rng.below(4)).unwrap();
                self.line(&format!("X-Long: {}", "l".repeat(size)));
                self.what += &format!(", a header of {size}");
            }
            4 => {
                let count = *[40, 90, 99, 101, 150, 255, 300].get(rng.below(7)).unwrap();
                for n in 0..count {
                    self.line(&format!("X-Many-{n}: {n}"));
                }
                self.what += &format!(", {count} headers more");
            }
            _ => {
                let line = rng.pick(ODD_LINES);
                self.what += &format!(", {:?}", String::from_utf8_lossy(line));
                let place = rng.below(self.lines.len() + 1);
                // What ends the head comes last, instead of the request's own body.
                if line.windows(4).any(|at| at == b"\r\n\r\n") || line.is_empty() {
                    self.body.clear();
                    self.lines
                        .retain(|line| !line.to_ascii_lowercase().starts_with(b"content-length"));
                    let at = super::scripted::find(line, b"\r\n\r\n").unwrap_or(0);
                    self.lines.push(line[..at].to_vec());
                    self.body = line.get(at + 4..).unwrap_or_default().to_vec();
                } else {
                    self.lines.insert(place, line.to_vec());
                }
            }
        }
    }

    fn odd_line(&mut self, rng: &mut Rng) {
        let path = self.target.clone();
        let odd: &[&str] = &[
            "../x", "%2e%2e/x", "%00", "%", "%zz", "\\x", "%5c", "#x", "<x>", "./x",
        ];
        match rng.below(7) {
            0 => self.target = format!("{path}/{}", rng.pick(odd)),
            1 => {
                self.version = rng.pick(&[
                    "HTTP/1.2",
                    "HTTP/2.0",
                    "http/1.1",
                    "HTTP/1.1 ",
                    "",
                    "HTTP/01.1",
                ])
            }
            2 => {
                self.method = rng
                    .pick(&[
                        "get", "TRACE", "G\u{e9}T", "", "PROPFIND", "M-SEARCH", "CONNECT",
                    ])
                    .to_owned()
            }
            3 => self.target = format!("{path} x"),
            4 => {
                self.method = format!(
                    "{}{}",
                    rng.pick(&["\r\n", "\n", " ", "\r\n\r\n"]),
                    self.method
                )
            }
            5 => {
                self.target = format!(
                    "{path}/{}",
                    "x".repeat(*[3_000, 9_000, 70_000].get(rng.below(3)).unwrap())
                )
            }
            _ => self.target = format!(" {path}"),
        }
        let clipped: String = format!("{:?} {:?}", self.method, self.target)
            .chars()
            .take(90)
            .collect();
        self.what += &format!(", {clipped} {:?}", self.version);
    }
}

/// A request for a whole URL. Alone on its connection for the time being: with
/// `ATI_SHORT_WAY=off`, one that comes behind another request, or in pieces, may be 400.
pub fn whole_url(rng: &mut Rng, lane: usize, id: &str) -> Request {
    let mut request = Request::plain(rng, lane, id);
    request.is_plain = false;
    request.target = format!("http://edge.test{}", request.target);
    request.what += ", as a whole URL";
    request
}

/// A request that HTTP/1.1 allows, and that the short way leaves to Pingora.
pub fn not_plain(rng: &mut Rng, lane: usize, id: &str) -> Request {
    let mut request = Request::plain(rng, lane, id);
    request.is_plain = false;
    request.body.clear();
    request
        .lines
        .retain(|line| !line.to_ascii_lowercase().starts_with(b"content-length"));
    let chunked: &[&[u8]] = &[
        b"0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        b"0005\r\nhello\r\n000\r\n\r\n",
        b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"ffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
    ];
    match rng.below(7) {
        0..=2 => {
            request.line(rng.pick(&["Transfer-Encoding: chunked", "transfer-encoding: Chunked"]));
            request.body = rng.pick(chunked).to_vec();
        }
        3 => request.version = "HTTP/1.0",
        4 => {
            request.version = "HTTP/1.0";
            request.line("Connection: keep-alive");
        }
        5 => {
            request.line("Expect: 100-continue");
            request.with_body(b"hello".to_vec());
        }
        _ => {
            request.line("Connection: Upgrade");
            request.line(rng.pick(&["Upgrade: h2c", "Upgrade: websocket", "Upgrade: x"]));
        }
    }
    request.what += ", not plain: ";
    let last = request.lines.last().map(|line| line.to_vec());
    request.what += &String::from_utf8_lossy(&last.unwrap_or_default());
    request.what += &format!(
        " {} {:?}",
        request.version,
        String::from_utf8_lossy(&request.body)
    );
    request
}

/// A request that ati answers itself, or refuses.
pub fn refused(rng: &mut Rng, lane: usize, id: &str) -> Request {
    let mut request = Request::plain(rng, lane, id);
    request.method = rng.pick(&["GET", "POST", "HEAD"]).to_owned();
    let large = format!("/small{lane}/{id}");
    request.target = match rng.below(7) {
        0 => "/health".to_owned(),
        1 => format!("/nowhere/{id}"),
        2 => format!("/deny{lane}/secret/{id}"),
        3 => format!("/deny{lane}/%73ecret/{id}"),
        4 => format!("/svc{lane}/{id}/unsigned"),
        5 => format!("/tools/{id}"),
        _ => large.clone(),
    };
    if request.target == large {
        request.with_body(vec![b'l'; 70]);
    }
    if request.target == "/health" {
        // With a body, Pingora closes the connection after the answer, and the short way reads it.
        request.body.clear();
        request
            .lines
            .retain(|line| !line.to_ascii_lowercase().starts_with(b"content-length"));
    }
    request.what = format!("{} {}", request.method, request.target);
    request
}
