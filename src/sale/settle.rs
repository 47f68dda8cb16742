//! Stage 4, after the sale: telling Redis what PostgreSQL sold or took back, and correcting what Redis forgot. Every step
//! can be repeated: a change that Redis knows already has no effect.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use tokio::sync::mpsc;

use crate::base::error::Error;
use crate::base::ids::{ConcertId, EventId, Place, SeatNumber};
use crate::base::lock;
use crate::base::quiet::Quiet;
use crate::base::seat::{SeatChange, SeatState};
use crate::event::catalogue::Catalogue;
use crate::event::tally::Count;
use crate::event::{Event, Lost};
use crate::store::db::changes::{self, Unsettled};
use crate::store::redis::reads;
use crate::store::redis::scripts::Settled;
use crate::store::{Stores, db};

/// Most changes in one script call.
const TOGETHER: usize = 1000;
/// Most changes that wait for a round, and most orders that wait behind them. The sweep finds those beyond.
const MOST_GATHERED: usize = 10_000;
/// Stands for the buyer of a seat that was never sold: the last place that a token can name, which is hardly ever reached.
const NOBODY: Place = Place(u32::MAX);
/// How often every event is compared with the database.
const AUDIT_EVERY: Duration = Duration::from_secs(60);

pub struct Settler {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    /// How often the sweep looks for unsettled changes.
    sweep_every: Duration,
    orders: mpsc::Sender<Vec<Unsettled>>,
    touched: Arc<Touched>,
    failures: Quiet<&'static str>,
}

/// Concerts that sold or took back something since the last look: settling adds to it, the rankings empty it.
#[derive(Default)]
pub struct Touched(Mutex<BTreeMap<ConcertId, bool>>);

impl Touched {
    /// `date_sold_out`: no seat of a date is left.
    pub fn add(&self, concert: ConcertId, date_sold_out: bool) {
        *lock(&self.0).entry(concert).or_default() |= date_sold_out;
    }

    /// What is known may be old: all of these need a new count.
    pub fn add_all(&self, concerts: impl Iterator<Item = ConcertId>) {
        concerts.for_each(|concert| self.add(concert, true));
    }

    pub fn take(&self) -> BTreeMap<ConcertId, bool> {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// A seat of which Redis knows a change that the database lost.
#[derive(Debug, Clone, Copy)]
pub struct Difference {
    pub in_redis: SeatChange,
    pub in_database: SeatChange,
}

impl Settler {
    /// Returns also the orders to settle, for [`Settler::run`].
    pub fn new(
        stores: Arc<Stores>,
        catalogue: Arc<Catalogue>,
        sweep_every: Duration,
        touched: Arc<Touched>,
    ) -> (Arc<Self>, mpsc::Receiver<Vec<Unsettled>>) {
        let (orders, waiting) = mpsc::channel(MOST_GATHERED);
        let failures = Quiet::new();
        (Arc::new(Self { stores, catalogue, sweep_every, orders, touched, failures }), waiting)
    }

    /// Has an order settled soon, off the request's path. If too many wait, the sweep takes it up.
    pub fn submit(&self, order: Vec<Unsettled>) {
        if self.orders.try_send(order).is_err()
            && let Some(left_out) = self.failures.may_write("too many")
        {
            tracing::warn!(left_out, "too many sales to settle at once: some are left to the settling sweep");
        }
    }

    /// Settles orders as they are sold. Each event has one round under way while its next round gathers: rounds are as
    /// large as the load makes them, and an event whose part of Redis is away holds up no other. The sweep takes up what
    /// fails here.
    pub async fn run(self: Arc<Self>, mut waiting: mpsc::Receiver<Vec<Unsettled>>) {
        let mut orders = Vec::new();
        let mut gathering: HashMap<EventId, Vec<Unsettled>> = HashMap::new();
        let mut under_way = HashSet::new();
        let mut rounds = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(event) = rounds.next() => drop(under_way.remove(&event)),
                count = waiting.recv_many(&mut orders, TOGETHER), if gathered(&gathering) < MOST_GATHERED => {
                    if count == 0 {
                        break;
                    }
                    for change in orders.drain(..).flatten() {
                        gathering.entry(change.event).or_default().push(change);
                    }
                }
            }
            for (event, changes) in gathering.extract_if(|event, _| under_way.insert(*event)) {
                rounds.push(self.settle_or_leave(event, changes));
            }
        }
        while rounds.next().await.is_some() {}
    }

