//! An event in a Redis of its own. Time passes by moving the event's clock, never by waiting; deadlines are long,
//! so that a slow machine makes no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::support::set_live;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use zticket::base::ids::{EventId, PersonId, Place, SeatNumber};
use zticket::base::metrics::Metrics;
use zticket::base::policy::Policy;
use zticket::base::seat::{SeatChange, SeatState};
use zticket::event::snapshot::COUNTERS;
use zticket::store::redis::keys::{Key, Keys};
use zticket::store::redis::scripts::{Admit, Enter, Hold, Holder, Leave, PolicySet, Release, Restore, RestoreArgs};
use zticket::store::redis::scripts::{NewBlock, Scripts, Sweep, Why};
use zticket_testkit::Redis;

use crate::support::app::check_redis;
use crate::support::single_redis;

pub const BLOCK: i64 = 1 << 20;
/// A quarter of the queue TTL below.
pub const SLICE: i64 = 1_000_000;
pub const PULSES: [Key; 5] = [Key::Pulse0, Key::Pulse1, Key::Pulse2, Key::Pulse3, Key::Pulse4];

pub struct Fixture {
    pub redis: Redis,
    pub scripts: Arc<Scripts>,
    pub keys: Keys,
    pub conn: MultiplexedConnection,
}

/// What an event is built from: 20 seats and the first block of places, unless changed.
pub struct Setup {
    pub policy: Policy,
    pub facts: Value,
    pub line: Vec<u32>,
    pub back: Vec<u32>,
    pub passes: Vec<(u32, u64, u64)>,
    pub holds: Vec<(u32, u32, u64)>,
    pub settled: Vec<(u32, i64, i64)>,
}

impl Default for Setup {
    fn default() -> Self {
        let policy = Policy {
            interval_ms: 100_000,
            batch: 10,
            max_active: 100,
            max_queue: 0,
            active_ttl_ms: 2_000_000,
            queue_ttl_ms: 4_000_000,
            hold_ttl_ms: 1_000_000,
            sync_interval_ms: 5_000,
            seats_per_pass: 4,
            tickets_per_person: 0,
        };
        let mut facts = json!({
            "base": 0, "next": 0, "end": BLOCK, "block": 0, "fetch": 1, "seats": 20, "gap_from": 0, "gap_to": 0, "gap_wait": 0, "tick": 0,
            "state": "open", "reason": "", "line_version": 1, "passes_version": 1, "seats_version": 1,
        });
        for counter in COUNTERS {
            facts[counter] = json!(0);
        }
        let (line, back, passes, holds, settled) = Default::default();
        Self { policy, facts, line, back, passes, holds, settled }
    }
}

impl Setup {
    pub fn args(&self) -> RestoreArgs {
        let base = u32::try_from(self.facts["base"].as_u64().unwrap()).unwrap();
        let mut policy = json!(self.policy);
        for (field, value) in
            [("version", json!(0)), ("seed", json!("")), ("slow_ttl_ms", json!(0)), ("slow_left", json!(0))]
        {
            policy[field] = value;
        }
        RestoreArgs {
            facts: self.facts.to_string(),
            policy: policy.to_string(),
            line: bitmap(base, &self.line),
            back: bitmap(base, &self.back),
            passes: json!(self.passes).to_string(),
            holds: json!(self.holds).to_string(),
            settled: json!(self.settled).to_string(),
        }
    }
}

/// A settled sale (`sold`) or cancel.
pub fn change(seat: u32, version: i64, sold: bool, place: u32) -> SeatChange {
    let state = if sold { SeatState::Sold } else { SeatState::Available };
    SeatChange { seat: SeatNumber(seat), version, state, place: Place(place) }
}

pub fn numbers(seats: &[u32]) -> Vec<SeatNumber> {
    seats.iter().copied().map(SeatNumber).collect()
}

/// In the bit order of Redis.
pub fn bitmap(base: u32, places: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; places.iter().max().map_or(0, |last| (last - base) as usize / 8 + 1)];
    for place in places {
        bytes[(place - base) as usize / 8] |= 0x80 >> ((place - base) % 8);
    }
    bytes
}

