//! Random operations on the scripts and on a plain list, side by side: after each the same people wait in the same
//! order, the same are inside, and the same was answered.
//!
//! A walk is repeated by its seed: `WALK_SEED=7 cargo test --test it lua::walk`.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use redis::AsyncCommands;
use zticket::base::ids::Place;
use zticket::event::ranks::Ranked;
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Enter, PolicySet};

use super::fixture::{Fixture, SLICE, Setup, bitmap, change};
use super::model::Model;

const STEPS: u32 = 800;
const SEATS: u32 = 120;
/// Short blocks, so that they are used up often.
const PLACES: u32 = 600;
const GAP_WAIT: i64 = 2 * SLICE / 3;

/// A copy of the event at some moment, as a file or a lagging replica has it.
struct Copy {
    model: Model,
    dump: BTreeMap<&'static str, Option<Vec<u8>>>,
}

struct Walk {
    event: Fixture,
    model: Model,
    random: Rng,
    /// Every place ever handed out, by any life.
    given: Vec<u32>,
    /// What the database knows, which no failover takes back: version and buyer of each seat.
    sales: BTreeMap<u32, (i64, Option<u32>)>,
    ceiling: u32,
    copy: Option<Copy>,
    /// What happened during the walk.
    seen: BTreeSet<String>,
}

impl Walk {
    async fn start(seed: u64) -> Self {
        println!("WALK_SEED={seed}");
        let end = PLACES;
        let event = Fixture::with(|setup| {
            setup.facts["seats"] = SEATS.into();
            setup.facts["end"] = end.into();
        })
        .await;
        let policy = Setup::default().policy;
        let model = Model::new(event.meta("now").await, policy, SEATS, end);
        let (random, ceiling) = (Rng::with_seed(seed), end);
        let (given, sales, copy, seen) = Default::default();
        Self { event, model, random, given, sales, ceiling, copy, seen }
    }

    /// A reply: "Swept(3)" and "Swept(4)" are the same sight, "Swept(0)" is another one.
    fn saw_reply(&mut self, reply: impl std::fmt::Debug) {
        let text = format!("{reply:?}");
        let word = text.split(['(', ' ']).next().unwrap();
        self.saw(&if text.ends_with("(0)") { format!("{word} 0") } else { word.to_owned() });
    }

    fn saw(&mut self, what: &str) {
        if !self.seen.contains(what) {
            self.seen.insert(what.to_owned());
        }
    }

    async fn step(&mut self, failovers: bool) {
        let now = self.model.now;
        self.event.at(now).await;
        match self.random.u32(0..1000) {
            0..250 => self.enter().await,
            250..480 => self.pulse().await,
            480..550 => self.leave().await,
            550..700 => self.let_time_pass(),
            700..800 => self.sweep().await,
            800..930 => self.admit().await,
            930..965 => self.sell().await,
            965..980 => self.change_policy().await,
            980..985 => self.next_block(false).await,
            _ => {}
        }
        if failovers && self.random.u32(0..50) == 0 {
            self.copy().await;
        }
        if failovers && self.random.u32(0..80) == 0 {
            self.fail_over().await;
        }
        self.compare().await;
    }

    async fn enter(&mut self) {
        let most = [3, 3, 30, 30, 150][self.random.usize(0..5)];
        let count = self.random.u32(1..=most);
        let expected = self.model.enter(count);
        assert_eq!(self.event.enter(count as usize).await, expected);
        match expected {
            Enter::Entered { first, count, .. } => self.given.extend(first.0..first.0 + count),
            Enter::NeedBlock => self.next_block(true).await,
            _ => {}
        }
        self.saw_reply(expected);
    }

    async fn next_block(&mut self, needed: bool) {
        let (end, follows) = (self.model.block.end, needed && self.random.bool());
        let start = if follows && end >= self.ceiling { end } else { self.fresh_block() };
        let block = start..start + PLACES;
        self.ceiling = block.end;
        self.event.block(block.start.into()..block.end.into(), None).await;
        self.model.next_block(block);
    }

    /// Sometimes far ahead, so that the front of the line gets cut off.
    fn fresh_block(&mut self) -> u32 {
        self.ceiling += if self.random.u32(0..10) == 0 { 2_200_000 } else { self.random.u32(0..5_000) };
        self.ceiling
    }

