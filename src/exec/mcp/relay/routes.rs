//! Where the messages of a program go: it has one stream for all of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::super::outbox::Outbox;
use super::{Held, UpstreamMessage, with_id, with_member};
use crate::budget::{Budget, Share};

/// Messages of one stream that wait for its client.
const QUEUED: usize = 16;
/// Requests of one session that are under way.
const MOST_REQUESTS: usize = 256;
/// Messages that belong to no request and came while no stream was open for them. Beyond that the
/// oldest are dropped.
const MOST_KEPT: usize = 64;
const MOST_KEPT_BYTES: usize = 1 << 20;
/// Requests of a program that its client hasn't answered. Beyond that the oldest are forgotten.
const MOST_QUESTIONS: usize = 256;

/// A message on its way to a client, and its part of the memory that calls share.
pub struct Routed {
    pub message: Held,
    /// It answers the request.
    pub is_last: bool,
}

/// A message, and the stream that it goes to.
pub struct Delivery {
    pub to: mpsc::Sender<Routed>,
    pub message: Routed,
    /// The request of that stream; None for the stream that belongs to no request.
    pub request: Option<u64>,
}

/// What is to be done with a message.
pub enum Route {
    Deliver(Delivery),
    /// A request that is answered without a client, with the line that answers it.
    Reply(Vec<u8>),
    Nowhere,
}

pub struct Routes {
    state: Mutex<State>,
    memory: Arc<Budget>,
    /// Several clients share the program. Messages that belong to no request of theirs go nowhere.
    is_shared: bool,
}

#[derive(Default)]
struct State {
    last_id: u64,
    pending: BTreeMap<u64, Pending>,
    /// The stream for messages that belong to no request.
    standing: Option<mpsc::Sender<Routed>>,
    kept: VecDeque<Routed>,
    kept_bytes: usize,
    /// The ids of requests that the client was asked and hasn't answered.
    questions: VecDeque<Value>,
    ended: bool,
}

struct Pending {
    to: mpsc::Sender<Routed>,
    /// The client's id of the request, as it wrote it.
    id: Box<str>,
    /// The client's token, where the program was given another one.
    token: Option<Box<str>>,
}

impl Routes {
    pub fn new(memory: Arc<Budget>, is_shared: bool) -> Self {
        Routes {
            state: Mutex::default(),
            memory,
            is_shared,
        }
    }

    /// A place for one more request, with the id that the program is sent. None: there are too
    /// many, or the program has ended.
    pub fn begin(&self, id: &str, token: Option<&str>) -> Option<(u64, mpsc::Receiver<Routed>)> {
        let mut state = self.state.lock();
        if state.ended || state.pending.len() >= MOST_REQUESTS {
            return None;
        }
        let (to, queue) = mpsc::channel(QUEUED);
        state.last_id += 1;
        let own = state.last_id;
        let pending = Pending {
            to,
            id: id.into(),
            token: token.filter(|_| self.is_shared).map(Into::into),
        };
        state.pending.insert(own, pending);
        Some((own, queue))
    }

    /// The id that the program knows a client's request by.
    pub fn own_id(&self, id: &str) -> Option<u64> {
        let state = self.state.lock();
        let mut pending = state.pending.iter().rev();
        pending.find(|(_, one)| *one.id == *id).map(|(own, _)| *own)
    }

    /// True if the request was still under way.
    pub fn end(&self, own: u64) -> bool {
        self.state.lock().pending.remove(&own).is_some()
    }

    /// The program has ended: every stream ends.
    pub fn end_all(&self) {
        let mut state = self.state.lock();
        *state = State {
            ended: true,
            ..State::default()
        };
    }

    /// Whether the program asked for this answer of the client's. It is answered then.
    pub fn take_question(&self, id: &RawValue) -> bool {
        let id: Option<Value> = serde_json::from_str(id.get()).ok();
        let questions = &mut self.state.lock().questions;
        let at = id.and_then(|id| questions.iter().position(|asked| *asked == id));
        at.is_some_and(|at| questions.remove(at).is_some())
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let listens = state.standing.as_ref().is_some_and(|to| !to.is_closed());
        state.pending.is_empty() && !listens
    }

    /// The stream for messages that belong to no request. It takes the place of an earlier one.
    pub fn stand(&self) -> Option<mpsc::Receiver<Routed>> {
        let mut state = self.state.lock();
        if state.ended {
            return None;
        }
        let (to, queue) = mpsc::channel(MOST_KEPT + QUEUED);
        state.kept_bytes = 0;
        for kept in state.kept.drain(..) {
            let _ = to.try_send(kept);
        }
        state.standing = Some(to);
        Some(queue)
    }

