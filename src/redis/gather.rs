//! Calls that arrive together travel together. While batches are under way the next one gathers, so that a batch is as
//! large as the load makes it and a lone call does not wait: there is no timer.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::app::PATIENCE;
use crate::error::Error;

/// So much longer than its callers a batch is waited for.
const MARGIN: Duration = Duration::from_secs(1);

/// Where callers hand in. Cloning it hands in to the same batches.
pub struct Gather<Q, A> {
    queue: mpsc::Sender<(Q, oneshot::Sender<Result<A, Error>>)>,
    what: &'static str,
}

#[derive(Clone, Copy)]
pub struct Limits {
    /// Most calls that queue up.
    pub waiting: usize,
    /// Most calls in one batch.
    pub together: usize,
    /// Most batches under way.
    pub at_once: usize,
}

/// Questions that were gathered, each with whoever waits for its answer.
pub type Batch<Q, A> = Vec<(Q, oneshot::Sender<Result<A, Error>>)>;

impl<Q, A> Clone for Gather<Q, A> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), what: self.what }
    }
}

impl<Q, A> Gather<Q, A> {
    /// Returns the handle and the loop that serves it, to be spawned by the caller.
    pub fn new<S, F>(what: &'static str, limits: Limits, mut serve: S) -> (Self, impl Future<Output = ()>)
    where
        S: FnMut(Batch<Q, A>) -> F,
        F: Future<Output = ()>,
    {
        let (queue, mut asked) = mpsc::channel::<(Q, oneshot::Sender<Result<A, Error>>)>(limits.waiting);
        let work = async move {
            let mut serving = FuturesUnordered::new();
            loop {
                let room = serving.len() < limits.at_once;
                tokio::select! {
                    Some(_) = serving.next() => {}
                    first = asked.recv(), if room => {
                        let Some(first) = first else { break };
                        // One turn of the event loop: whoever already waits in a socket gets on too.
                        tokio::task::yield_now().await;
                        let mut batch = vec![first];
                        while let Some(next) = (batch.len() < limits.together).then(|| asked.try_recv().ok()).flatten() {
                            batch.push(next);
                        }
                        // Who gave up meanwhile needs no answer: work for nobody would keep the others waiting.
                        batch.retain(|(_, answer)| !answer.is_closed());
                        if batch.is_empty() {
                            continue;
                        }
                        // Given up only when nobody waits for it any more.
                        serving.push(timeout(PATIENCE + MARGIN, serve(batch)));
                    }
                }
            }
            while serving.next().await.is_some() {}
        };
        (Self { queue, what }, work)
    }

    /// Hands one call in and waits for its answer, but not forever: it may then still be carried out. Refuses at once
    /// where too many wait already.
    pub async fn ask(&self, question: Q) -> Result<A, Error> {
        let (answer, answered) = oneshot::channel();
        self.queue.try_send((question, answer)).map_err(|_| Error::Overloaded(self.what))?;
        let answered = timeout(PATIENCE, answered).await.map_err(|_| Error::TooSlow(self.what))?;
        answered.map_err(|_| Error::Internal(format!("{} was dropped", self.what)))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[tokio::test]
    async fn calls_made_together_are_served_together_and_a_lone_one_at_once() {
        let sizes = Rc::new(RefCell::new(Vec::new()));
        let seen = sizes.clone();
        let (gather, work) =
            Gather::new("test", Limits { waiting: 100, together: 10, at_once: 1 }, move |batch: Batch<u32, u32>| {
                seen.borrow_mut().push(batch.len());
                async move {
                    for (question, answer) in batch {
                        let _ = answer.send(Ok(question * 2));
                    }
                }
            });
        let calls = async {
            assert_eq!(gather.ask(21).await.unwrap(), 42);
            let answers = futures_util::future::join_all((0..25).map(|n| gather.ask(n))).await;
            assert!(answers.into_iter().enumerate().all(|(n, answer)| answer.unwrap() as usize == n * 2));
            drop(gather);
        };
        tokio::join!(work, calls);
        assert_eq!(*sizes.borrow(), [1, 10, 10, 5]);
    }

    #[tokio::test]
    async fn who_gave_up_waiting_is_not_served() {
        let served = Rc::new(RefCell::new(Vec::new()));
        let seen = served.clone();
        let limits = Limits { waiting: 100, together: 10, at_once: 1 };
        let (gather, work) = Gather::new("test", limits, move |batch: Batch<u32, ()>| {
            seen.borrow_mut().extend(batch.iter().map(|(question, _)| *question));
            async move { batch.into_iter().for_each(|(_, answer)| drop(answer.send(Ok(())))) }
        });
        // Asked and gone before anyone served.
        for question in 0..25 {
            let gone = timeout(Duration::ZERO, gather.ask(question)).await;
            assert!(gone.is_err());
        }
        let stays = async {
            gather.ask(25).await.unwrap();
            drop(gather);
        };
        tokio::join!(work, stays);
        assert_eq!(*served.borrow(), [25]);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_instead_of_piling_up() {
        let (gather, _idle) =
            Gather::new("test", Limits { waiting: 1, together: 1, at_once: 1 }, |_: Batch<(), ()>| async {});
        let first = gather.ask(());
        let second = async { gather.ask(()).await };
        tokio::select! {
            biased;
            _ = first => panic!("nobody serves"),
            refused = second => assert!(matches!(refused, Err(Error::Overloaded("test")))),
        }
    }
}
