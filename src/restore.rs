//! Making an event ready in Redis: a first time, after Redis lost it, and when a block of places is used up or belongs
//! to an earlier life of Redis.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::app::App;
use crate::bitmap::Ranked;
use crate::db;
use crate::db::events::{BLOCK, LineRow};
use crate::error::Error;
use crate::events::Event;
use crate::ids::Place;
use crate::policy::Policy;
use crate::redis::keys::Key;
use crate::redis::scripts::{PolicySet, Restore, RestoreArgs};
use crate::snapshot::{COUNTERS, Snapshot, State};
use crate::sync;

/// A server that may have a newer snapshot gets so long to restore the event itself.
const GRACE: Duration = Duration::from_secs(3);
/// How long the event is tried to be made ready before the caller is told to come back.
const PATIENCE: Duration = Duration::from_secs(8);
const RETRY: Duration = Duration::from_millis(100);
/// After a repair that failed, for instance because the database is away too.
const PAUSE: Duration = Duration::from_millis(500);
/// A block with less room than this is replaced: one call takes in 511 at most.
const ROOM: i64 = 1024;
/// Lost pulses get this much longer than the longest poll to arrive.
const MARGIN: Duration = Duration::from_secs(1);

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

/// Returns when the event is ready. One server at a time repairs it; the others wait for that.
pub async fn ready(app: &App, event: &Event) -> Result<(), Error> {
    let _repairing = event.repairing.lock().await;
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if look(app, event).await? == Condition::Fine {
            return Ok(());
        }
        // Each takes a connection, and another one for its work.
        let few = app.repairs.acquire().await;
        let repaired = db::alone(&app.db, event.id, repair(app, event, started)).await?;
        drop(few);
        if repaired != Some(true) {
            tokio::time::sleep(RETRY).await;
        }
    }
    Err(Error::Unready)
}

