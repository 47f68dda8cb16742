//! Stage 1, pushed: server-sent events with the status of a token. A snapshot that has something new wakes the streams of
//! its event; each finds its own rank in memory and speaks only if that changed. An idle stream costs a timer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use prometheus::IntGauge;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::app::App;
use crate::error::Error;
use crate::events::Event;
use crate::limits::Slot;
use crate::line::{self, Status};
use crate::token::Token;

/// Something is said at least so often: that keeps the connection, and counts as a pulse.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);

/// The last word of a stream: why there will be no other.
#[derive(Serialize)]
struct End {
    code: &'static str,
}

struct Open {
    app: Arc<App>,
    event: Arc<Event>,
    token: Token,
    news: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    said: Option<Status>,
    over: bool,
    gauge: IntGauge,
    /// Given back when the stream ends, however it does.
    _slot: Slot,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}

/// Begins with `first`.
pub fn stream(
    app: Arc<App>,
    event: Arc<Event>,
    token: Token,
    first: Status,
    slot: Slot,
) -> impl Stream<Item = Result<Bytes, Error>> {
    let gauge = app.metrics.streams.with_label_values(&[&event.id.to_string()]);
    gauge.inc();
    let (mut news, stopping) = (event.news.subscribe(), app.stopping.subscribe());
    // What came between `first` and now is news too.
    news.mark_changed();
    let open = Open { app, event, token, news, stopping, said: None, over: false, gauge, _slot: slot };
    unfold((open, Some(first)), |(mut open, first)| async move {
        if open.over {
            return None;
        }
        let said = match first {
            Some(first) => open.say(first),
            None => open.next().await?,
        };
        Some((said, (open, None)))
    })
}

impl Open {
    /// The next thing to say. `None`: the server stops; whoever listens will ask another one.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            let heard = tokio::select! {
                heard = timeout(AT_LEAST_EVERY, self.news.changed()) => heard,
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            match line::status(&self.app, &self.event, self.token).await {
                Ok(status) => {
                    let same = self.said.as_ref().is_some_and(|said| said.gist() == status.gist());
                    if heard.is_err() || !same || self.said.as_ref().map(kind) != Some(kind(&status)) {
                        return Some(self.say(status));
                    }
                }
                // Redis is away: what was said stays true for all anyone knows.
                Err(error) if error.is_fault() => return Some(Ok(Bytes::from_static(b": one moment\n\n"))),
                Err(error) => {
                    self.over = true;
                    return Some(frame("end", &End { code: error.code() }));
                }
            }
        }
    }

    fn say(&mut self, status: Status) -> Result<Bytes, Error> {
        let said = frame("status", &status);
        self.said = Some(status);
        said
    }
}

fn kind(status: &Status) -> std::mem::Discriminant<Status> {
    std::mem::discriminant(status)
}

fn frame(name: &str, data: &impl Serialize) -> Result<Bytes, Error> {
    let json = serde_json::to_string(data).map_err(|error| Error::Internal(error.to_string()))?;
    Ok(Bytes::from(format!("event: {name}\ndata: {json}\n\n")))
}
