//! Stage 5: telling Redis what PostgreSQL sold or took back, and putting right what Redis forgot. Every step can be
//! repeated: a message that is no news changes nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::app::App;
use crate::db;
use crate::db::tickets::{CANCELLED, NewOrder, SoldRow, TicketRow, UnsettledRow};
use crate::error::Error;
use crate::events::Event;
use crate::ids::{EventId, Place, SeatNumber};
use crate::redis::keys::Key;
use crate::redis::scripts::{Settled, Settlement};

/// Most messages in one script call.
const TOGETHER: usize = 1000;
/// How often every event is compared with the database.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

/// A sale or cancel Redis has to be told of.
#[derive(Debug, Clone)]
pub struct Due {
    ticket: Uuid,
    event: EventId,
    settlement: Settlement,
}

impl Due {
    pub fn sold(order: &NewOrder, row: &SoldRow) -> Self {
        let settlement = Settlement { seat: row.seat, version: row.seat_version, sold: true, place: order.place };
        Self { ticket: row.id.0, event: order.event, settlement }
    }

    pub fn cancelled(row: &TicketRow) -> Option<Self> {
        let settlement = settlement(row.seat_number, row.seat_version, &row.status, row.place)?;
        Some(Self { ticket: row.id, event: EventId::try_from(row.event_id).ok()?, settlement })
    }

    fn from_row(row: &UnsettledRow) -> Option<Self> {
        let settlement = settlement(row.seat_number, row.seat_version, &row.status, row.place)?;
        Some(Self { ticket: row.id, event: EventId::try_from(row.event_id).ok()?, settlement })
    }
}

fn settlement(seat: i32, version: i64, status: &str, place: i64) -> Option<Settlement> {
    let (seat, place) = (SeatNumber(u32::try_from(seat).ok()?), Place::from_db(place)?);
    Some(Settlement { seat, version, sold: status != CANCELLED, place })
}

/// Settles sales as they are made. Every event has one round under way, and meanwhile the next one gathers: rounds are as
/// large as the load makes them, and an event whose part of Redis is away holds up no other. What fails here the sweep
/// takes up.
pub async fn settle_as_they_come(app: Arc<App>, mut unsettled: mpsc::UnboundedReceiver<Vec<Due>>) {
    let mut orders = Vec::new();
    let mut gathering: HashMap<EventId, Vec<Due>> = HashMap::new();
    let mut under_way = HashSet::new();
    let mut rounds = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(over) = rounds.next() => drop(under_way.remove(&over)),
            count = unsettled.recv_many(&mut orders, TOGETHER) => {
                if count == 0 {
                    break;
                }
                for due in orders.drain(..).flatten() {
                    gathering.entry(due.event).or_default().push(due);
                }
            }
        }
        for (event, due) in gathering.extract_if(|event, _| under_way.insert(*event)) {
            rounds.push(settle_or_leave(&app, event, due));
        }
    }
    while rounds.next().await.is_some() {}
}

async fn settle_or_leave(app: &App, event: EventId, due: Vec<Due>) -> EventId {
    if let Err(error) = settle_event(app, event, due.iter().collect()).await {
        tracing::warn!(%event, %error, "sales are left to the sync sweep");
    }
    event
}

/// One sweep: takes up whatever is not settled, by whichever server it was sold. An event that fails is left out from then
/// on, so that the others get their turn.
pub async fn step(app: &App) -> Result<Duration, Error> {
    let mut failed: Vec<EventId> = Vec::new();
    let mut outcome = Ok(Duration::from_millis(app.config.policy.sync_interval_ms));
    loop {
        let mut rows = db::tickets::unsettled(&mut app.db.get().await?, &failed, TOGETHER as i64).await?;
        let more = rows.len() == TOGETHER;
        // The last order may have more seats than were read: it is left to the next round, unless it is all there is.
        let (first, last) = (rows.first().map(|row| row.order_id), rows.last().map(|row| row.order_id));
        if more && first != last {
            rows.retain(|row| Some(row.order_id) != last);
        }
        let due: Vec<Due> = rows.iter().filter_map(Due::from_row).collect();
        for (event, error) in settle(app, &due).await {
            failed.push(event);
            outcome = Err(error);
        }
        if !more {
            return outcome;
        }
    }
}