    async fn settle_or_leave(&self, event: EventId, changes: Vec<Unsettled>) -> EventId {
        if let Err(error) = self.settle_event(event, &changes).await
            && let Some(left_out) = self.failures.may_write("failed")
        {
            tracing::warn!(%event, %error, left_out, "changes are left to the settling sweep");
        }
        event
    }

    /// One sweep: takes up whatever is not settled, whichever server sold it. An event that fails is left out of the rest
    /// of the sweep, so that the others get their turn.
    pub async fn step(&self) -> Result<Duration, Error> {
        let mut failed: Vec<EventId> = Vec::new();
        let mut outcome = Ok(self.sweep_every);
        loop {
            let (mut changes, more) = changes::unsettled(&mut self.stores.db.get().await?, &failed, TOGETHER).await?;
            // The last order may have more seats than were read: it is left to the next round, unless it is the only one.
            let (first, last) = (changes.first().map(|one| one.order), changes.last().map(|one| one.order));
            if more && first != last {
                changes.retain(|one| Some(one.order) != last);
            }
            for (event, error) in self.settle(changes).await {
                failed.push(event);
                outcome = Err(error);
            }
            if !more {
                // All that waited was taken up, whichever server had failed.
                let settled = self.catalogue.all().into_iter().filter(|event| !failed.contains(&event.id));
                settled.for_each(|event| event.tally.set_unsettled(false));
                return outcome;
            }
        }
    }

    /// Settles changes of many events. Returns where that failed.
    async fn settle(&self, changes: Vec<Unsettled>) -> Vec<(EventId, Error)> {
        let mut by_event: HashMap<EventId, Vec<Unsettled>> = HashMap::new();
        for change in changes {
            by_event.entry(change.event).or_default().push(change);
        }
        let settle = |(event, changes): (EventId, Vec<Unsettled>)| async move {
            self.settle_event(event, &changes).await.err().map(|error| (event, error))
        };
        join_all(by_event.into_iter().map(settle)).await.into_iter().flatten().collect()
    }

    /// Tells Redis, then records in the database that Redis knows.
    async fn settle_event(&self, event: EventId, unsettled: &[Unsettled]) -> Result<(), Error> {
        let event = self.catalogue.get(event).await?;
        let settled = self.tell_and_record(&event, unsettled).await;
        if settled.is_err() {
            event.tally.set_unsettled(true);
        }
        settled
    }

    async fn tell_and_record(&self, event: &Event, unsettled: &[Unsettled]) -> Result<(), Error> {
        let changes: Vec<SeatChange> = unsettled.iter().map(|one| one.change).collect();
        let settled = self.apply(&mut self.stores.redis.get().await?, event, &changes).await?;
        changes::mark_settled(&mut self.stores.db.get().await?, unsettled).await?;
        event.tally.add(Count::Settled, "", unsettled.len() as u64);
        if let Some(concert) = event.facts().concert {
            self.touched.add(concert, settled.unsold == 0);
        }
        Ok(())
    }

    /// One script call for many changes, but never with only a part of an order: an observer would see seats free that
    /// are about to be sold. Returns how many were new to Redis, and how many seats are unsold at the end.
    async fn apply(
        &self,
        conn: &mut impl ConnectionLike,
        event: &Event,
        changes: &[SeatChange],
    ) -> Result<Settled, Error> {
        let mut calls: Vec<Vec<SeatChange>> = Vec::new();
        for party in changes.chunk_by(|one, next| one.place == next.place) {
            match calls.last_mut().filter(|call| call.len() + party.len() <= TOGETHER) {
                Some(call) => call.extend(party),
                None => calls.push(party.to_vec()),
            }
        }
        let mut all = Settled { applied: 0, unsold: u64::MAX };
        for call in calls {
            let settled = self.stores.scripts.settle(conn, &event.keys, &call).await?;
            all = Settled { applied: all.applied + settled.applied, unsold: settled.unsold };
        }
        Ok(all)
    }

    /// Compares the event with the database.
    pub async fn audit_step(&self, event: &Event) -> Result<Duration, Error> {
        match self.audit(event).await {
            Ok(_) | Err(Error::Unready) => Ok(AUDIT_EVERY),
            Err(error) => Err(error),
        }
    }

