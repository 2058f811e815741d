//! MCP over standard streams: one message per line. Requests run at the same time; each answer is
//! written as soon as it is there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinSet};

use super::elicitation;
use super::input::{self, Line};
use crate::cli::output;
use crate::error::{RpcError, RpcRefusal};
use crate::mcp::{ClientRequest, Era, Received};

/// Requests under way at a time. More are refused.
const MOST_REQUESTS: usize = 256;
/// Lines that wait to be written.
const QUEUED_LINES: usize = 64;
/// How long requests under way may take once the input has ended.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// What answers the requests of the client.
pub trait Server: Send + Sync + 'static {
    /// `line` is the request as it was read. None where it is answered by no message.
    fn answer(
        &self,
        request: &ClientRequest,
        line: &[u8],
        client: &Client,
    ) -> impl Future<Output = Option<Vec<u8>>> + Send;

    /// Runs next to the requests, and tells the client when the tools have changed.
    fn watch(self: Arc<Self>, client: Client) -> impl Future<Output = ()> + Send;

    /// Whether it tells of changes.
    fn tells_changes(&self) -> bool;
}

/// The client at the other end.
#[derive(Clone)]
pub struct Client {
    lines: mpsc::Sender<Vec<u8>>,
    state: Arc<ClientState>,
}

#[derive(Default)]
struct ClientState {
    /// It has made the handshake, so that it can be sent notifications.
    initialized: AtomicBool,
    /// It has said in its handshake that it can ask its user.
    can_ask: AtomicBool,
    questions: Mutex<Questions>,
    serial: AtomicU64,
    /// Ids of `subscriptions/listen`, by which clients of the stateless era ask for notifications.
    subscriptions: Mutex<Vec<Box<RawValue>>>,
}

/// Requests to the client that it hasn't answered, by their id.
#[derive(Default)]
struct Questions {
    open: HashMap<String, oneshot::Sender<Value>>,
    /// The input has ended: there will be no answers.
    ended: bool,
}

/// A question is forgotten with the request that it is about.
struct OpenQuestion<'a> {
    id: String,
    questions: &'a Mutex<Questions>,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.questions.lock().open.remove(&self.id);
    }
}

impl Client {
    /// Whether it can ask its user.
    pub fn can_ask(&self) -> bool {
        self.state.can_ask.load(Ordering::Acquire)
    }

    /// The result of a request to the client. None where it has none, or ends.
    pub async fn ask(&self, method: &str, params: &Value) -> Option<Value> {
        let serial = self.state.serial.fetch_add(1, Ordering::Relaxed);
        let id = format!("ati-{serial}");
        let (sender, answer) = oneshot::channel();
        {
            let mut questions = self.state.questions.lock();
            if questions.ended {
                return None;
            }
            questions.open.insert(id.clone(), sender);
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let _open = OpenQuestion {
            id,
            questions: &self.state.questions,
        };
        self.send(message.to_string().into_bytes()).await;
        answer.await.ok()
    }

    /// The client's answer to a question. An error is none.
    fn answered(&self, id: &RawValue, line: &[u8]) {
        let id: Option<String> = serde_json::from_str(id.get()).ok();
        let asked = id.and_then(|id| self.state.questions.lock().open.remove(&id));
        let answer = serde_json::from_slice::<Value>(line).ok();
        let result = answer.map(|mut answer| answer["result"].take());
        if let (Some(asked), Some(result)) = (asked, result.filter(Value::is_object)) {
            let _ = asked.send(result);
        }
    }

    /// Questions are given up: the input has ended.
    fn end_questions(&self) {
        let mut questions = self.state.questions.lock();
        questions.ended = true;
        questions.open.clear();
    }

    /// One message, without a line break.
    pub async fn send(&self, message: Vec<u8>) {
        let _ = self.lines.send(message).await;
    }

    /// Sends a message that may be lost where the client doesn't read.
    pub fn try_send(&self, message: Vec<u8>) {
        let _ = self.lines.try_send(message);
    }

    pub async fn tools_changed(&self) {
        const METHOD: &str = "notifications/tools/list_changed";
        if self.state.initialized.load(Ordering::Acquire) {
            let message = json!({"jsonrpc": "2.0", "method": METHOD});
            self.send(message.to_string().into_bytes()).await;
        }
        let subscriptions = self.state.subscriptions.lock().clone();
        for id in subscriptions {
            let params = json!({"_meta": {SUBSCRIPTION_ID: id}});
            let message = json!({"jsonrpc": "2.0", "method": METHOD, "params": params});
            self.send(message.to_string().into_bytes()).await;
        }
    }

    /// `subscriptions/listen`: the request stays open, and is acknowledged by a notification.
    async fn subscribe(&self, request: &ClientRequest, tells_changes: bool) {
        let filter = request.subscription.as_deref().map(RawValue::get);
        let filter: Value = serde_json::from_str(filter.unwrap_or("{}")).unwrap_or_default();
        let wanted = tells_changes && filter["toolsListChanged"] == true;
        if wanted {
            let mut subscriptions = self.state.subscriptions.lock();
            if subscriptions.len() < MOST_REQUESTS {
                subscriptions.push(request.id.clone());
            }
        }
        let accepted = match wanted {
            true => json!({"toolsListChanged": true}),
            false => json!({}),
        };
        let message = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_ID: request.id}, "notifications": accepted},
        });
        self.send(message.to_string().into_bytes()).await;
    }

    fn unsubscribe(&self, id: &RawValue) {
        let mut subscriptions = self.state.subscriptions.lock();
        subscriptions.retain(|known| known.get() != id.get());
    }
}

