//! Signals that end a command while it has something to clean up. Otherwise they have their usual
//! effect, and are not looked at.

use std::future::Future;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Code, Failure};

#[derive(Default)]
pub struct Interrupts(Option<[Signal; 3]>);

impl Interrupts {
    /// What `work` gives. A signal is a failure, once there was `something` to clean up: the caller
    /// drops what it has, and the command ends.
    pub async fn race<T>(
        &mut self,
        something: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        if self.0.is_none() && something {
            let kinds = [
                SignalKind::interrupt(),
                SignalKind::terminate(),
                SignalKind::hangup(),
            ];
            let [interrupt, terminate, hangup] = kinds.map(signal);
            let failed = |e| Failure::new(Code::ExecutionFailed, "signals").because(e);
            self.0 = Some([
                interrupt.map_err(failed)?,
                terminate.map_err(failed)?,
                hangup.map_err(failed)?,
            ]);
        }
        let Some([interrupt, terminate, hangup]) = &mut self.0 else {
            return Ok(work.await);
        };
        tokio::select! {
            done = work => return Ok(done),
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        Err(Failure::new(Code::ExecutionFailed, "interrupted"))
    }
}
