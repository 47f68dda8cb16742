//! Making an event ready in Redis: the first time, after Redis lost it, and when its block of places is used up or belongs
//! to an earlier life of Redis.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{Mutex, Semaphore};

use crate::base::error::Error;
use crate::base::policy::Policy;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::event::per_event::PerEvent;
use crate::sale::rebuild::{RebuiltLine, Sources};
use crate::sale::settle::Settler;
use crate::store::redis::reads::{self, Block};
use crate::store::redis::scripts::{PolicySet, Restore};
use crate::store::{Stores, db};

/// How long a server that may have a newer snapshot gets to restore the event itself.
const GRACE: Duration = Duration::from_secs(3);
/// How long to try before giving up.
const LONGEST_TRY: Duration = Duration::from_secs(8);
const RETRY: Duration = Duration::from_millis(100);
/// After a failed repair, for instance because the database is away too.
const PAUSE: Duration = Duration::from_millis(500);
/// A block with less room than this is replaced: one call takes up to 511 places.
const ROOM: i64 = 1024;
/// How much longer than the longest poll lost places get to return.
const MARGIN: Duration = Duration::from_secs(1);
/// How many events are repaired at once: each takes two database connections.
const REPAIRS_AT_ONCE: usize = 4;

pub struct Restorer {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    settler: Arc<Settler>,
    /// Seeds the live settings of every event.
    policy: Policy,
    repairs: Semaphore,
    events: PerEvent<Progress>,
}

/// How far an event is.
#[derive(Default)]
struct Progress {
    /// Held by the task that repairs the event.
    repairing: Mutex<()>,
    /// Whether this server has seen it ready, with its settings seeded.
    prepared: AtomicBool,
}

/// What is wrong with an event in Redis.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Fine,
    /// The block of places is used up.
    Full,
    /// Redis was restarted or promoted. `next` is the next place it knows of.
    NewLife {
        next: i64,
    },
    Missing,
}

