//! Server-sent events with the status of a token. A snapshot with something new wakes the streams of its event; each finds
//! its own rank in memory and sends it only if it changed. An open stream keeps its visitor's place alive. An idle one costs
//! a timer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::error::Error;
use crate::base::token::Token;
use crate::event::Event;
use crate::sale::line::Status;
use crate::web::limits::Slot;
use crate::web::site::Site;

/// A status is sent at least this often, which keeps the connection alive.
pub const AT_LEAST_EVERY: Duration = Duration::from_secs(15);

/// The last message of a stream: why there will be no other.
#[derive(Serialize)]
struct End {
    code: &'static str,
}

struct Open {
    site: Arc<Site>,
    event: Arc<Event>,
    token: Token,
    news: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    sent: Option<Status>,
    sent_at: Instant,
    over: bool,
    /// Freed when the stream ends, however it does.
    _slot: Slot,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.event.tally.streams.fetch_sub(1, Relaxed);
    }
}

/// Begins with `first`.
pub fn stream(
    site: Arc<Site>,
    event: Arc<Event>,
    token: Token,
    first: Status,
    slot: Slot,
) -> impl Stream<Item = Result<Bytes, Error>> {
    event.tally.streams.fetch_add(1, Relaxed);
    let (mut news, stopping) = (event.news.subscribe(), site.stopping.subscribe());
    // What came between `first` and now is news too.
    news.mark_changed();
    let open =
        Open { site, event, token, news, stopping, sent: None, sent_at: Instant::now(), over: false, _slot: slot };
    unfold((open, Some(first)), |(mut open, first)| async move {
        if open.over {
            return None;
        }
        let message = match first {
            Some(first) => open.send(first),
            None => open.next().await?,
        };
        Some((message, (open, None)))
    })
}

impl Open {
    /// The next message. `None`: the server stops, and the listener will ask another one.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            tokio::select! {
                _ = timeout(self.patience(), self.news.changed()) => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
            let due = self.sent_at.elapsed() >= AT_LEAST_EVERY;
            // Asking is a pulse, whether or not there is something to send.
            match self.site.line.status(&self.event, self.token).await {
                Ok(status) => {
                    let same = self.sent.as_ref().is_some_and(|sent| sent.gist() == status.gist());
                    if due || !same || self.sent.as_ref().map(kind) != Some(kind(&status)) {
                        return Some(self.send(status));
                    }
                }
                // Redis is away: as far as anyone knows, the last status still holds.
                Err(error) if error.is_fault() => {
                    if due {
                        self.sent_at = Instant::now();
                        return Some(Ok(Bytes::from_static(b": one moment\n\n")));
                    }
                }
                Err(error) => {
                    self.over = true;
                    return Some(frame("end", &End { code: error.code() }));
                }
            }
        }
    }

    /// Until the next message is due, or the next pulse. Pulses come twice a slice or more, so that the visitor is neither
    /// swept nor passed over, however short the queue TTL is.
    fn patience(&self) -> Duration {
        let snapshot = self.event.snapshot.load();
        let pulse = snapshot.as_ref().map_or(AT_LEAST_EVERY, |snapshot| snapshot.policy.slice() / 2);
        pulse.min(AT_LEAST_EVERY.saturating_sub(self.sent_at.elapsed()))
    }

    fn send(&mut self, status: Status) -> Result<Bytes, Error> {
        let message = frame("status", &status);
        self.sent = Some(status);
        self.sent_at = Instant::now();
        message
    }
}

fn kind(status: &Status) -> std::mem::Discriminant<Status> {
    std::mem::discriminant(status)
}

/// One message.
pub fn frame(name: &str, data: &impl Serialize) -> Result<Bytes, Error> {
    let json = serde_json::to_string(data).map_err(Error::internal)?;
    Ok(Bytes::from(format!("event: {name}\ndata: {json}\n\n")))
}