    async fn pulse(&mut self) {
        let share = [0.02, 0.3, 0.9, 1.0][self.random.usize(0..4)];
        let mut places: Vec<u32> = self.model.line.iter().map(|who| who.place).collect();
        places.retain(|_| self.random.f64() < share);
        // Some visitors whose turn is over, or who were lost, poll as well.
        let in_gap = |place: &u32| self.model.gap.places.contains(place);
        let lost: Vec<u32> = self.given.iter().copied().filter(in_gap).collect();
        for _ in 0..self.random.usize(0..20) {
            places.extend(self.random.choice(&self.given));
            places.extend(self.random.choice(&lost));
        }
        let window = places.first().map_or(0, |first| first / 8 * 8);
        let dense_if = |place: &u32| (window..window + 4096).contains(place) && !in_gap(place);
        let (crowd, mut places) = match self.random.bool() {
            true => places.into_iter().partition(dense_if),
            false => (Vec::new(), places),
        };
        places.truncate(1000);
        let expected = self.model.pulse(&crowd) + self.model.pulse(&places);
        assert_eq!(self.event.pulse_dense(window, &bitmap(window, &crowd), &places).await, expected);
        if expected > 0 {
            self.saw("Returned");
        }
    }

    async fn leave(&mut self) {
        let line = self.model.line.iter().map(|who| who.place);
        let inside = self.model.inside.keys().copied();
        let (waiting, inside): (Vec<u32>, Vec<u32>) = (line.collect(), inside.collect());
        let (first, last) = (&waiting[..waiting.len().min(1)], &waiting[waiting.len().saturating_sub(9)..]);
        let from = [&waiting, first, last, &inside, &self.given][self.random.usize(0..5)];
        let Some(place) = self.random.choice(from).copied() else { return };
        let expected = self.model.leave(place);
        assert_eq!(self.event.leave(place).await, expected);
        self.saw_reply(expected);
    }

    fn let_time_pass(&mut self) {
        let ms = match self.random.u32(0..20) {
            0..14 => self.random.i64(0..150_000),
            14..19 => self.random.i64(0..2_200_000),
            _ => self.random.i64(0..10_000_000),
        };
        self.model.now += ms;
    }

    async fn sweep(&mut self) {
        if self.random.u32(0..10) < 8 {
            self.model.now = self.model.now.max(self.model.turned + SLICE);
            self.event.at(self.model.now).await;
        }
        // Mostly servers requested sweeps all the time.
        if self.random.u32(0..10) < 9 {
            self.model.asked = self.model.now;
            self.event.set_meta("asked", self.model.now).await;
        }
        let expected = self.model.sweep();
        assert_eq!(self.event.sweep().await, expected);
        if self.model.doubts > 0 {
            self.saw("Doubts");
        }
        self.saw_reply(expected);
    }

    async fn admit(&mut self) {
        let before = self.model.clone();
        let expected = self.model.admit();
        assert_eq!(self.event.admit().await, expected);
        let inside = self.event.passes().await;
        let new = inside.keys().filter(|place| !before.inside.contains_key(place)).max();
        let still = before.line.iter().filter(|who| !inside.contains_key(&who.place) && before.present(who));
        if let (Some(last), Some(first)) = (new, still.map(|who| who.place).min()) {
            assert!(*last < first, "{last} overtook {first}, who was present");
        }
        if let Admit::Admitted(1..) = expected {
            let most = self.model.policy.max_active.min(u64::from(SEATS - self.model.sold()));
            assert!(inside.len() as u64 <= most, "{} inside, {most} allowed", inside.len());
        }
        self.saw_reply(expected);
    }

    /// A visitor inside buys, or cancels a ticket; sometimes Redis hears of it twice.
    async fn sell(&mut self) {
        let seat = self.random.u32(1..=SEATS);
        let (version, buyer) = self.sales.get(&seat).copied().unwrap_or_default();
        let place = match buyer {
            Some(place) => place,
            None => match self.random.choice(self.model.inside.keys()) {
                Some(place) => *place,
                None => return,
            },
        };
        let now = (version + 1, buyer.is_none().then_some(place));
        self.sales.insert(seat, now);
        let message = change(seat, now.0, now.1.is_some(), place);
        let expected = u64::from(self.model.settle(seat, now.0, now.1));
        assert_eq!(self.event.settle(&[message]).await, expected);
        if self.random.bool() {
            assert_eq!(self.event.settle(&[message]).await, 0);
        }
        self.saw(if now.1.is_some() { "Sold" } else { "Cancelled" });
    }

    async fn change_policy(&mut self) {
        let (field, value) = match self.random.u32(0..3) {
            0 => ("batch", self.random.u64(0..60)),
            1 => ("max_active", self.random.u64(5..80)),
            _ => ("max_queue", [0, 0, 300, 1000][self.random.usize(0..4)]),
        };
        assert_eq!(self.event.change(&[(field, &value.to_string())]).await, PolicySet::Ok);
        match field {
            "batch" => self.model.policy.batch = value,
            "max_active" => self.model.policy.max_active = value,
            _ => self.model.policy.max_queue = value,
        }
    }

    async fn copy(&mut self) {
        self.copy = Some(Copy { model: self.model.clone(), dump: self.event.dump().await });
    }

