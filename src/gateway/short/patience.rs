use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

use tokio::time::Sleep;

/// The watchdog of a connection for stalls: one timer that is set anew when it fires too early, and
/// not for each request. Most requests only look at it.
#[derive(Default)]
pub(super) struct Patience {
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    waker: Option<Waker>,
}

impl Patience {
    /// Whether the deadline has passed. If not, the task is woken when it has, or before.
    pub fn is_over(&mut self, deadline: Instant, cx: &mut Context<'_>) -> bool {
        let deadline = deadline.into();
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        } else if !timer.is_elapsed() && wakes(&self.waker, cx) {
            return false;
        }
        while timer.as_mut().poll(cx).is_ready() {
            if tokio::time::Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        if !wakes(&self.waker, cx) {
            self.waker = Some(cx.waker().clone());
        }
        false
    }
}

fn wakes(waker: &Option<Waker>, cx: &Context<'_>) -> bool {
    waker.as_ref().is_some_and(|it| it.will_wake(cx.waker()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn timer_that_fires_early_is_set_anew() {
        let mut patience = Patience::default();
        let begin = tokio::time::Instant::now();
        let at = |seconds| (begin + Duration::from_secs(seconds)).into_std();
        let mut wait = async |deadline: Instant| {
            poll_fn(|cx| {
                if patience.is_over(deadline, cx) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            begin.elapsed().as_secs()
        };
        for seconds in [1, 5, 7] {
            assert_eq!(wait(at(seconds)).await, seconds);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nearer_deadline_than_that_of_the_timer_is_kept() {
        let mut patience = Patience::default();
        let begin = tokio::time::Instant::now();
        poll_fn(|cx| {
            let far = (begin + Duration::from_secs(60)).into_std();
            assert!(!patience.is_over(far, cx));
            Poll::Ready(())
        })
        .await;
        let near = (begin + Duration::from_secs(2)).into_std();
        poll_fn(|cx| match patience.is_over(near, cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        assert_eq!(begin.elapsed().as_secs(), 2);
    }
}