    pub fn route(&self, text: Vec<u8>) -> Route {
        let mut memory = self.memory.share();
        let has_room = memory.grow(text.len() as u64).is_ok();
        let Some(message) = UpstreamMessage::read(&text) else {
            return Route::Nowhere;
        };
        let mut state = self.state.lock();
        let Some(method) = message.method.as_deref() else {
            let own = message.id.and_then(|id| id.get().parse().ok());
            let pending = own.and_then(|own: u64| state.pending.remove(&own));
            let (Some(own), Some(pending)) = (own, pending) else {
                return Route::Nowhere;
            };
            let text = if has_room {
                with_id(&text, &pending.id)
            } else {
                None
            };
            let text = text.unwrap_or_else(|| no_room(&pending.id));
            return deliver(Some(own), &pending.to, text, true, memory);
        };
        if let Some(id) = message.id
            && (method == "ping" || self.is_shared)
        {
            return Route::Reply(reply(id.get(), method));
        }
        if !has_room {
            return match message.id {
                Some(id) => Route::Reply(reply(id.get(), method)),
                None => Route::Nowhere,
            };
        }
        // With the client's own token or id in place of the program's.
        if let Some((own, text)) = state.related(&message, &text, self.is_shared) {
            let to = &state.pending[&own].to;
            return deliver(Some(own), to, text, false, memory);
        }
        if self.is_shared {
            return Route::Nowhere;
        }
        if let Some(id) = message.id {
            state.ask(id);
        }
        let told_to_all = method.ends_with("/list_changed") || method.ends_with("/updated");
        let standing = state.standing.as_ref().filter(|to| !to.is_closed());
        let newest = state.pending.iter().next_back();
        let (request, to) = match (standing, newest) {
            (Some(standing), _) if told_to_all => (None, Some(standing)),
            (_, Some((own, pending))) => (Some(*own), Some(&pending.to)),
            (standing, None) => (None, standing),
        };
        match to {
            Some(to) => deliver(request, to, text, false, memory),
            None => {
                state.keep(text, memory);
                Route::Nowhere
            }
        }
    }
}

impl State {
    /// The request that a progress report or a notification names.
    fn related(
        &self,
        message: &UpstreamMessage<'_>,
        text: &[u8],
        is_shared: bool,
    ) -> Option<(u64, Vec<u8>)> {
        let params = message.params?.get();
        if let Some(token) = message.progress_token() {
            if !is_shared {
                return None;
            }
            let own: u64 = token.get().parse().ok()?;
            let token = self.pending.get(&own)?.token.as_deref()?;
            let params = with_member(params.as_bytes(), "progressToken", token)?;
            let params = String::from_utf8(params).ok()?;
            return Some((own, with_member(text, "params", &params)?));
        }
        let own: u64 = message.subscription()?.get().parse().ok()?;
        let id = &self.pending.get(&own)?.id;
        let members: crate::json::Members<'_> = serde_json::from_str(params).ok()?;
        let meta = members.0.iter().find(|(name, _)| name == "_meta")?.1;
        let name = "io.modelcontextprotocol/subscriptionId";
        let meta = String::from_utf8(with_member(meta.get().as_bytes(), name, id)?).ok()?;
        let params = with_member(params.as_bytes(), "_meta", &meta)?;
        let params = String::from_utf8(params).ok()?;
        Some((own, with_member(text, "params", &params)?))
    }

    fn ask(&mut self, id: &RawValue) {
        let id: Option<Value> = serde_json::from_str(id.get()).ok();
        if let Some(id) = id.filter(|id| id.is_number() || id.is_string()) {
            self.questions.push_back(id);
        }
        if self.questions.len() > MOST_QUESTIONS {
            self.questions.pop_front();
        }
    }

    fn keep(&mut self, text: Vec<u8>, memory: Share) {
        self.kept_bytes += text.len();
        self.kept.push_back(Routed {
            message: Held { text, memory },
            is_last: false,
        });
        while self.kept.len() > MOST_KEPT || self.kept_bytes > MOST_KEPT_BYTES {
            let Some(dropped) = self.kept.pop_front() else {
                return;
            };
            self.kept_bytes -= dropped.message.text.len();
        }
    }
}

fn deliver(
    request: Option<u64>,
    to: &mpsc::Sender<Routed>,
    text: Vec<u8>,
    is_last: bool,
    memory: Share,
) -> Route {
    Route::Deliver(Delivery {
        to: to.clone(),
        message: Routed {
            message: Held { text, memory },
            is_last,
        },
        request,
    })
}

/// ati answers `ping`, and has nothing else to offer where there is no client to ask.
fn reply(id: &str, method: &str) -> Vec<u8> {
    let rest = if method == "ping" {
        r#""result":{}"#
    } else {
        r#""error":{"code":-32601,"message":"not offered"}"#
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}\n").into_bytes()
}

fn no_room(id: &str) -> Vec<u8> {
    let error =
        r#"{"code":-32000,"message":"Too busy: the answer needs more memory than is left"}"#;
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}").into_bytes()
}

/// The messages that belong to one request, its answer last. Dropped before that, the program is
/// told that the request is cancelled.
pub struct Responses {
    queue: mpsc::Receiver<Routed>,
    routes: Arc<Routes>,
    outbox: Outbox,
    own: u64,
}

impl Responses {
    pub fn new(
        queue: mpsc::Receiver<Routed>,
        routes: Arc<Routes>,
        outbox: Outbox,
        own: u64,
    ) -> Self {
        Responses {
            queue,
            routes,
            outbox,
            own,
        }
    }

