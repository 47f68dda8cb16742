//! Tells outside what happened: sends the messages that sales and cancels wrote in their own transactions. Each is sent at
//! least once, those of one key in order. A message that may be sent later is tried again, with growing pauses; one that
//! can never be sent is given up, and the log says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diesel_async::AsyncConnection;
use futures_util::future::{BoxFuture, join_all};

use crate::base::error::Error;
use crate::base::lock;
use crate::store::Stores;
use crate::store::db::outbox::{self, Letter};

/// Messages sent together.
const TOGETHER: i64 = 200;
/// How often to look for messages while there are none.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between tries that fail: each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Without anybody to tell.
const NEVER: Duration = Duration::from_secs(3600);

/// A way to tell somebody something.
pub trait Channel: Send + Sync {
    /// As in the messages.
    fn name(&self) -> &'static str;

    fn send<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<(), Unsent>>;
}

#[derive(Debug)]
pub enum Unsent {
    /// Worth another try.
    Later(Error),
    /// It would never go through.
    Never(String),
}

pub struct Outbox {
    stores: Arc<Stores>,
    channels: Vec<Box<dyn Channel>>,
    pause: Mutex<Duration>,
}

impl Outbox {
    pub fn new(stores: Arc<Stores>, channels: Vec<Box<dyn Channel>>) -> Self {
        Self { stores, channels, pause: Mutex::new(FIRST_PAUSE) }
    }

    /// One round: sends what waits, if no other server does. Returns when to look again.
    pub async fn step(&self) -> Result<Duration, Error> {
        let (mut next, mut failed) = (NEVER, None);
        for channel in &self.channels {
            match self.send(channel.as_ref()).await {
                Ok(true) => next = Duration::ZERO,
                Ok(false) => next = next.min(LOOK_EVERY),
                Err(error) => failed = Some((channel.name(), error)),
            }
            self.count(channel.name()).await?;
        }
        let mut pause = lock(&self.pause);
        let Some((channel, error)) = failed else {
            if std::mem::replace(&mut *pause, FIRST_PAUSE) > FIRST_PAUSE {
                tracing::info!("messages of the outbox are sent again");
            }
            return Ok(next);
        };
        if *pause == FIRST_PAUSE {
            tracing::warn!(channel, %error, "messages of the outbox wait, trying again");
        }
        let wait = *pause;
        *pause = (wait * 2).min(LONGEST_PAUSE);
        Ok(wait)
    }

    /// Returns whether there may be more.
    async fn send(&self, channel: &dyn Channel) -> Result<bool, Error> {
        let mut conn = self.stores.db.get().await?;
        let (more, failed) = conn
            .transaction(async |conn| {
                if !outbox::may_send(conn).await? {
                    return Ok((false, None));
                }
                let letters = outbox::oldest(conn, channel.name(), TOGETHER).await?;
                let mut by_key: BTreeMap<&str, Vec<&Letter>> = BTreeMap::new();
                for letter in &letters {
                    by_key.entry(&letter.key).or_default().push(letter);
                }
                let (mut done, mut failed) = (Vec::new(), None);
                let all = by_key.into_values().map(|letters| send_in_order(channel, letters));
                for Sent { sent, given_up, failure } in join_all(all).await {
                    done.extend(sent);
                    for (letter, problem) in given_up {
                        outbox::give_up(conn, letter, &problem).await?;
                    }
                    failed = failed.or(failure);
                }
                outbox::sent(conn, &done).await?;
                Ok::<_, Error>((letters.len() as i64 == TOGETHER, failed))
            })
            .await?;
        failed.map_or(Ok(more), Err)
    }

    async fn count(&self, channel: &str) -> Result<(), Error> {
        let (count, seconds) = outbox::waiting(&mut self.stores.db.get().await?, channel).await?;
        self.stores.metrics.outbox_waiting.with_label_values(&[channel]).set(count as f64);
        self.stores.metrics.outbox_oldest.with_label_values(&[channel]).set(seconds);
        Ok(())
    }
}

/// How far the messages of one key got.
#[derive(Default)]
struct Sent {
    sent: Vec<i64>,
    given_up: Vec<(i64, String)>,
    failure: Option<Error>,
}

/// Sends messages of one key, one after the other. Those behind one that has to wait wait too.
async fn send_in_order(channel: &dyn Channel, letters: Vec<&Letter>) -> Sent {
    let mut all = Sent::default();
    for letter in letters {
        match channel.send(letter).await {
            Ok(()) => all.sent.push(letter.id),
            Err(Unsent::Later(error)) => {
                all.failure = Some(error);
                break;
            }
            Err(Unsent::Never(problem)) => {
                let message = letter.message_id;
                tracing::error!(channel = channel.name(), %message, problem, "a message is given up");
                all.given_up.push((letter.id, problem));
            }
        }
    }
    all
}
