//! What a sale was like in the last hour. Every server adds to it; the charts and counts of the console come from it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Mutex;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::event::snapshot::Snapshot;
use crate::event::tally::Count;
use crate::store::db::figures::Figures;
pub use crate::store::db::figures::Point;
use crate::store::db::refusals::Refused;
use crate::store::{Stores, db};

/// How often a point is saved for the charts.
const POINT_EVERY: Duration = Duration::from_secs(5);
const LONGEST: u32 = 60;

/// How often something was refused in the last hour, by the code of the error.
pub type RefusedBy = BTreeMap<String, i64>;

pub struct History {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    /// How much of what this server refused is in the database, by event and reason.
    saved: Mutex<HashMap<(EventId, &'static str), u64>>,
}

impl History {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>) -> Self {
        Self { stores, catalogue, saved: Mutex::default() }
    }

    /// The figures of the last minutes, oldest first.
    pub async fn points(&self, event: &Event, minutes: u32) -> Result<Vec<Point>, Error> {
        if !(1..=LONGEST).contains(&minutes) {
            return Err(Error::InvalidRequest(format!("minutes is a number from 1 to {LONGEST}.")));
        }
        let id = event.id;
        self.stores.query(move |conn| db::figures::lately(conn, id, minutes).boxed()).await
    }

    /// What was refused to those who wanted to join, hold or buy, for each of these events.
    pub async fn refused(&self, events: Vec<EventId>) -> Result<HashMap<EventId, RefusedBy>, Error> {
        let mut refused: HashMap<EventId, RefusedBy> = events.iter().map(|event| (*event, RefusedBy::new())).collect();
        let query = self.stores.query(move |conn| async move { db::refusals::lately(conn, &events).await }.boxed());
        let rows = query.await?;
        for row in rows {
            if let Some(of_event) = EventId::try_from(row.event_id).ok().and_then(|event| refused.get_mut(&event)) {
                of_event.insert(row.reason, row.times);
            }
        }
        Ok(refused)
    }

    /// One round of saving.
    pub async fn step(&self) -> Result<Duration, Error> {
        let events = self.catalogue.all();
        self.save_figures(&events).await?;
        self.save_refused(&events).await?;
        Ok(POINT_EVERY)
    }

    async fn save_figures(&self, events: &[Arc<Event>]) -> Result<(), Error> {
        let awake = events.iter().filter(|event| event.hot());
        let seen: Vec<Figures> =
            awake.filter_map(|event| Some(figures(event, event.snapshot.load_full().as_deref()?))).collect();
        if !seen.is_empty() {
            let mut conn = self.stores.db.get().await?;
            db::figures::save(&mut conn, &seen).await?;
            db::figures::forget_old(&mut conn).await?;
        }
        Ok(())
    }

    async fn save_refused(&self, events: &[Arc<Event>]) -> Result<(), Error> {
        let mut saved = self.saved.lock().await;
        let (mut refused, mut totals) = (Vec::new(), Vec::new());
        for event in events {
            for ((_, reason), total) in
                event.tally.totals().into_iter().filter(|((what, _), _)| *what == Count::Refused)
            {
                let before = saved.get(&(event.id, reason)).copied().unwrap_or(0);
                // An event that was taken off the programme and put on again counts anew.
                let times = if total < before { total } else { total - before };
                totals.push(((event.id, reason), total));
                if times > 0 {
                    refused.push(Refused { event: event.id, reason, times });
                }
            }
        }
        if refused.is_empty() {
            return Ok(());
        }
        let mut conn = self.stores.db.get().await?;
        // If the answer to this gets lost, it is saved twice.
        db::refusals::add(&mut conn, &refused).await?;
        saved.extend(totals);
        db::refusals::forget_old(&mut conn).await
    }
}

fn figures(event: &Event, snapshot: &Snapshot) -> Figures {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let meta = &snapshot.meta;
    Figures {
        event: event.id,
        waiting: number(meta.waiting),
        inside: number(snapshot.passes.len() as u64),
        held: number(snapshot.seats.count(SeatState::Held)),
        sold: number(meta.sold),
        entered: number(meta.counter("entered")),
        admitted: number(meta.counter("admitted")),
        swept: number(meta.counter("swept")),
    }
}
