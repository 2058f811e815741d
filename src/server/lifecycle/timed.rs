//! Work that may hang, on a thread of its own, with a limit for how long it is waited for.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NoResult {
    #[error("there is no thread for it")]
    NoThread(#[source] io::Error),
    #[error("it took more than {} s; does a file system hang?", .0.as_secs())]
    Overdue(Duration),
    #[error("it broke off")]
    Panicked,
}

/// The result of `work`, if it comes in time. A later one is given to `late`, on the work's thread.
pub fn run<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
    late: impl FnOnce(T) + Send + 'static,
) -> Result<T, NoResult> {
    // Without a buffer, so that each result is either received here or given to `late`.
    let (sender, result) = mpsc::sync_channel(0);
    std::thread::Builder::new()
        .name("timed".into())
        .spawn(move || {
            if let Err(mpsc::SendError(unused)) = sender.send(work()) {
                late(unused);
            }
        })
        .map_err(NoResult::NoThread)?;
    result.recv_timeout(limit).map_err(|e| match e {
        mpsc::RecvTimeoutError::Timeout => NoResult::Overdue(limit),
        mpsc::RecvTimeoutError::Disconnected => NoResult::Panicked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_that_comes_too_late_is_handed_on_and_holds_up_nothing() {
        let (go_on, hang) = mpsc::channel::<()>();
        let (told, late) = mpsc::channel();
        let hanging = run(
            Duration::from_millis(10),
            move || hang.recv().is_err(),
            move |unused| told.send(unused).unwrap(),
        );
        assert!(matches!(hanging, Err(NoResult::Overdue(_))), "{hanging:?}");
        let next = run(Duration::from_secs(60), || 7, |_| ());
        assert_eq!(next.unwrap(), 7);
        drop(go_on);
        assert!(late.recv_timeout(Duration::from_secs(60)).unwrap());
    }

    #[test]
    fn work_that_panics_is_told() {
        let outcome = run(
            Duration::from_secs(60),
            || panic!("on purpose"),
            |(): ()| (),
        );
        assert!(matches!(outcome, Err(NoResult::Panicked)));
    }
}
