//! Making an event ready in Redis: the first time, after Redis lost it, and when its block of places is used up or belongs
//! to an earlier life of Redis.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout_at;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::base::quiet::Quiet;
use crate::event::catalogue::Catalogue;
use crate::event::per_event::PerEvent;
use crate::event::snapshot::Snapshot;
use crate::event::tally::Count;
use crate::event::{Event, Lost};
use crate::sale::attempts::{Attempts, Hurry};
use crate::sale::blocks::Blocks;
use crate::sale::control::Controls;
use crate::sale::rebuild::{RebuiltLine, Sources};
use crate::sale::settle::Settler;
use crate::store::db::events::{Block, LARGEST_BLOCK, PLACES, SMALLEST_BLOCK, Tick};
use crate::store::db::locks::Alone;
use crate::store::redis::reads;
use crate::store::redis::scripts::{NewBlock, Restore, Why};
use crate::store::{Stores, db};

/// How long a server that may have a newer snapshot gets to restore the event itself.
const GRACE: Duration = Duration::from_secs(3);
/// How long to try before giving up.
const LONGEST_TRY: Duration = Duration::from_secs(8);
const RETRY: Duration = Duration::from_millis(100);
/// After this time another server that repairs may be frozen: then this one takes over.
const LONGEST_REPAIR: Duration = Duration::from_secs(4);
/// A block with less room than this is replaced: one call takes up to 511 places.
const ROOM: i64 = 1024;
/// A block that was used up is followed by one this many times as large.
const GROWTH: i64 = 4;
/// A snapshot this much older than the newest that any server saved is not used for places, passes and holds. Servers that
/// watch an event are never that far behind each other.
const MOST_BEHIND_MS: i64 = 2000;
/// How much longer than the longest poll lost places get to return.
const MARGIN: Duration = Duration::from_secs(1);

pub struct Restorer {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    settler: Arc<Settler>,
    pub blocks: Blocks,
    controls: Arc<Controls>,
    attempts: Attempts,
    events: PerEvent<Progress>,
    failures: Quiet<()>,
}

/// What this server knows about an event's readiness.
#[derive(Default)]
struct Progress {
    /// Whether this server has seen it ready, with the settings in force.
    prepared: AtomicBool,
}

/// How far making all events ready has come.
#[derive(Debug, Default)]
pub struct Prepared {
    pub ready: usize,
    pub failed: Vec<Error>,
    pub unfinished: usize,
}

/// What is wrong with an event in Redis.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    Fine,
    /// No more places can be given out from the block, which ends at `end`.
    NeedsBlock {
        end: i64,
        size: i64,
        why: Why,
    },
    /// Redis was restarted or promoted. The block it knows of ends at `end`.
    NewLife {
        end: i64,
    },
    Missing,
}