/// Starts to make the event ready, unless that is under way.
pub fn in_background(app: &Arc<App>, event: &Arc<Event>) {
    if event.repairing.try_lock().is_err() {
        return;
    }
    let (app, event) = (app.clone(), event.clone());
    app.runtime.clone().spawn(async move {
        if let Err(error) = ready(&app, &event).await {
            tracing::warn!(event = %event.id, %error, "not ready in Redis yet");
            // Whoever finds it unready meanwhile does not start over at once.
            let _repairing = event.repairing.lock().await;
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// Makes an event ready that this server has just heard of.
pub async fn prepare(app: &App, event: &Event) -> Result<(), Error> {
    ready(app, event).await?;
    seed(app, event).await?;
    event.set_prepared();
    Ok(())
}

/// Seeds the live settings, once per configuration.
async fn seed(app: &App, event: &Event) -> Result<(), Error> {
    let policy = &app.config.policy;
    let mut conn = app.redis.get().await?;
    match app.scripts.policy_set(&mut conn, &event.keys, &policy.seed(), &policy.fields()).await? {
        PolicySet::Ok => {}
        PolicySet::Refused(rule) => return Err(Error::Internal(format!("the configured policy was refused: {rule}"))),
    }
    db::events::park(&mut app.db.get().await?, event.id, None).await
}

/// Notes where the lines stand at a stop in good order, so that a Redis that comes back the same has lost nobody.
pub async fn park(app: &App) {
    for event in app.events.all() {
        let parked = async {
            let next: Option<i64> =
                redis::AsyncCommands::hget(&mut app.redis.get().await?, event.keys.get(Key::Meta), "next").await?;
            db::events::park(&mut app.db.get().await?, event.id, next).await
        };
        if let Err(error) = parked.await {
            tracing::warn!(event = %event.id, %error, "the stop could not be noted");
        }
    }
}

/// Saves how far the lines were seen to be.
pub async fn tick_step(app: &App) -> Result<Duration, Error> {
    let ticks: Vec<_> = app
        .events
        .all()
        .into_iter()
        .filter(|event| event.hot())
        .filter_map(|event| Some((event.id, event.snapshot.load_full()?)))
        .map(|(id, snapshot)| (id, i64::try_from(snapshot.now_ms).unwrap_or(i64::MAX), i64::from(snapshot.undecided())))
        .collect();
    if !ticks.is_empty() {
        db::events::save_ticks(&mut app.db.get().await?, &ticks).await?;
    }
    Ok(Duration::from_secs(1))
}

async fn look(app: &App, event: &Event) -> Result<Condition, Error> {
    let mut conn = app.redis.get().await?;
    type Fields = (Option<String>, Option<i64>, Option<i64>, Option<i64>);
    let ((life, next, end, waiting), has_line, info): (Fields, bool, redis::InfoDict) = redis::pipe()
        .atomic()
        .hmget(event.keys.get(Key::Meta), &["life", "next", "end", "waiting"])
        .exists(event.keys.get(Key::Line))
        .cmd("INFO")
        .arg("replication")
        .query_async(&mut conn)
        .await?;
    let (Some(life), Some(next), Some(end), Some(waiting)) = (life, next, end, waiting) else {
        return Ok(Condition::Missing);
    };
    if waiting > 0 && !has_line {
        return Ok(Condition::Missing);
    }
    if info.get::<String>("master_replid") != Some(life) {
        return Ok(Condition::NewLife { next });
    }
    Ok(if next + ROOM > end { Condition::Full } else { Condition::Fine })
}

/// `false`: not yet, another server may know more.
async fn repair(app: &App, event: &Event, started: Instant) -> Result<bool, Error> {
    match look(app, event).await? {
        Condition::Fine => {}
        Condition::Full => {
            let block = db::events::take_block(&mut app.db.get().await?, event.id).await?;
            app.scripts.block(&mut app.redis.get().await?, &event.keys, block, None).await?;
        }
        Condition::NewLife { next } => new_life(app, event, next).await?,
        Condition::Missing => return restore(app, event, started).await,
    }
    Ok(true)
}

/// Redis came back from a file or a replica. What it lost since forms the gap, unless all servers had stopped in good
/// order at exactly this place.
async fn new_life(app: &App, event: &Event, next: i64) -> Result<(), Error> {
    let mut conn = app.db.get().await?;
    let lossless = db::events::line(&mut conn, event.id).await?.parked == Some(next);
    let block = db::events::take_block(&mut conn, event.id).await?;
    drop(conn);
    let gap_wait = (!lossless).then(|| gap_wait(&policy_of(app, event)));
    app.scripts.block(&mut app.redis.get().await?, &event.keys, block, gap_wait).await?;
    let repaired = sync::audit(app, event).await?;
    // Rankings may have lost their last scores too.
    app.rankings.touch_all(event.facts().concert.into_iter());
    tracing::info!(event = %event.id, lossless, repaired, "Redis started a new life");
    Ok(())
}

fn policy_of(app: &App, event: &Event) -> Policy {
    event.snapshot.load().as_ref().map_or_else(|| app.config.policy.clone(), |snapshot| (*snapshot.policy).clone())
}

/// Within this time everyone who still waits has been heard from again.
fn gap_wait(policy: &Policy) -> u64 {
    let wait = policy.longest_poll() + policy.pulse_interval() * 2 + MARGIN;
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

async fn restore(app: &App, event: &Event, started: Instant) -> Result<bool, Error> {
    let mut conn = app.db.get().await?;
    let row = db::events::line(&mut conn, event.id).await?;
    let snapshot = event.snapshot.load_full();
    let own_tick = snapshot.as_ref().map_or(0, |snapshot| i64::try_from(snapshot.now_ms).unwrap_or(i64::MAX));
    if own_tick < row.tick && started.elapsed() < GRACE {
        return Ok(false);
    }
    let block = db::events::take_block(&mut conn, event.id).await?;
    let words = db::tickets::last_words(&mut conn, event.id).await?;
    let buyers = db::tickets::buyers(&mut conn, event.id).await?;
    drop(conn);
    let buyers: HashSet<Place> = buyers.into_iter().filter_map(Place::from_db).collect();
    let plan = match &snapshot {
        Some(snapshot) => Plan::from_snapshot(snapshot, &buyers, block.start),
        None => Plan::from_row(&row, &buyers, block.start),
    };
    let args = plan.args(app, event, &block, &words, &row, snapshot.as_deref());
    let outcome = app.scripts.restore(&mut app.redis.get().await?, &event.keys, &args).await?;
    if outcome == Restore::Restored && (row.ceiling > 0 || snapshot.is_some()) {
        let from = if snapshot.is_some() { "snapshot" } else { "database" };
        app.metrics.restores.with_label_values(&[&event.id.to_string(), from]).inc();
        tracing::warn!(event = %event.id, from, waiting = plan.line.count(), sold = words.len(), "restored in Redis");
    }
    Ok(true)
}

/// The line as it is to be rebuilt.
struct Plan {
    base: u32,
    line: Ranked,
    back: Ranked,
    /// Places that may have been handed out and are not known to be decided.
    gap: std::ops::Range<i64>,
}

impl Plan {
    /// Everyone in the snapshot keeps the place; whoever came after it is in the gap.
    fn from_snapshot(snapshot: &Snapshot, buyers: &HashSet<Place>, block_start: i64) -> Self {
        let meta = &snapshot.meta;
        let line = with_bits(&snapshot.line, buyers.iter().filter(|place| snapshot.line.contains(**place)), false);
        let gap_from = if meta.gap_to > 0 { meta.gap_from.min(meta.next) } else { meta.next };
        let back = Self::barred(Some(&snapshot.back), meta.base, gap_from, buyers);
        // Two losses become one gap. Who came in between is known, and so has no way back.
        let known: Vec<Place> = if meta.gap_to > 0 { (meta.gap_to..meta.next).map(Place).collect() } else { vec![] };
        let back = with_bits(&back, known.iter(), true);
        Self { base: meta.base, line, back, gap: i64::from(gap_from)..block_start }
    }

    /// Nothing is left but the database: all places not known to be decided are in the gap.
    fn from_row(row: &LineRow, buyers: &HashSet<Place>, block_start: i64) -> Self {
        let base = u32::try_from(row.undecided / BLOCK * BLOCK).unwrap_or(0);
        let gap_from = u32::try_from(row.undecided).unwrap_or(0);
        let gap = if row.ceiling == 0 { 0..0 } else { i64::from(gap_from)..block_start };
        let back = Self::barred(None, base, gap_from, buyers);
        Self { base, line: Ranked::new(base, Vec::new()), back, gap }
    }

    /// Who may not come back: who came back already, and who has an order.
    fn barred(before: Option<&Ranked>, base: u32, gap_from: u32, buyers: &HashSet<Place>) -> Ranked {
        let empty = Ranked::new(base, Vec::new());
        with_bits(before.unwrap_or(&empty), buyers.iter().filter(|place| place.0 >= gap_from), true)
    }

    fn args(
        &self,
        app: &App,
        event: &Event,
        block: &std::ops::Range<i64>,
        words: &[(i32, i64, String, i64)],
        row: &LineRow,
        snapshot: Option<&Snapshot>,
    ) -> RestoreArgs {
        let policy = policy_of(app, event);
        let sold: HashSet<i32> =
            words.iter().filter(|word| word.2 != db::tickets::CANCELLED).map(|word| word.0).collect();
        let buyers: HashSet<i64> = words.iter().map(|word| word.3).collect();
        let settled: Vec<(i32, i64, i64)> = words
            .iter()
            .map(|(seat, version, _, place)| (*seat, *version, if sold.contains(seat) { *place } else { -1 }))
            .collect();
        let mut passes = Vec::new();
        let mut holds = Vec::new();
        if let Some(snapshot) = snapshot {
            let left = |deadline: u64| deadline.saturating_sub(snapshot.now_ms);
            let inside = |place: &Place| !buyers.contains(&place.db());
            passes = snapshot
                .passes
                .iter()
                .filter(|(place, pass)| inside(place) && left(pass.deadline_ms) > 0)
                .map(|(place, pass)| (place.0, left(pass.deadline_ms), left(pass.limit_ms)))
                .collect();
            holds = snapshot
                .seats
                .holds
                .iter()
                .filter(|(seat, held)| {
                    !sold.contains(&seat.db())
                        && left(held.deadline_ms) > 0
                        && passes.iter().any(|(place, _, _)| *place == held.place.0)
                })
                .map(|(seat, held)| (seat.0, held.place.0, left(held.deadline_ms)))
                .collect();
        }
        let mut facts = json!({
            "base": self.base,
            "next": block.start,
            "end": block.end,
            "seats": event.seats.len(),
            "gap_from": self.gap.start,
            "gap_to": self.gap.end,
            "gap_wait": if self.gap.is_empty() { 0 } else { gap_wait(&policy) },
            "tick": snapshot.map_or(row.tick, |snapshot| i64::try_from(snapshot.now_ms).unwrap_or(i64::MAX)),
            "state": match snapshot.map(|snapshot| snapshot.meta.state) {
                None | Some(State::Open) => "open",
                Some(State::Paused) => "paused",
                Some(State::Closed) => "closed",
            },
            "reason": snapshot.map_or("", |snapshot| snapshot.meta.reason.as_str()),
            "line_version": snapshot.map_or(1, |snapshot| snapshot.meta.line_version + 1),
            "passes_version": snapshot.map_or(1, |snapshot| snapshot.meta.passes_version + 1),
            "seats_version": snapshot.map_or(1, |snapshot| snapshot.meta.seats_version + 1),
        });
        for name in COUNTERS {
            let before = snapshot.map_or(0, |snapshot| snapshot.meta.counter(name));
            let more = u64::from(name == "restores");
            if let Some(facts) = facts.as_object_mut() {
                facts.insert(name.to_owned(), json!(before + more));
            }
        }
        let mut settings = json!(policy);
        if let Some(settings) = settings.as_object_mut() {
            settings.insert("seed".to_owned(), json!(app.config.policy.seed()));
        }
        RestoreArgs {
            facts: facts.to_string(),
            policy: settings.to_string(),
            line: trimmed(self.line.bytes()),
            back: trimmed(self.back.bytes()),
            passes: json!(passes).to_string(),
            holds: json!(holds).to_string(),
            settled: json!(settled).to_string(),
        }
    }
}

/// A copy with the bits of these places set or cleared.
fn with_bits<'a>(bitmap: &Ranked, places: impl Iterator<Item = &'a Place>, set: bool) -> Ranked {
    let mut bytes = bitmap.bytes().to_vec();
    for place in places {
        let Some(at) = place.0.checked_sub(bitmap.base()) else { continue };
        let (index, mask) = ((at / 8) as usize, 0x80_u8 >> (at % 8));
        if bytes.len() <= index {
            bytes.resize(index + 1, 0);
        }
        if let Some(byte) = bytes.get_mut(index) {
            *byte = if set { *byte | mask } else { *byte & !mask };
        }
    }
    Ranked::new(bitmap.base(), bytes)
}

/// Without the zero bytes at the end, which say nothing.
fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.get(..length).unwrap_or_default().to_vec()
}