/// Tells Redis, then notes in the database that it was told. Returns where that failed.
async fn settle(app: &App, due: &[Due]) -> Vec<(EventId, Error)> {
    let mut by_event: HashMap<EventId, Vec<&Due>> = HashMap::new();
    for one in due {
        by_event.entry(one.event).or_default().push(one);
    }
    let settle = |(event, due)| async move { settle_event(app, event, due).await.err().map(|error| (event, error)) };
    join_all(by_event.into_iter().map(settle)).await.into_iter().flatten().collect()
}

async fn settle_event(app: &App, event: EventId, due: Vec<&Due>) -> Result<(), Error> {
    let event = app.events.get(&app.db, event).await?;
    let messages: Vec<Settlement> = due.iter().map(|due| due.settlement).collect();
    let settled = tell(app, &mut app.redis.get().await?, &event, &messages).await?;
    let told: Vec<(Uuid, i64)> = due.iter().map(|due| (due.ticket, due.settlement.version)).collect();
    db::tickets::mark_settled(&mut app.db.get().await?, &told).await?;
    app.metrics.settled.with_label_values(&[&event.id.to_string()]).inc_by(told.len() as u64);
    if let Some(concert) = event.facts().concert {
        app.rankings.touch(concert, settled.unsold == 0);
    }
    Ok(())
}

/// One script call for many messages, but never with a part of an order only: whoever looked in between would find
/// seats free that are about to be sold. Returns what was news, and what is unsold at the end.
async fn tell(
    app: &App,
    conn: &mut impl ConnectionLike,
    event: &Event,
    messages: &[Settlement],
) -> Result<Settled, Error> {
    let mut calls: Vec<Vec<Settlement>> = Vec::new();
    for party in messages.chunk_by(|one, next| one.place == next.place) {
        match calls.last_mut().filter(|call| call.len() + party.len() <= TOGETHER) {
            Some(call) => call.extend(party),
            None => calls.push(party.to_vec()),
        }
    }
    let mut all = Settled { news: 0, unsold: u64::MAX };
    for call in calls {
        let settled = app.scripts.settle(conn, &event.keys, &call).await?;
        all = Settled { news: all.news + settled.news, unsold: settled.unsold };
    }
    Ok(all)
}

/// Compares the event with the database.
pub async fn audit_step(app: &App, event: &Event) -> Result<Duration, Error> {
    match audit(app, event).await {
        Ok(_) | Err(Error::Unready) => Ok(AUDIT_EVERY),
        Err(error) => Err(error),
    }
}

/// Re-sends what Redis does not know, with its versions. Redis is read first: a sale made in between is then simply
/// sent once more. Returns how many seats were put right.
pub async fn audit(app: &App, event: &Event) -> Result<u64, Error> {
    let mut conn = app.redis.get().await?;
    let (states, versions): (Vec<u8>, HashMap<u32, i64>) = redis::pipe()
        .atomic()
        .get(event.keys.get(Key::Seats))
        .hgetall(event.keys.get(Key::Versions))
        .query_async(&mut conn)
        .await?;
    let words = db::tickets::last_words(&mut app.db.get().await?, event.id).await?;
    let words: Vec<Settlement> =
        words.iter().filter_map(|(seat, version, status, place)| settlement(*seat, *version, status, *place)).collect();

    let mut forgotten: Vec<Settlement> =
        words.iter().filter(|word| versions.get(&word.seat.0).copied().unwrap_or(0) < word.version).copied().collect();
    forgotten.sort_by_key(|word| word.place);
    let repaired = tell(app, &mut conn, event, &forgotten).await?.news;
    let label = event.id.to_string();
    if repaired > 0 {
        tracing::warn!(event = %event.id, repaired, "Redis had forgotten sales or cancels");
        app.metrics.repaired.with_label_values(&[&label]).inc_by(repaired);
    }
    let sold: HashSet<u32> = words.iter().filter(|word| word.sold).map(|word| word.seat.0).collect();
    let unexplained = (1..).zip(&states).filter(|(seat, state)| **state == b's' && !sold.contains(seat)).count();
    if unexplained > 0 {
        tracing::error!(event = %event.id, unexplained, "Redis calls seats sold that the database does not know of");
    }
    app.metrics.unexplained.with_label_values(&[&label]).set(i64::try_from(unexplained).unwrap_or(i64::MAX));
    Ok(repaired)
}