fn places(base: u32, bytes: &[u8]) -> Vec<u32> {
    let mut places = Vec::new();
    for (first, byte) in (base..).step_by(8).zip(bytes).filter(|(_, byte)| **byte != 0) {
        places.extend((0..8).filter(|bit| byte & (0x80 >> bit) != 0).map(|bit| first + bit));
    }
    places
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let redis = single_redis().await;
        let mut conn = redis.connect().await.unwrap();
        let scripts = Scripts::new(Arc::new(Metrics::new().unwrap()));
        scripts.load(&mut conn).await.unwrap();
        let fixture = Self { conn, scripts: Arc::new(scripts), keys: Keys::new(EventId::new(7).unwrap()), redis };
        fixture.rebuild(change).await;
        fixture
    }

    /// Forgets the event and builds another one.
    pub async fn rebuild(&self, change: impl FnOnce(&mut Setup)) {
        let mut setup = Setup::default();
        change(&mut setup);
        let _: () = redis::cmd("FLUSHALL").query_async(&mut self.conn()).await.unwrap();
        assert_eq!(self.restore(&setup).await, Restore::Restored);
    }

    pub fn conn(&self) -> MultiplexedConnection {
        self.conn.clone()
    }

    // The scripts.

    pub async fn enter(&self, count: usize) -> Enter {
        self.scripts.enter(&mut self.conn(), &self.keys, count).await.unwrap().outcome
    }

    /// All of them get in; returns the first place.
    pub async fn entered(&self, count: u32) -> u32 {
        match self.enter(count as usize).await {
            Enter::Entered { first, count: got, .. } if got == count => first.0,
            refused => panic!("{count} wanted to enter: {refused:?}"),
        }
    }

    /// `gap_wait`: because Redis began a new life; without it because the last block is used up.
    pub async fn block(&self, places: Range<i64>, gap_wait: Option<u64>) {
        let why = if gap_wait.is_some() { Why::NewLife } else { Why::UsedUp };
        assert!(self.new_block(places, 1, why, gap_wait.unwrap_or(0), None).await);
    }

    pub async fn new_block(
        &self,
        places: Range<i64>,
        fetch: i32,
        why: Why,
        gap_wait_ms: u64,
        parked: Option<i64>,
    ) -> bool {
        let new = NewBlock { places, fetch, why, gap_wait_ms, parked };
        self.scripts.block(&mut self.conn(), &self.keys, &new).await.unwrap()
    }

    /// Returns how many came back from the gap.
    pub async fn pulse(&self, places: &[u32]) -> u64 {
        self.pulse_dense(0, &[], places).await
    }

    pub async fn pulse_dense(&self, from: u32, dense: &[u8], places: &[u32]) -> u64 {
        self.scripts.pulse(&mut self.conn(), &self.keys, from, dense, places).await.unwrap()
    }

    pub async fn leave(&self, place: u32) -> Leave {
        self.scripts.leave(&mut self.conn(), &self.keys, Place(place)).await.unwrap()
    }

    pub async fn sweep(&self) -> Sweep {
        self.scripts.sweep(&mut self.conn(), &self.keys).await.unwrap()
    }

    /// A slice passes while servers keep requesting sweeps; the last request turns the ring.
    pub async fn turn(&self) -> Sweep {
        self.pass(SLICE + SLICE / 4).await;
        self.asked().await;
        self.sweep().await
    }

    /// As if a sweep was requested a moment before the next call.
    pub async fn asked(&self) {
        self.set_meta("asked", 1_000_000_000_000_000_i64).await;
    }

    pub async fn admit(&self) -> Admit {
        self.scripts.admit(&mut self.conn(), &self.keys).await.unwrap()
    }

    /// However short the time since the last admission.
    pub async fn admit_now(&self) -> Admit {
        self.set_meta("admitted_at", 0).await;
        self.admit().await
    }

    /// Visitors who entered and were let in.
    pub async fn inside(&self, count: u32) -> Vec<u32> {
        let before = self.policy("batch").await;
        self.set_policy("batch", 1000).await;
        let first = self.entered(count).await;
        assert_eq!(self.admit_now().await, Admit::Admitted(count.into()));
        self.set_policy("batch", before).await;
        (first..first + count).collect()
    }

    pub async fn hold(&self, place: u32, seats: &[u32]) -> Hold {
        self.hold_for(place, 0, seats).await
    }

    pub async fn hold_for(&self, place: u32, at_least: u64, seats: &[u32]) -> Hold {
        self.hold_as(None, place, at_least, seats).await
    }

    pub async fn hold_as(&self, person: Option<PersonId>, place: u32, at_least: u64, seats: &[u32]) -> Hold {
        let party = Holder { place: Place(place), person, seats: &numbers(seats) };
        self.scripts.hold(&mut self.conn(), &self.keys, at_least, &party).await.unwrap()
    }

    /// Returns the ms left.
    pub async fn held(&self, place: u32, seats: &[u32]) -> u64 {
        match self.hold(place, seats).await {
            Hold::Held { left_ms } => left_ms,
            refused => panic!("{place} wanted {seats:?}: {refused:?}"),
        }
    }

    pub async fn release(&self, place: u32, seats: &[u32]) -> Release {
        self.scripts.release(&mut self.conn(), &self.keys, Place(place), &numbers(seats)).await.unwrap()
    }

    pub async fn expire(&self, most: u64) -> u64 {
        self.scripts.expire(&mut self.conn(), &self.keys, most).await.unwrap()
    }

    pub async fn settle(&self, changes: &[SeatChange]) -> u64 {
        self.scripts.settle(&mut self.conn(), &self.keys, changes).await.unwrap().applied
    }

    pub async fn restore(&self, setup: &Setup) -> Restore {
        self.scripts.restore(&mut self.conn(), &self.keys, &setup.args()).await.unwrap()
    }

    /// What an operator decided last.
    pub async fn change(&self, changes: &[(&str, &str)]) -> PolicySet {
        set_live(&self.scripts, &mut self.conn(), &self.keys, changes).await
    }

    pub async fn decide(&self, version: i64, seed: &str, changes: &[(&str, &str)]) -> PolicySet {
        self.scripts.policy_set(&mut self.conn(), &self.keys, version, seed, changes).await.unwrap()
    }

    // Time.

    /// Event time: Redis's clock and the skew, but never before the last recorded moment.
    pub async fn now(&self) -> i64 {
        let (clock, skew, now): ((i64, i64), i64, i64) = redis::pipe()
            .cmd("TIME")
            .hget(self.key(Key::Meta), "skew")
            .hget(self.key(Key::Meta), "now")
            .query_async(&mut self.conn())
            .await
            .unwrap();
        (clock.0 * 1000 + clock.1 / 1000 + skew).max(now)
    }

    pub async fn pass(&self, ms: i64) {
        let _: () = self.conn().hincr(self.key(Key::Meta), "skew", ms).await.unwrap();
    }

    /// Time passes in which servers kept requesting sweeps.
    pub async fn pass_served(&self, ms: i64) {
        self.pass(ms).await;
        self.set_meta("asked", self.now().await).await;
    }

    /// The next call happens exactly at this event time: Redis's clock is far behind the last recorded moment.
    pub async fn at(&self, now: i64) {
        self.set_meta("skew", -100_000_000_000_000_i64).await;
        self.set_meta("now", now).await;
    }

    // What is stored.

    pub fn key(&self, key: Key) -> &str {
        self.keys.get(key)
    }

    pub async fn meta(&self, field: &str) -> i64 {
        self.conn().hget(self.key(Key::Meta), field).await.unwrap()
    }

    pub async fn meta_text(&self, field: &str) -> String {
        self.conn().hget(self.key(Key::Meta), field).await.unwrap()
    }

    pub async fn set_meta(&self, field: &str, value: impl redis::ToSingleRedisArg + Send + Sync) {
        let _: () = self.conn().hset(self.key(Key::Meta), field, value).await.unwrap();
    }

    /// As a restart from a file or a promoted replica would look: the block belongs to another life.
    pub async fn start_new_life(&self) {
        self.set_meta("life", "0123456789abcdef").await;
    }

    pub async fn policy(&self, field: &str) -> i64 {
        self.conn().hget(self.key(Key::Policy), field).await.unwrap()
    }

    pub async fn set_policy(&self, field: &str, value: i64) {
        let _: () = self.conn().hset(self.key(Key::Policy), field, value).await.unwrap();
    }

    /// The places whose bit is set.
    pub async fn bits(&self, key: Key) -> Vec<u32> {
        let base = u32::try_from(self.meta("base").await).unwrap();
        places(base, &self.bytes(key).await)
    }

    pub async fn line(&self) -> Vec<u32> {
        self.bits(Key::Line).await
    }

    pub async fn bytes(&self, key: Key) -> Vec<u8> {
        let bytes: Option<Vec<u8>> = self.conn().get(self.key(key)).await.unwrap();
        bytes.unwrap_or_default()
    }

    /// Places heard from in the current slice.
    pub async fn heard(&self) -> Vec<u32> {
        let slice = usize::try_from(self.meta("slice").await).unwrap();
        self.bits(PULSES[slice]).await
    }

    pub async fn passes(&self) -> BTreeMap<u32, i64> {
        self.scores(Key::Passes).await
    }

    pub async fn limits(&self) -> BTreeMap<u32, i64> {
        self.conn().hgetall(self.key(Key::Limits)).await.unwrap()
    }

    pub async fn hold_ends(&self) -> BTreeMap<u32, i64> {
        self.scores(Key::HoldEnds).await
    }

    pub async fn owners(&self) -> BTreeMap<u32, u32> {
        self.conn().hgetall(self.key(Key::Owners)).await.unwrap()
    }

    pub async fn seats(&self) -> String {
        self.conn().get(self.key(Key::Seats)).await.unwrap()
    }

    async fn scores(&self, key: Key) -> BTreeMap<u32, i64> {
        let scores: Vec<(u32, i64)> = self.conn().zrange_withscores(self.key(key), 0, -1).await.unwrap();
        scores.into_iter().collect()
    }

    /// Everything of the event, to see whether something was written.
    pub async fn dump(&self) -> BTreeMap<&'static str, Option<Vec<u8>>> {
        let mut dump = BTreeMap::new();
        for key in Key::ALL {
            let bytes = redis::cmd("DUMP").arg(self.key(*key)).query_async(&mut self.conn()).await.unwrap();
            dump.insert(key.name(), bytes);
        }
        dump
    }

    /// Everything the headers promise about the stored state.
    pub async fn check(&self) {
        check_redis(&mut self.conn(), &self.keys).await;
        let line = self.line().await;
        let (base, head, next, end) =
            (self.meta("base").await, self.meta("head").await, self.meta("next").await, self.meta("end").await);
        assert_eq!(head, line.first().map_or(next, |first| (*first).into()), "head is the first in the line");
        assert!(base <= head && head <= next && next <= end, "{base} {head} {next} {end}");
        assert!(line.last().is_none_or(|last| i64::from(*last) < next), "nobody has a place not yet given out");

        let (passes, limits, owners) = (self.passes().await, self.limits().await, self.owners().await);
        let waiting: BTreeSet<u32> = line.iter().copied().collect();
        assert!(passes.keys().all(|place| !waiting.contains(place)), "nobody both waits and is inside");
        let (now, seats) = (self.now().await, self.seats().await.into_bytes());
        for (seat, deadline) in self.hold_ends().await {
            let pass = passes.get(&owners[&seat]).copied().unwrap_or(0);
            assert!(pass >= deadline || deadline <= now, "a pass lasts as long as its holds");
        }
        for (seat, owner) in owners.iter().filter(|(seat, _)| seats[**seat as usize - 1] == b's') {
            let visiting = waiting.contains(owner) || passes.contains_key(owner);
            assert!(!visiting, "the buyer of {seat} is neither waiting nor inside");
        }
        for (place, limit) in limits {
            assert!(passes[&place] <= limit + 60_000, "a pass is stretched no further than its limit and one payment");
        }
    }
}
