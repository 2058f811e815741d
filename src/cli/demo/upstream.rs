//! An HTTP server whose answers show which credential it received.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde_json::json;

/// Serves until the process ends.
pub fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    Ok(address)
}

fn serve(stream: TcpStream) -> Option<()> {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let target = line.split(' ').nth(1)?.to_owned();
        let mut authorization = None;
        loop {
            line.clear();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                    authorization = Some(value.to_owned());
                }
                Some(_) => {}
                None => break,
            }
        }
        let body = json!({ "upstream_saw": { "path": target, "authorization": authorization } })
            .to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        reader.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}
