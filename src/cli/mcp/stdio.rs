//! MCP over standard streams: one message per line. Requests run at the same time; each answer is
//! written as soon as it is there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinSet};

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
    /// `line` is the request as it was read.
    fn answer(
        self: Arc<Self>,
        request: ClientRequest,
        line: Vec<u8>,
        client: Client,
    ) -> impl Future<Output = ()> + Send;

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
    /// Ids of `subscriptions/listen`, by which clients of the stateless era ask for notifications.
    subscriptions: Mutex<Vec<Box<RawValue>>>,
}

impl Client {
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
        Ok(Received::Nothing) => return,
        Err(refusal) => return client.send(refusal.body()).await,
    };
    if request.method == "subscriptions/listen" && request.era == Era::Stateless {
        return client.subscribe(&request, server.tells_changes()).await;
    }
    if request.method == "initialize" {
        client.state.initialized.store(true, Ordering::Release);
    }
    if requests.tasks.len() >= MOST_REQUESTS {
        let error = RpcError::Busy(format!("more than {MOST_REQUESTS} requests at a time"));
        return client.send(request.refuse(error).body()).await;
    }
    let id = request.id.clone();
    let answer = server.clone().answer(*request, line, client.clone());
    let task = requests.tasks.spawn(answer);
    requests.ids.insert(task.id(), (id, task));
}