/// Serves until the input ends, or until the client no longer reads.
pub async fn serve<S: Server>(server: S) {
    let server = Arc::new(server);
    let (lines, queue) = mpsc::channel(QUEUED_LINES);
    let mut writer = tokio::task::spawn_blocking(move || write_lines(queue));
    let client = Client {
        lines,
        state: Arc::default(),
    };
    let mut requests = Requests::default();
    let mut input = input::lines();
    let mut watch = Box::pin(server.clone().watch(client.clone()));
    loop {
        tokio::select! {
            biased;
            line = input.recv() => match line {
                Some(line) => receive(line, &server, &client, &mut requests).await,
                None => break,
            },
            Some(ended) = requests.tasks.join_next_with_id(), if !requests.tasks.is_empty() => {
                requests.forget(ended);
            }
            () = &mut watch => {}
            _ = &mut writer => return,
        }
    }
    client.end_questions();
    // It has a hold of the client, as the requests have: the writer ends with the last of them.
    drop(watch);
    let finish = async { while requests.tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, finish).await;
    drop(requests);
    drop(client);
    let _ = tokio::time::timeout(LAST_ANSWERS, writer).await;
}

/// On a blocking thread, until there are no more lines, or the client no longer reads.
fn write_lines(mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut line) = queue.blocking_recv() {
        line.push(b'\n');
        if !output::protocol(&line) {
            return;
        }
    }
}

/// Requests under way, by the id that the client gave them.
#[derive(Default)]
struct Requests {
    tasks: JoinSet<()>,
    ids: HashMap<Id, (Box<RawValue>, AbortHandle)>,
}

impl Requests {
    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(e) => e.id(),
        };
        self.ids.remove(&id);
    }

    /// Its answer isn't sent any more. Of two with the same id neither is meant.
    fn cancel(&self, id: &RawValue) {
        let same = self
            .ids
            .values()
            .filter(|(known, _)| known.get() == id.get());
        if let [(_, task)] = same.collect::<Vec<_>>()[..] {
            task.abort();
        }
    }
}

async fn receive<S: Server>(line: Line, server: &Arc<S>, client: &Client, requests: &mut Requests) {
    let line = match line {
        Line::Text(line) if line.trim_ascii().is_empty() => return,
        Line::Text(line) => line,
        Line::TooLong { limit, id } => {
            let refusal = RpcRefusal {
                error: RpcError::TooLarge(limit),
                era: Era::Handshake,
                id,
            };
            return client.send(refusal.body()).await;
        }
    };
    let request = match Received::read(&line, None) {
        Ok(Received::Request(request)) => request,
        Ok(Received::Cancelled { id }) => {
            client.unsubscribe(&id);
            return requests.cancel(&id);
        }
        Ok(Received::Answer { id }) => return client.answered(&id, &line),
        Ok(Received::Nothing) => return,
        Err(refusal) => return client.send(refusal.body()).await,
    };
    if request.method == "subscriptions/listen" && request.era == Era::Stateless {
        return client.subscribe(&request, server.tells_changes()).await;
    }
    if request.method == "initialize" {
        client.state.initialized.store(true, Ordering::Release);
        let can_ask = request.offers_elicitation;
        client.state.can_ask.store(can_ask, Ordering::Release);
    }
    if requests.tasks.len() >= MOST_REQUESTS {
        let error = RpcError::Busy(format!("more than {MOST_REQUESTS} requests at a time"));
        return client.send(request.refuse(error).body()).await;
    }
    let id = request.id.clone();
    let (server, client) = (server.clone(), client.clone());
    let task = requests.tasks.spawn(async move {
        let answer = elicitation::answer(server.as_ref(), &request, &line, &client).await;
        if let Some(answer) = answer {
            client.send(answer).await;
        }
    });
    requests.ids.insert(task.id(), (id, task));
}
