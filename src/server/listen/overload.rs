//! Connections over the limit: answered with a refusal and closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::connection::Accepted;
use crate::error::{Refusal, too_many_connections_response};
use crate::telemetry::metrics::METRICS;

/// Connections of one listener that are being answered at a time. The rest are closed unanswered.
const MOST_ANSWERING: usize = 64;
/// How long one answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Answers connections over the limit. Counts those that are being answered, so that refusing
/// stays cheap under a flood.
#[derive(Clone, Default)]
pub struct OverloadAnswers {
    answering: Arc<AtomicUsize>,
}

impl OverloadAnswers {
    /// `encrypted`: the caller expects a TLS handshake, which costs more than a refusal may, so its
    /// connection is closed unanswered.
    pub fn refuse(&self, accepted: Accepted, encrypted: bool) {
        METRICS.refused(Refusal::TooManyConnections.label());
        if encrypted || self.answering.load(Ordering::Relaxed) >= MOST_ANSWERING {
            return;
        }
        self.answering.fetch_add(1, Ordering::Relaxed);
        let answering = self.answering.clone();
        let response = too_many_connections_response();
        tokio::spawn(async move {
            let answered = async {
                match accepted {
                    Accepted::Tcp(stream, _) => {
                        answer(tokio::net::TcpStream::from_std(stream)?, &response).await
                    }
                    Accepted::Unix(stream) => {
                        answer(tokio::net::UnixStream::from_std(stream)?, &response).await
                    }
                }
            };
            let _ = tokio::time::timeout(ANSWER_TIME, answered).await;
            answering.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    response: &[u8],
) -> std::io::Result<()> {
    stream.write_all(response).await?;
    stream.shutdown().await?;
    // Closing with unread bytes would reset the connection and lose the answer.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
