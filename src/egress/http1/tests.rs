use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use url::Url;

use super::super::guard::Guard;
use super::super::resolve::Resolver;
use super::super::{Settings, Target};
use super::*;

/// A server that lets each connection be handled by `serve`, which gets the connection's number.
fn server(serve: impl Fn(usize, TcpStream) + Send + 'static) -> (Target, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/path?q", listener.local_addr().unwrap());
    let (accepted, connections) = mpsc::channel();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            if accepted.send(number).is_err() {
                return;
            }
            serve(number, stream);
        }
    });
    let target = Target::of(&Url::parse(&url).unwrap()).unwrap();
    (target, connections)
}

/// Reads a request to the end of its head, and as much of its body as it says.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.split('\r').next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(head + std::str::from_utf8(&body).unwrap())
}

/// Answers every request on every connection with these bytes.
fn answering(answer: &'static [u8]) -> (Target, mpsc::Receiver<usize>) {
    server(move |_, mut stream| {
        thread::spawn(move || {
            while read_request(&mut stream).is_some() {
                let _ = stream.write_all(answer);
            }
        });
    })
}

fn clients() -> Clients {
    let resolver = Arc::new(Resolver::new(&["127.0.0.1:1".parse().unwrap()]));
    Clients::new(&Settings::default(), Guard::Off, resolver)
}

async fn call(
    clients: &Clients,
    target: &Target,
    method: Method,
    body: Option<&Bytes>,
) -> Result<(u16, Vec<u8>), SendError> {
    let request = Request {
        method: &method,
        origin: &target.origin,
        path_and_query: &target.path_and_query,
        headers: &[],
        body,
        may_repeat: true,
    };
    let mut answer = send(clients, None, &request).await?;
    let mut body = Vec::new();
    while answer.read_into(&mut body).await? {}
    Ok((answer.status(), body))
}

async fn get(clients: &Clients, target: &Target) -> Result<(u16, Vec<u8>), SendError> {
    call(clients, target, Method::GET, None).await
}

fn count(connections: &mpsc::Receiver<usize>) -> usize {
    connections.try_iter().count()
}

#[tokio::test]
async fn exact_answers_leave_their_connection_for_the_next_request() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: v\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (target, connections) = answering(answer);
        let clients = clients();
        for _ in 0..3 {
            let (status, body) = get(&clients, &target).await.unwrap();
            assert_eq!((status, body.as_slice()), (200, &b"hello"[..]));
        }
        let shown = String::from_utf8_lossy(answer);
        assert_eq!(count(&connections), 1, "{shown}");
    }
}

#[tokio::test]
async fn answers_without_an_exact_end_close_their_connection() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (target, connections) = answering(answer);
        let clients = clients();
        for _ in 0..2 {
            let (status, body) = get(&clients, &target).await.unwrap();
            assert_eq!((status, body.as_slice()), (200, &b"hello"[..]));
        }
        let shown = String::from_utf8_lossy(answer);
        assert_eq!(count(&connections), 2, "{shown}");
    }
    // A body that ends with the connection.
    let (target, connections) = server(|_, mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhello");
    });
    let clients = clients();
    for _ in 0..2 {
        assert_eq!(get(&clients, &target).await.unwrap().1, b"hello");
    }
    assert_eq!(count(&connections), 2);
}

#[tokio::test]
async fn doubtful_answer_is_an_error_and_its_connection_is_not_used_again() {
    for (answer, doubt) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"[..],
            Doubt::TwoLengths,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Doubt::LengthAndChunks,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            Doubt::TransferCoding,
        ),
        (
            b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
            Doubt::HeaderName,
        ),
        (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", Doubt::BareLf),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n",
            Doubt::ChunkSize,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
            Doubt::ChunkEnd,
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Doubt::NotHttp1),
    ] {
        let (target, connections) = answering(answer);
        let clients = clients();
        for _ in 0..2 {
            let result = get(&clients, &target).await;
            assert!(
                matches!(&result, Err(SendError::Doubt(found)) if *found == doubt),
                "{result:?}"
            );
        }
        assert_eq!(count(&connections), 2, "{doubt}");
    }
}

#[tokio::test]
async fn answer_that_ends_too_early_is_a_closed_connection() {
    for answer in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"[..],
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"",
    ] {
        let (target, _connections) = server(move |_, mut stream| {
            read_request(&mut stream);
            let _ = stream.write_all(answer);
        });
        let result = get(&clients(), &target).await;
        let closed = matches!(result, Err(SendError::Fault(UpstreamFault::Closed)));
        assert!(closed, "{}: {result:?}", String::from_utf8_lossy(answer));
    }
}