    /// None before the last one: the program has ended, or the client didn't read.
    pub async fn next(&mut self) -> Option<Routed> {
        self.queue.recv().await
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        if self.routes.end(self.own) {
            self.outbox.note(cancelled(self.own));
        }
    }
}

pub fn cancelled(own: u64) -> Vec<u8> {
    let params = format!("{{\"requestId\":{own},\"reason\":\"the client left\"}}");
    let method = "notifications/cancelled";
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(is_shared: bool) -> Routes {
        Routes::new(Budget::new(10_000), is_shared)
    }

    /// Which request a message goes to, and its text.
    fn delivered(routes: &Routes, text: &str) -> Option<(Option<u64>, String)> {
        match routes.route(text.as_bytes().to_vec()) {
            Route::Deliver(delivery) => {
                let text = delivery.message.message.text.clone();
                delivery.to.try_send(delivery.message).ok()?;
                Some((delivery.request, String::from_utf8(text).unwrap()))
            }
            _ => None,
        }
    }

    #[test]
    fn answer_goes_to_its_request_with_the_clients_id_and_ends_it() {
        let routes = routes(false);
        let (one, _first) = routes.begin("\"a\"", None).unwrap();
        let (two, mut second) = routes.begin("\"a\"", None).unwrap();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{two},"result":{{}}}}"#);
        let (request, text) = delivered(&routes, &answer).unwrap();
        assert_eq!(request, Some(two));
        assert_eq!(text, r#"{"jsonrpc":"2.0","id":"a","result":{}}"#);
        assert!(second.try_recv().unwrap().is_last);
        assert!(delivered(&routes, &answer).is_none(), "answered twice");
        assert!(routes.end(one) && !routes.end(one));
        assert!(routes.is_idle());
    }

    #[test]
    fn request_of_the_server_goes_to_the_newest_stream_and_changes_to_the_standing_one() {
        let routes = routes(false);
        let ask = r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}"#;
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert!(delivered(&routes, changed).is_none(), "kept");
        let (own, _queue) = routes.begin("1", None).unwrap();
        assert_eq!(
            delivered(&routes, ask).unwrap(),
            (Some(own), ask.to_owned())
        );
        assert_eq!(delivered(&routes, changed).unwrap().0, Some(own));
        let mut standing = routes.stand().unwrap();
        assert_eq!(
            standing.try_recv().unwrap().message.text,
            changed.as_bytes()
        );
        assert_eq!(delivered(&routes, changed).unwrap().0, None);
        routes.end(own);
        assert_eq!(delivered(&routes, ask).unwrap().0, None);
        // Asked twice, so it may be answered twice.
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(!routes.take_question(&id("8")) && !routes.take_question(&id("\"9\"")));
        assert!(routes.take_question(&id("9")) && routes.take_question(&id("9")));
        assert!(!routes.take_question(&id("9")));
        let ping = routes.route(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_vec());
        assert!(matches!(ping, Route::Reply(line) if line.ends_with(b"\"result\":{}}\n")));
    }

    #[test]
    fn shared_program_tells_each_client_only_of_its_own_requests() {
        let routes = routes(true);
        let (own, _queue) = routes.begin("7", Some("\"mine\"")).unwrap();
        let (other, _queue) = routes.begin("7", None).unwrap();
        let progress = |token: u64| {
            format!(
                r#"{{"method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
            )
        };
        let (request, text) = delivered(&routes, &progress(own)).unwrap();
        assert_eq!(request, Some(own));
        assert!(text.contains(r#""progressToken":"mine""#), "{text}");
        assert!(delivered(&routes, &progress(other)).is_none());
        let told = format!(
            r#"{{"method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{other}}}}}}}"#
        );
        let (request, text) = delivered(&routes, &told).unwrap();
        assert_eq!(request, Some(other));
        assert!(text.contains(r#"subscriptionId":7"#), "{text}");
        let log = r#"{"method":"notifications/message","params":{"data":"x"}}"#;
        assert!(delivered(&routes, log).is_none());
        let ask = br#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage"}"#;
        assert!(matches!(routes.route(ask.to_vec()), Route::Reply(_)));
    }

    #[test]
    fn messages_are_bounded_in_number_and_by_the_shared_memory() {
        let routes = routes(false);
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        for _ in 0..2 * MOST_KEPT {
            delivered(&routes, changed);
        }
        assert_eq!(routes.state.lock().kept.len(), MOST_KEPT);
        routes.stand();
        let (own, mut queue) = routes.begin("1", None).unwrap();
        let big = format!(r#"{{"id":{own},"result":"{}"}}"#, "x".repeat(20_000));
        let (_, text) = delivered(&routes, &big).unwrap();
        assert!(text.contains("Too busy"), "{text}");
        assert!(queue.try_recv().is_ok());
        let all: Vec<_> = (0..MOST_REQUESTS)
            .map(|_| routes.begin("1", None))
            .collect();
        assert!(all.iter().all(Option::is_some) && routes.begin("1", None).is_none());
        routes.end_all();
        assert!(routes.begin("1", None).is_none() && routes.stand().is_none());
    }
}
