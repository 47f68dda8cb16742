//! Server-sent events with the status of an order, until it is decided. A snapshot with something new wakes the streams of
//! its event. Those whose order no longer waits look it up at once, all together; the others do so as seldom as a poll.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::base::error::Error;
use crate::base::ids::OrderId;
use crate::base::order_number::OrderNumber;
use crate::event::Event;
use crate::sale::orders::OrderView;
use crate::sale::tickets::Buyer;
use crate::web::limits::Slot;
use crate::web::push::{AT_LEAST_EVERY, frame};
use crate::web::site::Site;

/// An order is looked up at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The last message of a stream.
#[derive(Serialize)]
struct End<'a> {
    code: &'a str,
}

struct Open {
    site: Arc<Site>,
    buyer: Buyer,
    order: OrderId,
    event: Option<Arc<Event>>,
    /// `None`: the order is decided.
    news: Option<watch::Receiver<()>>,
    stopping: watch::Receiver<bool>,
    sent: OrderView,
    sent_at: Instant,
    looked_at: Instant,
    /// Freed when the stream ends, however it does.
    _slot: Slot,
}

enum Next {
    First,
    Change,
    End,
    Nothing,
}

/// Begins with `first`.
pub fn stream(
    site: Arc<Site>,
    buyer: Buyer,
    order: OrderId,
    first: OrderView,
    slot: Slot,
) -> impl Stream<Item = Result<Bytes, Error>> {
    let event = site.catalogue.known(first.event());
    let news = event.as_ref().filter(|_| !first.is_decided()).map(|event| event.news.subscribe());
    let stopping = site.stopping.subscribe();
    let now = Instant::now();
    let (sent_at, looked_at) = (now, now);
    let open = Open { site, buyer, order, event, news, stopping, sent: first, sent_at, looked_at, _slot: slot };
    unfold((open, Next::First), |(mut open, next)| async move {
        let message = match next {
            Next::First => frame("status", &open.sent),
            Next::Change => open.change().await?,
            Next::End => {
                let code = open.sent.code();
                return Some((frame("end", &End { code }), (open, Next::Nothing)));
            }
            Next::Nothing => return None,
        };
        let next = if open.sent.is_decided() { Next::End } else { Next::Change };
        Some((message, (open, next)))
    })
}

impl Open {
    /// Whether the order is not decided yet, as far as this server knows.
    fn waits(&self) -> bool {
        let place = OrderNumber::read(self.order).map(|number| number.place);
        let Some((event, place)) = self.event.as_ref().zip(place) else { return false };
        let snapshot = event.snapshot.load();
        let frozen = snapshot.as_ref().and_then(|snapshot| snapshot.frozen.get(&place));
        frozen.is_some_and(|frozen| frozen.order == self.order)
    }

    /// The next message. `None`: the server stops, and the listener will ask another one.
    async fn change(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            let news = self.news.as_mut()?;
            tokio::select! {
                _ = timeout(LOOK_EVERY, news.changed()) => {}
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            }
            if self.waits() && self.looked_at.elapsed() < self.sent.poll_after() {
                continue;
            }
            self.looked_at = Instant::now();
            let due = self.sent_at.elapsed() >= AT_LEAST_EVERY;
            match self.site.orders.find(&self.buyer, self.order).await {
                Ok(status) if due || status != self.sent => {
                    self.sent_at = Instant::now();
                    let message = frame("status", &status);
                    self.sent = status;
                    return Some(message);
                }
                // The same, or nobody can tell: as far as anyone knows, the last status still holds.
                Ok(_) => {}
                Err(_) if due => {
                    self.sent_at = Instant::now();
                    return Some(Ok(Bytes::from_static(b": one moment\n\n")));
                }
                Err(_) => {}
            }
        }
    }
}