/// The first connection answers once, then takes a second request and closes without an answer.
fn closing_after_the_second_request() -> (Target, mpsc::Receiver<usize>, mpsc::Receiver<String>) {
    let (seen, requests) = mpsc::channel();
    let (target, connections) = server(move |number, mut stream| {
        let seen = seen.clone();
        thread::spawn(move || {
            for request in 0.. {
                let Some(text) = read_request(&mut stream) else {
                    return;
                };
                let _ = seen.send(text);
                if number == 0 && request == 1 {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
    });
    (target, connections, requests)
}

#[tokio::test]
async fn get_on_a_connection_that_closes_is_sent_once_more() {
    let (target, connections, requests) = closing_after_the_second_request();
    let clients = clients();
    for _ in 0..2 {
        assert_eq!(get(&clients, &target).await.unwrap().1, b"ok");
    }
    assert_eq!(count(&connections), 2);
    assert_eq!(requests.try_iter().count(), 3);
}

#[tokio::test]
async fn post_that_was_sent_is_never_sent_again() {
    let (target, connections, requests) = closing_after_the_second_request();
    let clients = clients();
    let body = Bytes::from_static(b"{}");
    let post = || call(&clients, &target, Method::POST, Some(&body));
    assert_eq!(post().await.unwrap().1, b"ok");
    let lost = post().await;
    assert!(
        matches!(lost, Err(SendError::Fault(UpstreamFault::Closed))),
        "{lost:?}"
    );
    assert_eq!(count(&connections), 1);
    let requests: Vec<String> = requests.try_iter().collect();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].starts_with("POST /path?q HTTP/1.1\r\nhost: 127.0.0.1:"));
    assert!(
        requests[1].ends_with("content-length: 2\r\n\r\n{}"),
        "{}",
        requests[1]
    );
}

#[tokio::test]
async fn connection_that_its_server_closed_while_idle_is_not_used() {
    let (closed, was_closed) = mpsc::channel();
    let (target, connections) = server(move |_, mut stream| {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        drop(stream);
        let _ = closed.send(());
    });
    let clients = clients();
    let body = Bytes::from_static(b"{}");
    for _ in 0..3 {
        let posted = call(&clients, &target, Method::POST, Some(&body)).await;
        assert_eq!(posted.unwrap().1, b"ok");
        was_closed.recv().unwrap();
        // The event has to reach this thread's runtime, which looks for events in between.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(count(&connections), 3);
}

#[tokio::test]
async fn answer_before_the_end_of_a_long_request_is_read() {
    let (target, _connections) = server(|_, mut stream| {
        let mut some = [0; 1024];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
        // Open, and never reading the rest.
        thread::spawn(move || (stream, thread::park()));
    });
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    let (status, text) = call(&clients(), &target, Method::POST, Some(&body))
        .await
        .unwrap();
    assert_eq!((status, text.as_slice()), (413, &b"big"[..]));
    assert_eq!(pool::idle_connections(), 0);
}

#[tokio::test]
async fn interim_answer_to_a_long_request_does_not_end_it() {
    const LENGTH: usize = 32 << 20;
    let (target, connections) = server(|_, mut stream| {
        let mut some = [0; 1024];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n");
        // As long as nothing is read here, the caller can only read.
        thread::spawn(move || {
            let mut read = vec![0; 1 << 20];
            let mut total = 0;
            while total < LENGTH - 4096 {
                total += stream.read(&mut read).unwrap();
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            thread::park();
        });
    });
    let body = Bytes::from(vec![b'x'; LENGTH]);
    let answer = call(&clients(), &target, Method::POST, Some(&body)).await;
    assert_eq!(answer.unwrap().1, b"ok");
    assert_eq!(count(&connections), 1);
}

#[tokio::test]
async fn idle_connections_are_closed_after_their_time() {
    let (target, _connections) = answering(b"HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(get(&clients(), &target).await.unwrap().0, 204);
    assert_eq!(pool::idle_connections(), 1);
    let left = async {
        while pool::idle_connections() > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, left)
        .await
        .expect("it is swept");
}

#[tokio::test]
async fn name_that_resolves_to_nothing_is_told_so() {
    let url = Url::parse("http://no.such.name.invalid/").unwrap();
    let target = Target::of(&url).unwrap();
    let result = get(&clients(), &target).await;
    assert!(
        matches!(result, Err(SendError::Fault(UpstreamFault::Unresolved))),
        "{result:?}"
    );
    let refused = Url::parse("http://127.0.0.1:1/").unwrap();
    let result = get(&clients(), &Target::of(&refused).unwrap()).await;
    assert!(
        matches!(result, Err(SendError::Fault(UpstreamFault::Connect))),
        "{result:?}"
    );
}
