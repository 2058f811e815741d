//! An API that wants a key: its answers say which request it received, and that the key came with
//! it. They don't show the key, because the caller must not learn it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

use super::DEMO_KEY;

/// Serves on a thread until the process ends.
pub fn start(address: SocketAddr) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || serve(&listener));
    Ok(address)
}

/// Serves until the process ends.
pub fn run(address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> std::io::Result<()> {
    let listener = TcpListener::bind(address)?;
    ready(listener.local_addr()?);
    serve(&listener);
    Ok(())
}

fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || answer_requests(stream));
    }
}

fn answer_requests(stream: TcpStream) -> Option<()> {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let target = line.split(' ').nth(1)?.to_owned();
        let (mut authorization, mut length) = (None, 0);
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                    authorization = Some(value.to_owned());
                }
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().ok()?;
                }
                // A body in chunks isn't read: the connection ends.
                Some((name, _)) if name.eq_ignore_ascii_case("transfer-encoding") => return None,
                Some(_) => {}
                None => break,
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
        let answer = answer(&target, authorization.as_deref());
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

fn answer(target: &str, authorization: Option<&str>) -> String {
    let key = authorization.and_then(|value| value.strip_prefix("Bearer "));
    let (status, body) = match key {
        Some(key) if key == DEMO_KEY => {
            let shown = format!("Bearer ****({} characters, not yours)", key.len());
            let saw = json!({"path": target, "authorization": shown});
            ("200 OK", json!({ "upstream_saw": saw }))
        }
        Some(_) => (
            "401 Unauthorized",
            json!({"error": "this key is not known here"}),
        ),
        None => ("401 Unauthorized", json!({"error": "this API wants a key"})),
    };
    let body = body.to_string() + "\n";
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n\
         {body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_shows_that_the_key_came_and_not_the_key() {
        let answer = answer("/x?q=1", Some(&format!("Bearer {DEMO_KEY}")));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("\"path\":\"/x?q=1\""), "{answer}");
        assert!(
            answer.contains("Bearer ****(17 characters, not yours)"),
            "{answer}"
        );
        assert!(!answer.contains(DEMO_KEY));
    }

    #[test]
    fn request_without_the_key_is_refused() {
        for wrong in [None, Some("Bearer planted-other"), Some("Basic eDp5")] {
            let answer = answer("/x", wrong);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
            assert!(!answer.contains("planted"), "{answer}");
        }
    }
}