    /// Redis falls back to the copy. The database hands out a new block and repeats all sales.
    async fn fail_over(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        if !copy.model.gap.places.is_empty() {
            self.saw("FailedOverAgain");
        }
        for (key, bytes) in Key::ALL.iter().zip(Key::ALL.iter().map(|key| &copy.dump[key.name()])) {
            let key = self.event.key(*key);
            let _: () = self.event.conn().del(key).await.unwrap();
            if let Some(bytes) = bytes {
                let mut restore = redis::cmd("RESTORE");
                let _: () = restore.arg(key).arg(0).arg(&bytes[..]).query_async(&mut self.event.conn()).await.unwrap();
            }
        }
        self.model = Model { now: self.model.now, ..copy.model };
        self.event.at(self.model.now).await;
        self.event.start_new_life().await;
        assert_eq!(self.event.enter(1).await, if self.model.sold() < SEATS { Enter::Stale } else { Enter::SoldOut });
        let start = self.fresh_block();
        self.ceiling = start + PLACES;
        self.event.block(start.into()..self.ceiling.into(), Some(GAP_WAIT.cast_unsigned())).await;
        self.model.new_life(start..self.ceiling, GAP_WAIT);
        let mut messages = Vec::new();
        let mut news = 0;
        for (seat, (version, buyer)) in &self.sales {
            messages.push(change(*seat, *version, buyer.is_some(), buyer.unwrap_or(0)));
            news += u64::from(self.model.settle(*seat, *version, *buyer));
        }
        assert_eq!(self.event.settle(&messages).await, news);
        self.saw("FailedOver");
    }

    async fn compare(&mut self) {
        type Stored = (BTreeMap<String, String>, Vec<u8>, Vec<(u32, i64)>);
        let (meta, line, passes): Stored = redis::pipe()
            .hgetall(self.event.key(Key::Meta))
            .cmd("GETRANGE")
            .arg(self.event.key(Key::Line))
            .arg(0)
            .arg(-1)
            .zrange_withscores(self.event.key(Key::Passes), 0, -1)
            .query_async(&mut self.event.conn())
            .await
            .unwrap();
        let number = |field: &str| meta[field].parse::<u64>().unwrap();
        let model = &self.model;
        let line = Ranked::new(number("base"), line);
        assert_eq!(line.count(), model.line.len() as u64);
        for (rank, who) in (1..).zip(&model.line) {
            assert!(line.contains(Place(who.place)), "{who:?} waits");
            assert_eq!(line.rank(Place(who.place)), rank, "{who:?}");
        }
        for place in (0..5).filter_map(|_| self.random.choice(&self.given)) {
            assert_eq!(line.rank(Place(*place)), model.rank(*place), "{place}");
        }
        assert_eq!(passes.into_iter().collect::<BTreeMap<_, _>>(), model.inside);
        assert_eq!(number("waiting"), model.line.len() as u64);
        assert_eq!(number("head"), u64::from(model.head()));
        assert_eq!(number("next"), u64::from(model.block.start));
        assert_eq!(number("sold"), u64::from(model.sold()));
        let counts = &model.counts;
        for (field, count) in [
            ("entered", counts.entered),
            ("admitted", counts.admitted),
            ("swept", counts.swept),
            ("left", counts.left),
            ("returned", counts.returned),
            ("overdue", counts.overdue),
        ] {
            assert_eq!(number(field), count, "{field}");
        }
        model.check();
        if number("base") > 0 {
            self.saw("Trimmed");
        }
    }
}

async fn walk(seeds: &[u64], failovers: bool, sights: &[&str]) {
    let asked = std::env::var("WALK_SEED").ok().map(|seed| seed.parse().unwrap());
    let mut seen = BTreeSet::new();
    for seed in asked.as_ref().map_or(seeds, std::slice::from_ref) {
        let mut walk = Walk::start(*seed).await;
        for step in 0..STEPS {
            walk.step(failovers).await;
            if step % 100 == 0 {
                walk.event.check().await;
            }
        }
        walk.event.check().await;
        println!("saw {:?}", walk.seen);
        seen.append(&mut walk.seen);
    }
    let missed: Vec<_> = sights.iter().filter(|sight| !seen.contains(**sight)).collect();
    assert!(asked.is_some() || missed.is_empty(), "these walks see too little: {missed:?} of {seen:?}");
}

const SIGHTS: [&str; 14] = [
    "Admitted",
    "Admitted 0",
    "Cancelled",
    "Doubts",
    "Entered",
    "Full",
    "Gone",
    "Left",
    "NeedBlock",
    "Skipped",
    "Sold",
    "Swept",
    "Swept 0",
    "Trimmed",
];

#[tokio::test]
async fn the_line_behaves_like_a_plain_list() {
    walk(&[5, 19, 26, 28], false, &SIGHTS).await;
}

#[tokio::test]
async fn after_failovers_too_the_line_behaves_like_a_plain_list() {
    let sights: Vec<&str> = SIGHTS.into_iter().chain(["FailedOver", "FailedOverAgain", "Returned"]).collect();
    walk(&[3, 16, 17, 20], true, &sights).await;
}