impl Restorer {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>, settler: Arc<Settler>, controls: Arc<Controls>) -> Self {
        let (attempts, events, failures) = (Attempts::default(), PerEvent::default(), Quiet::new());
        let blocks = Blocks::new(stores.clone());
        Self { stores, catalogue, settler, blocks, controls, attempts, events, failures }
    }

    /// Returns when the event is ready. Everyone who asks waits for the same attempt, and one server at a time repairs.
    pub async fn ready(self: &Arc<Self>, event: &Arc<Event>) -> Result<(), Error> {
        self.attempt(event, true).await
    }

    /// Starts making the event ready, unless that is under way.
    pub fn in_background(self: &Arc<Self>, event: &Arc<Event>) {
        drop(self.attempt(event, event.hot()));
    }

    fn attempt(self: &Arc<Self>, event: &Arc<Event>, urgent: bool) -> impl Future<Output = Result<(), Error>> + use<> {
        let (restorer, event) = (self.clone(), event.clone());
        self.attempts.join(&self.stores, event.id, urgent, move |hurry| async move {
            let made = restorer.prepare(&event, &hurry).await;
            event.tally.unready.store(made.is_err(), Ordering::Relaxed);
            if matches!(made, Err(Error::DatabaseBehind)) {
                event.set_lost(Lost::Places, true);
            } else if let Err(error) = &made
                && let Some(left_out) = restorer.failures.may_write(())
            {
                tracing::warn!(event = %event.id, %error, left_out, "not ready in Redis yet");
            }
            made
        })
    }

    async fn make_ready(&self, event: &Event, hurry: &Hurry) -> Result<(), Error> {
        let (mut started, mut other_since) = (None, None);
        while self.look(event).await? != Condition::Fine {
            // Checked right after a look: an event that became ready late has not failed.
            if started.is_some_and(|started: Instant| started.elapsed() > LONGEST_TRY) {
                return Err(Error::Unready);
            }
            let turn = self.attempts.turn(hurry).await?;
            let started = *started.get_or_insert_with(Instant::now);
            let repaired = self.repair_alone(event, started, &mut other_since).await?;
            drop(turn);
            if !repaired {
                tokio::time::sleep(RETRY).await;
            }
        }
        Ok(())
    }

    /// `false`: another server repairs the event, or should do it. `other_since` is when this server first saw that.
    async fn repair_alone(
        &self,
        event: &Event,
        started: Instant,
        other_since: &mut Option<Instant>,
    ) -> Result<bool, Error> {
        let Some(mut alone) = Alone::with(&self.stores.db, event.id).await? else {
            if other_since.get_or_insert_with(Instant::now).elapsed() > LONGEST_REPAIR {
                db::locks::oust(&self.stores.db, event.id).await?;
            }
            return Ok(false);
        };
        *other_since = None;
        let repaired = self.repair(event, &mut alone, started).await?;
        alone.give_back().await?;
        Ok(repaired)
    }

    /// Makes all events ready that this server has not seen ready yet. One whose part of Redis is away holds up no other.
    /// What takes longer than `patience` goes on in the background.
    pub async fn prepare_all(self: &Arc<Self>, patience: Duration) -> Prepared {
        let events = self.catalogue.all();
        let new = events.iter().filter(|event| !self.events.of(event.id).prepared.load(Ordering::Relaxed));
        let mut attempts: FuturesUnordered<_> = new.map(|event| self.attempt(event, event.hot())).collect();
        let mut prepared = Prepared::default();
        let deadline = Instant::now() + patience;
        while let Ok(Some(outcome)) = timeout_at(deadline.into(), attempts.next()).await {
            match outcome {
                Ok(()) => prepared.ready += 1,
                Err(error) => prepared.failed.push(error),
            }
        }
        prepared.unfinished = attempts.len();
        prepared
    }

    async fn prepare(&self, event: &Event, hurry: &Hurry) -> Result<(), Error> {
        self.make_ready(event, hurry).await?;
        let progress = self.events.of(event.id);
        if !progress.prepared.load(Ordering::Relaxed) {
            self.compare(event).await?;
            self.controls.put_in_force(event, &event.control()).await?;
            db::events::park(&mut self.stores.db.get().await?, event.id, None).await?;
            progress.prepared.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Notices a database that was restored from a backup and knows less than Redis.
    async fn compare(&self, event: &Event) -> Result<(), Error> {
        // Redis first: the database knows of every block that it has.
        let end = reads::block_end(&mut self.stores.redis.get().await?, &event.keys).await?.unwrap_or(0);
        let ceiling = db::events::line(&mut self.stores.db.get().await?, event.id).await?.ceiling;
        event.set_lost(Lost::Places, end > ceiling);
        event.set_lost(Lost::Sales, !self.settler.differences(event).await?.is_empty());
        Ok(())
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
        let hot = self.catalogue.all().into_iter().filter(|event| event.hot());
        let seen: Vec<_> = hot.filter_map(|event| Some((event.id, event.snapshot.load_full()?))).collect();
        let ticks: Vec<Tick> = seen.iter().map(|(event, seen)| tick(*event, seen)).collect();
        if !ticks.is_empty() {
            db::events::save_ticks(&mut self.stores.db.get().await?, &ticks).await?;
        }
        Ok(Duration::from_secs(1))
    }

    async fn look(&self, event: &Event) -> Result<Condition, Error> {
        let block = reads::block(&mut self.stores.redis.get().await?, &event.keys).await?;
        let Some((reads::Block { life, next, end, fetched }, current_life)) = block else {
            return Ok(Condition::Missing);
        };
        let refused = self.blocks.is_refused(event.id, fetched);
        // After the last place of all there is no other block.
        let used_up = next + ROOM > end && end < PLACES;
        Ok(if life != current_life {
            Condition::NewLife { end }
        } else if refused || used_up {
            let (size, why) =
                if refused { (SMALLEST_BLOCK, Why::Refused) } else { ((end - fetched.start) * GROWTH, Why::UsedUp) };
            Condition::NeedsBlock { end, size: size.clamp(SMALLEST_BLOCK, LARGEST_BLOCK), why }
        } else {
            Condition::Fine
        })
    }

    /// `false`: not yet, another server may know more.
    async fn repair(&self, event: &Event, alone: &mut Alone, started: Instant) -> Result<bool, Error> {
        match self.look(event).await? {
            Condition::Fine => {}
            Condition::NeedsBlock { end, size, why } => {
                let block =
                    db::events::fetch_block(alone.conn()?, event.id, self.blocks.known_end(event, end), size).await?;
                return self.store_block(event, &block, why, None).await;
            }
            Condition::NewLife { end } => return self.new_life(event, alone, end).await,
            Condition::Missing => return self.restore(event, alone, started).await,
        }
        Ok(true)
    }

    /// Redis came back from a file or a replica. What it lost since forms the gap, unless all servers had stopped cleanly
    /// at exactly the place it has now. `false`: it began yet another life.
    async fn new_life(&self, event: &Event, alone: &mut Alone, end: i64) -> Result<bool, Error> {
        // First: Redis may have lost the latest decision of operators, and nobody is let in before it is back.
        self.controls.put_in_force(event, &db::controls::find(alone.conn()?, event.id).await?).await?;
        let parked = db::events::line(alone.conn()?, event.id).await?.parked;
        let known_end = self.blocks.known_end(event, end);
        let block = db::events::fetch_block(alone.conn()?, event.id, known_end, SMALLEST_BLOCK).await?;
        if !self.store_block(event, &block, Why::NewLife, parked).await? {
            return Ok(false);
        }
        let repaired = self.settler.audit(event).await?;
        self.settler.recount(event);
        tracing::info!(event = %event.id, repaired, "Redis started a new life");
        Ok(true)
    }

    async fn store_block(&self, event: &Event, block: &Block, why: Why, parked: Option<i64>) -> Result<bool, Error> {
        let (places, fetch) = (block.start..block.end, block.fetch);
        let new = NewBlock { places, fetch, why, gap_wait_ms: self.gap_wait(event), parked };
        self.stores.scripts.block(&mut self.stores.redis.get().await?, &event.keys, &new).await
    }

    /// Within this time everyone who still waits has been heard from again, ms.
    fn gap_wait(&self, event: &Event) -> u64 {
        let policy = event.policy_under(&event.control());
        let seen = event.snapshot.load().as_ref().map_or(Duration::ZERO, |snapshot| snapshot.longest_poll());
        let wait = policy.longest_poll().max(seen) + policy.pulse_interval() * 2 + MARGIN;
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
    }

    async fn restore(&self, event: &Event, alone: &mut Alone, started: Instant) -> Result<bool, Error> {
        let conn = alone.conn()?;
        let row = db::events::line(conn, event.id).await?;
        let snapshot = event.snapshot.load_full();
        let own_tick = snapshot.as_deref().map_or(0, time_of);
        if own_tick < row.tick && started.elapsed() < GRACE {
            return Ok(false);
        }
        // Old news about places, passes and holds would bring back visitors who left, with seats that others have since.
        let recent = snapshot.as_deref().filter(|_| own_tick + MOST_BEHIND_MS >= row.tick);
        let block = db::events::fetch_block(conn, event.id, self.blocks.known_end(event, 0), SMALLEST_BLOCK).await?;
        let changes = db::changes::latest(conn, event.id).await?;
        let from = recent.map_or(row.undecided, |snapshot| lowest_place(snapshot).min(row.undecided));
        let buyers: HashSet<_> = db::changes::buyers(conn, event.id, from).await?.into_iter().collect();
        let control = db::controls::find(conn, event.id).await?;
        event.set_control(&control);
        let sources = Sources {
            snapshot: recent,
            last_seen: snapshot.as_deref().map(|snapshot| &snapshot.meta),
            row: &row,
            block,
            changes: &changes,
            buyers: &buyers,
            seats: event.seats.len(),
            policy: &event.policy_under(&control),
            control: &control,
            seed: &event.configured.seed(),
            gap_wait: self.gap_wait(event),
        };
        let line = RebuiltLine::new(&sources);
        let mut conn = self.stores.redis.get().await?;
        let outcome = self.stores.scripts.restore(&mut conn, &event.keys, &line.args(&sources)?).await?;
        if outcome == Restore::Restored && (row.ceiling > 0 || snapshot.is_some()) {
            let from = if recent.is_some() { "snapshot" } else { "database" };
            event.tally.add(Count::Restored, from, 1);
            let (waiting, changed) = (line.waiting.count(), changes.len());
            tracing::warn!(event = %event.id, from, waiting, changed, "restored in Redis");
        }
        Ok(true)
    }
}

fn tick(event: EventId, seen: &Snapshot) -> Tick {
    Tick { event, time: time_of(seen), undecided: i64::try_from(seen.undecided()).unwrap_or(PLACES) }
}

/// The lowest place that waits, is inside, or may return.
fn lowest_place(snapshot: &Snapshot) -> i64 {
    let inside = snapshot.passes.keys().map(|place| place.db()).min().unwrap_or(PLACES);
    i64::try_from(snapshot.undecided()).unwrap_or(PLACES).min(inside)
}

/// When a snapshot was taken, in event time, ms.
fn time_of(snapshot: &Snapshot) -> i64 {
    i64::try_from(snapshot.now_ms).unwrap_or(i64::MAX)
}