    /// Re-sends what Redis does not know, with its versions. Reads Redis first: a sale made in between is then simply sent
    /// once more. Returns how many seats were corrected.
    pub async fn audit(&self, event: &Event) -> Result<u64, Error> {
        let (states, in_redis) = reads::seats(&mut self.stores.redis.get().await?, &event.keys).await?;
        let latest = db::changes::latest(&mut self.stores.db.get().await?, event.id).await?;

        let versions: HashMap<SeatNumber, i64> = in_redis.iter().map(|change| (change.seat, change.version)).collect();
        let known = |seat: SeatNumber| versions.get(&seat).copied().unwrap_or(0);
        let mut forgotten: Vec<SeatChange> =
            latest.iter().filter(|change| known(change.seat) < change.version).copied().collect();
        forgotten.sort_by_key(|change| change.place);
        let repaired = match forgotten.as_slice() {
            [] => 0,
            forgotten => self.apply(&mut self.stores.redis.get().await?, event, forgotten).await?.applied,
        };
        if repaired > 0 {
            tracing::warn!(event = %event.id, repaired, "Redis had forgotten sales or cancels");
            event.tally.add(Count::Repaired, "", repaired);
        }
        event.set_lost(Lost::Sales, !differences(in_redis, &latest).is_empty());
        let is_sold = |state: SeatState| state == SeatState::Sold;
        // Sold in the database too, or taken back there and now here.
        let explained: HashSet<SeatNumber> =
            latest.iter().filter(|change| is_sold(change.state)).chain(&forgotten).map(|change| change.seat).collect();
        let seats = states.iter().enumerate().map(|(at, state)| (SeatNumber::at(at), *state));
        let unexplained = seats.filter(|(seat, state)| is_sold(*state) && !explained.contains(seat)).count();
        if unexplained > 0 {
            tracing::error!(event = %event.id, unexplained, "Redis calls seats sold that the database does not");
        }
        event.tally.unexplained.store(unexplained as u64, Relaxed);
        Ok(repaired)
    }

    /// Seats of which Redis knows a change that the database lost: in a failover, or because it was restored from a backup.
    pub async fn differences(&self, event: &Event) -> Result<Vec<Difference>, Error> {
        // Redis first: the database knows of every change that Redis has heard of.
        let (_, in_redis) = reads::seats(&mut self.stores.redis.get().await?, &event.keys).await?;
        let latest = db::changes::latest(&mut self.stores.db.get().await?, event.id).await?;
        Ok(differences(in_redis, &latest))
    }

    /// Makes Redis follow the database where they differ. The seats get a version that is later than both.
    /// Returns how many seats that were.
    pub async fn mend(&self, event: &Event, differences: &[Difference]) -> Result<usize, Error> {
        let mut mended = 0;
        for Difference { in_redis, in_database } in differences {
            // Odd is sold, even is not: that stays.
            let version = in_redis.version + 1 + (in_redis.version + 1 - in_database.version).rem_euclid(2);
            let raised = SeatChange { version, ..*in_database };
            let mut conn = self.stores.db.get().await?;
            if db::changes::raise(&mut conn, event.id, in_database, version).await? {
                drop(conn);
                self.apply(&mut self.stores.redis.get().await?, event, &[raised]).await?;
                mended += 1;
            }
        }
        Ok(mended)
    }

    /// The rankings may have lost the last scores of this event's concert.
    pub fn recount(&self, event: &Event) {
        self.touched.add_all(event.facts().concert.into_iter());
    }
}

/// Where Redis knows a later change than the database, or the same one with another outcome. In order of the seats.
fn differences(in_redis: Vec<SeatChange>, latest: &[SeatChange]) -> Vec<Difference> {
    let latest: HashMap<SeatNumber, &SeatChange> = latest.iter().map(|change| (change.seat, change)).collect();
    let never_sold = |seat| SeatChange { seat, version: 0, state: SeatState::Available, place: NOBODY };
    let differs = |in_redis: SeatChange| {
        let in_database = latest.get(&in_redis.seat).map_or_else(|| never_sold(in_redis.seat), |change| **change);
        let same = in_redis.state == in_database.state
            && (in_redis.state != SeatState::Sold || in_redis.place == in_database.place);
        let differs = in_redis.version > in_database.version || in_redis.version == in_database.version && !same;
        differs.then_some(Difference { in_redis, in_database })
    };
    let mut differences: Vec<Difference> = in_redis.into_iter().filter_map(differs).collect();
    differences.sort_by_key(|difference| difference.in_redis.seat);
    differences
}

/// How many changes wait for their event's next round.
fn gathered(gathering: &HashMap<EventId, Vec<Unsettled>>) -> usize {
    gathering.values().map(Vec::len).sum()
}