impl Restorer {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>, settler: Arc<Settler>, policy: Policy) -> Self {
        let repairs = Semaphore::new(REPAIRS_AT_ONCE);
        Self { stores, catalogue, settler, policy, repairs, events: PerEvent::default() }
    }

    /// Returns when the event is ready. One server at a time repairs it; the others wait.
    pub async fn ready(&self, event: &Event) -> Result<(), Error> {
        let progress = self.events.of(event.id);
        let _repairing = progress.repairing.lock().await;
        let started = Instant::now();
        while started.elapsed() < LONGEST_TRY {
            if self.look(event).await? == Condition::Fine {
                return Ok(());
            }
            let few = self.repairs.acquire().await;
            let repaired = db::locks::alone(&self.stores.db, event.id, self.repair(event, started)).await?;
            drop(few);
            if repaired != Some(true) {
                tokio::time::sleep(RETRY).await;
            }
        }
        Err(Error::Unready)
    }

    /// Starts making the event ready, unless that is under way.
    pub fn in_background(self: &Arc<Self>, event: &Arc<Event>) {
        let progress = self.events.of(event.id);
        if progress.repairing.try_lock().is_err() {
            return;
        }
        let (restorer, event) = (self.clone(), event.clone());
        self.stores.spawn(async move {
            if let Err(error) = restorer.ready(&event).await {
                tracing::warn!(event = %event.id, %error, "not ready in Redis yet");
                // Callers that find it unready in this time do not start over at once.
                let _repairing = progress.repairing.lock().await;
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    /// Makes all events ready that are not yet, each by itself: one whose part of Redis is away is left for the next time.
    pub async fn prepare_all(&self) -> Vec<Result<(), Error>> {
        let events = self.catalogue.all();
        let new = events.iter().filter(|event| !self.events.of(event.id).prepared.load(Ordering::Relaxed));
        join_all(new.map(|event| self.prepare(event))).await
    }

    /// Makes an event ready that this server has just heard of.
    async fn prepare(&self, event: &Event) -> Result<(), Error> {
        self.ready(event).await?;
        self.seed(event).await?;
        self.events.of(event.id).prepared.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Seeds the live settings, once per configuration.
    async fn seed(&self, event: &Event) -> Result<(), Error> {
        let mut conn = self.stores.redis.get().await?;
        let (seed, fields) = (self.policy.seed(), self.policy.fields());
        match self.stores.scripts.policy_set(&mut conn, &event.keys, &seed, &fields).await? {
            PolicySet::Ok => {}
            PolicySet::Refused(rule) => {
                return Err(Error::Internal(format!("Redis refused the configured policy: {rule}")));
            }
        }
        db::events::park(&mut self.stores.db.get().await?, event.id, None).await
    }

    /// Records where the lines stand at a clean stop: a Redis that comes back the same has lost nobody.
    pub async fn park(&self) {
        for event in self.catalogue.all() {
            let parked = async {
                let next = reads::next_place(&mut self.stores.redis.get().await?, &event.keys).await?;
                db::events::park(&mut self.stores.db.get().await?, event.id, next).await
            };
            if let Err(error) = parked.await {
                tracing::warn!(event = %event.id, %error, "the clean stop could not be recorded");
            }
        }
    }

    /// Saves how far this server saw the lines.
    pub async fn tick_step(&self) -> Result<Duration, Error> {
        let ticks: Vec<_> = self
            .catalogue
            .all()
            .into_iter()
            .filter(|event| event.hot())
            .filter_map(|event| Some((event.id, event.snapshot.load_full()?)))
            .map(|(id, seen)| (id, i64::try_from(seen.now_ms).unwrap_or(i64::MAX), i64::from(seen.undecided())))
            .collect();
        if !ticks.is_empty() {
            db::events::save_ticks(&mut self.stores.db.get().await?, &ticks).await?;
        }
        Ok(Duration::from_secs(1))
    }

    async fn look(&self, event: &Event) -> Result<Condition, Error> {
        let block = reads::block(&mut self.stores.redis.get().await?, &event.keys).await?;
        let Some((Block { life, next, end }, current_life)) = block else { return Ok(Condition::Missing) };
        Ok(if life != current_life {
            Condition::NewLife { next }
        } else if next + ROOM > end {
            Condition::Full
        } else {
            Condition::Fine
        })
    }

    /// `false`: not yet, another server may know more.
    async fn repair(&self, event: &Event, started: Instant) -> Result<bool, Error> {
        match self.look(event).await? {
            Condition::Fine => {}
            Condition::Full => {
                let block = db::events::take_block(&mut self.stores.db.get().await?, event.id).await?;
                let mut conn = self.stores.redis.get().await?;
                self.stores.scripts.block(&mut conn, &event.keys, block, None).await?;
            }
            Condition::NewLife { next } => self.new_life(event, next).await?,
            Condition::Missing => return self.restore(event, started).await,
        }
        Ok(true)
    }

    /// Redis came back from a file or a replica. What it lost since forms the gap, unless all servers had stopped cleanly
    /// at exactly this place.
    async fn new_life(&self, event: &Event, next: i64) -> Result<(), Error> {
        let mut conn = self.stores.db.get().await?;
        let lossless = db::events::line(&mut conn, event.id).await?.parked == Some(next);
        let block = db::events::take_block(&mut conn, event.id).await?;
        drop(conn);
        let gap_wait = (!lossless).then(|| gap_wait(&self.policy_of(event)));
        let mut conn = self.stores.redis.get().await?;
        self.stores.scripts.block(&mut conn, &event.keys, block, gap_wait).await?;
        // The audit takes a connection of its own.
        drop(conn);
        let repaired = self.settler.audit(event).await?;
        self.settler.recount(event);
        tracing::info!(event = %event.id, lossless, repaired, "Redis started a new life");
        Ok(())
    }

    fn policy_of(&self, event: &Event) -> Policy {
        event.snapshot.load().as_ref().map_or_else(|| self.policy.clone(), |snapshot| (*snapshot.policy).clone())
    }

    async fn restore(&self, event: &Event, started: Instant) -> Result<bool, Error> {
        let mut conn = self.stores.db.get().await?;
        let row = db::events::line(&mut conn, event.id).await?;
        let snapshot = event.snapshot.load_full();
        let own_tick = snapshot.as_ref().map_or(0, |snapshot| i64::try_from(snapshot.now_ms).unwrap_or(i64::MAX));
        if own_tick < row.tick && started.elapsed() < GRACE {
            return Ok(false);
        }
        let block = db::events::take_block(&mut conn, event.id).await?;
        let changes = db::changes::latest(&mut conn, event.id).await?;
        let buyers: HashSet<_> = db::changes::buyers(&mut conn, event.id).await?.into_iter().collect();
        drop(conn);
        let policy = self.policy_of(event);
        let sources = Sources {
            snapshot: snapshot.as_deref(),
            row: &row,
            block,
            changes: &changes,
            buyers: &buyers,
            seats: event.seats.len(),
            policy: &policy,
            seed: self.policy.seed(),
            gap_wait: gap_wait(&policy),
        };
        let line = RebuiltLine::new(&sources);
        let mut conn = self.stores.redis.get().await?;
        let outcome = self.stores.scripts.restore(&mut conn, &event.keys, &line.args(&sources)?).await?;
        if outcome == Restore::Restored && (row.ceiling > 0 || snapshot.is_some()) {
            let from = if snapshot.is_some() { "snapshot" } else { "database" };
            self.stores.metrics.restores.with_label_values(&[&event.id.to_string(), from]).inc();
            let (waiting, changed) = (line.waiting.count(), changes.len());
            tracing::warn!(event = %event.id, from, waiting, changed, "restored in Redis");
        }
        Ok(true)
    }
}

/// Within this time everyone who still waits has been heard from again, ms.
fn gap_wait(policy: &Policy) -> u64 {
    let wait = policy.longest_poll() + policy.pulse_interval() * 2 + MARGIN;
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
