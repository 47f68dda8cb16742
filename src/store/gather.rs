//! Calls that arrive together travel together. The next batch gathers while others are under way, so a batch is as large as
//! the load makes it. There is no timer: a lone call does not wait.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::base::LONGEST_WAIT;
use crate::base::error::Error;

/// A batch may take this much longer than its callers wait.
const MARGIN: Duration = Duration::from_secs(1);

/// Where callers hand in their questions. Clones feed the same batches.
pub struct Gather<Q, A> {
    queue: mpsc::Sender<(Q, oneshot::Sender<Result<A, Error>>)>,
    what: &'static str,
}

#[derive(Clone, Copy)]
pub struct Capacity {
    /// Most calls that wait for a batch.
    pub waiting: usize,
    /// Most calls in one batch.
    pub together: usize,
    /// Most batches under way.
    pub at_once: usize,
}

/// The questions of one batch, each with the channel for its answer.
pub type Batch<Q, A> = Vec<(Q, oneshot::Sender<Result<A, Error>>)>;

impl<Q, A> Clone for Gather<Q, A> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), what: self.what }
    }
}

impl<Q, A> Gather<Q, A> {
    /// Returns the handle and the loop that serves it, to be spawned by the caller.
    pub fn new<S, F>(what: &'static str, capacity: Capacity, mut serve: S) -> (Self, impl Future<Output = ()>)
    where
        S: FnMut(Batch<Q, A>) -> F,
        F: Future<Output = ()>,
    {
        let (queue, mut asked) = mpsc::channel::<(Q, oneshot::Sender<Result<A, Error>>)>(capacity.waiting);
        let work = async move {
            let mut serving = FuturesUnordered::new();
            loop {
                let room = serving.len() < capacity.at_once;
                tokio::select! {
                    Some(_) = serving.next() => {}
                    first = asked.recv(), if room => {
                        let Some(first) = first else { break };
                        // One turn of the event loop, so that requests already in a socket join this batch.
                        tokio::task::yield_now().await;
                        let mut batch = vec![first];
                        while let Some(next) = (batch.len() < capacity.together).then(|| asked.try_recv().ok()).flatten() {
                            batch.push(next);
                        }
                        // Callers that gave up need no answer: work for nobody would keep the others waiting.
                        batch.retain(|(_, answer)| !answer.is_closed());
                        if batch.is_empty() {
                            continue;
                        }
                        // Abandoned only when no caller waits any more.
                        serving.push(timeout(LONGEST_WAIT + MARGIN, serve(batch)));
                    }
                }
            }
            while serving.next().await.is_some() {}
        };
        (Self { queue, what }, work)
    }

    /// Hands in one call and waits for its answer. After a timeout the call may still be carried out. Refuses at once if too
    /// many calls wait already.
    pub async fn ask(&self, question: Q) -> Result<A, Error> {
        let (answer, answered) = oneshot::channel();
        self.queue.try_send((question, answer)).map_err(|_| Error::Overloaded(self.what))?;
        let answered = timeout(LONGEST_WAIT, answered).await.map_err(|_| Error::TooSlow(self.what))?;
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
            Gather::new("test", Capacity { waiting: 100, together: 10, at_once: 1 }, move |batch: Batch<u32, u32>| {
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
    async fn a_caller_that_gave_up_is_not_served() {
        let served = Rc::new(RefCell::new(Vec::new()));
        let seen = served.clone();
        let capacity = Capacity { waiting: 100, together: 10, at_once: 1 };
        let (gather, work) = Gather::new("test", capacity, move |batch: Batch<u32, ()>| {
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
            Gather::new("test", Capacity { waiting: 1, together: 1, at_once: 1 }, |_: Batch<(), ()>| async {});
        let first = gather.ask(());
        let second = async { gather.ask(()).await };
        tokio::select! {
            biased;
            _ = first => panic!("nobody serves"),
            refused = second => assert!(matches!(refused, Err(Error::Overloaded("test")))),
        }
    }
}
