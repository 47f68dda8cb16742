//! How long someone will wait, as a range that can be believed.
//!
//! A place gets free when somebody inside is done: has bought, leaves, or runs out of time. So the wait depends on how
//! long people stay inside, not on the pace of the last minute: quick buyers leave at once, and those who sit idle pile
//! up behind them. The estimator keeps a life table of stays, with those still inside counted as far as they have come.
//! From it, the people inside now, the limits in force, the seats left, and the shares of the line that are absent or give
//! up, it projects how many will be let in by when, once with stays as short and once as long as the table allows. A range is
//! shown only if the two agree well enough to be of use.

use std::collections::HashMap;

use crate::base::ids::Place;
use crate::base::policy::Policy;

/// The life table has this many rows up to the longest possible stay.
const ROWS: usize = 120;
/// Steps of a projection. Beyond them the last pace goes on.
const MOST_STEPS: usize = 1500;
/// What was seen long ago counts less: by half after this many of the longest stays.
const HALF_LIFE: f64 = 2.0;
/// Chance alone makes counts differ by this many times their root.
const CHANCE: f64 = 1.3;
/// How far off the table may be although much was seen: crowds change.
const DOUBT: f64 = 0.12;
/// Of those who get where nobody has been yet, this share may leave in every row.
const AT_ONCE: f64 = 0.15;
/// Share of the line that may be giving up unseen, per ms: three in a thousand a minute.
const UNSEEN: f64 = 0.003 / 60_000.0;
/// A range is of use if its end is at most this many times its beginning, or if it is short.
const WIDEST: f64 = 2.5;
/// Of the longest stay.
const SHORT: f64 = 0.1;

/// The right to be inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    pub deadline_ms: u64,
    /// The latest moment it can be extended to.
    pub limit_ms: u64,
}

/// What a server sees of an event that matters for waiting.
pub struct Seen<'a> {
    /// Event time, ms.
    pub now_ms: u64,
    pub passes: &'a HashMap<Place, Pass>,
    pub policy: &'a Policy,
    pub waiting: u64,
    /// Of those who wait, how many are passed over for now.
    pub absent: u64,
    /// Places that left the line or were dropped from it, since the event began.
    pub gave_up: u64,
    pub seats_left: u64,
    /// Whether people are let in.
    pub open: bool,
}

impl Seen<'_> {
    /// How many wait and are not passed over. Whoever wants to know how long is one of them.
    fn present(&self) -> f64 {
        self.waiting.saturating_sub(self.absent).max(1) as f64
    }
}

/// The stays that were seen, and who is inside.
#[derive(Clone, Default)]
pub struct Estimator {
    /// When each person inside came in, ms.
    inside: HashMap<Place, u64>,
    /// How many stays ended in each row of the table; old ones count less.
    ended: Vec<f64>,
    /// The length of a row, ms.
    row_ms: f64,
    /// Tickets sold per person who went out.
    sold: Share,
    /// Share of the line that gives up, per ms.
    giving_up: Share,
    last: Option<Last>,
}

/// A quotient of two sums in which old parts count less.
#[derive(Debug, Default, Clone, Copy)]
struct Share {
    part: f64,
    of: f64,
}

impl Share {
    fn add(&mut self, part: f64, of: f64) {
        self.part += part;
        self.of += of;
    }

    fn fade(&mut self, by: f64) {
        self.part *= by;
        self.of *= by;
    }

    fn value(self) -> f64 {
        if self.of > 0.0 { self.part / self.of } else { 0.0 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Last {
    now_ms: u64,
    waiting: u64,
    gave_up: u64,
    seats_left: u64,
}

/// When how many will have been let in.
#[derive(Debug, Clone)]
pub struct Outlook {
    soon: Curve,
    late: Curve,
    /// Share of the line that is not passed over.
    present: f64,
    /// A range of at most this many seconds is shown however wide it is.
    short: f64,
}

/// The wait of a rank, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub low: u64,
    pub high: u64,
}

impl Outlook {
    /// `None` while nobody can tell.
    pub fn range(&self, rank: u64) -> Option<Range> {
        // Whoever asks is present; of those in front, some are not.
        let rank = 1.0 + rank.saturating_sub(1) as f64 * self.present;
        let chance = CHANCE * rank.sqrt();
        let low = self.soon.time_of((rank - chance).max(0.0))?;
        let high = self.late.time_of(rank + chance)?.max(low);
        let useful = high <= low.max(1.0) * WIDEST || high - low <= self.short;
        useful.then_some(Range { low: low as u64, high: high.ceil() as u64 + 1 })
    }
}

/// How many of the line are done, step by step: let in, or given up in front of those who are.
#[derive(Debug, Clone)]
struct Curve {
    step: f64,
    done: Vec<f64>,
    /// Whether the seats are gone at its end.
    ends: bool,
    /// Whether the whole line is through at its end.
    whole: bool,
}

impl Curve {
    /// Seconds until this many are done. `None`: the seats are gone before, or nobody is let in.
    fn time_of(&self, rank: f64) -> Option<f64> {
        let at = self.done.partition_point(|done| *done < rank);
        if let Some(done) = self.done.get(at) {
            let before = at.checked_sub(1).and_then(|before| self.done.get(before)).copied().unwrap_or(0.0);
            let part = if *done > before { (rank - before) / (done - before) } else { 1.0 };
            return Some((at as f64 + part) * self.step);
        }
        let (last, steps) = (*self.done.last()?, self.done.len());
        let middle = *self.done.get(steps / 2)?;
        let pace = (last - middle) / (steps - steps / 2).max(1) as f64;
        // A short line is through before it has a pace. Its last rank with room for chance is a little more than it has.
        let nearly = self.whole && rank - last <= 1.0 + CHANCE * rank.sqrt();
        let later = if pace > 0.0 { Some((rank - last) / pace) } else { nearly.then_some(0.0) };
        later.filter(|_| !self.ends).map(|later| (steps as f64 + later) * self.step)
    }
}

impl Estimator {
    /// Takes in what is seen now, and says what to expect. `None`: not enough was seen yet, or nobody is let in.
    pub fn observe(&mut self, seen: &Seen) -> Option<Outlook> {
        self.fit_rows(seen.policy);
        self.count(seen);
        (seen.open && seen.waiting > 0).then(|| self.outlook(seen)).flatten()
    }

    /// What to expect if these settings were in force.
    pub fn outlook_under(mut self, seen: &Seen) -> Option<Outlook> {
        self.fit_rows(seen.policy);
        (seen.open && seen.waiting > 0).then(|| self.outlook(seen)).flatten()
    }

    /// Makes the table as long as the longest possible stay.
    fn fit_rows(&mut self, policy: &Policy) {
        let row_ms = ((policy.active_ttl_ms + policy.hold_ttl_ms) as f64 / ROWS as f64).max(1.0);
        if self.ended.is_empty() {
            self.ended = vec![0.0; ROWS];
        } else if (row_ms - self.row_ms).abs() > f64::EPSILON {
            let old = std::mem::replace(&mut self.ended, vec![0.0; ROWS]);
            for (row, count) in old.into_iter().enumerate() {
                let moved = ((row as f64 + 0.5) * self.row_ms / row_ms) as usize;
                if let Some(ended) = self.ended.get_mut(moved.min(ROWS - 1)) {
                    *ended += count;
                }
            }
        }
        self.row_ms = row_ms;
    }

    /// The row in whose course a stay of this length ends: a projection lets it end with the row.
    fn last_row(&self, stay_ms: u64) -> usize {
        ((stay_ms as f64 / self.row_ms - 0.5) as usize).min(ROWS - 1)
    }

    /// The row that someone enters who has been inside for this long.
    fn next_row(&self, age_ms: u64) -> usize {
        ((age_ms as f64 / self.row_ms + 0.5) as usize).min(ROWS - 1)
    }

    /// Counts who came in, who went out, and who gave up since the last look.
    fn count(&mut self, seen: &Seen) {
        let longest_stay = seen.policy.active_ttl_ms + seen.policy.hold_ttl_ms;
        let mut known = std::mem::take(&mut self.inside);
        // After a long time without a look nobody knows when people went out.
        let longest_break = (2.0 * self.row_ms).max(5000.0);
        let blind = self.last.is_some_and(|last| seen.now_ms.saturating_sub(last.now_ms) as f64 > longest_break);
        if blind {
            known.retain(|place, _| seen.passes.contains_key(place));
        }
        let (mut gone, mut stays) = (0_u64, Vec::new());
        for (place, since) in &known {
            if !seen.passes.contains_key(place) {
                gone += 1;
                stays.push(seen.now_ms.saturating_sub(*since));
            }
        }
        for stay in stays {
            let row = self.last_row(stay);
            if let Some(ended) = self.ended.get_mut(row) {
                *ended += 1.0;
            }
        }
        let since = |place: &Place, pass: &Pass| {
            // A pass tells when it was given, unless the settings changed since.
            let given = pass.limit_ms.saturating_sub(longest_stay);
            known.get(place).copied().unwrap_or(if given <= seen.now_ms { given } else { seen.now_ms })
        };
        self.inside = seen.passes.iter().map(|(place, pass)| (*place, since(place, pass))).collect();

        if let Some(last) = self.last {
            let time = seen.now_ms.saturating_sub(last.now_ms) as f64;
            let fade = 0.5_f64.powf(time / (HALF_LIFE * longest_stay as f64));
            self.ended.iter_mut().for_each(|count| *count *= fade);
            self.sold.fade(fade);
            self.giving_up.fade(fade);
            if !blind {
                self.sold.add(last.seats_left.saturating_sub(seen.seats_left) as f64, gone as f64);
                self.giving_up.add(seen.gave_up.saturating_sub(last.gave_up) as f64, last.waiting as f64 * time);
            }
        }
        let Seen { now_ms, waiting, gave_up, seats_left, .. } = *seen;
        self.last = Some(Last { now_ms, waiting, gave_up, seats_left });
    }

    fn outlook(&self, seen: &Seen) -> Option<Outlook> {
        let mut ages = vec![0.0; ROWS];
        for since in self.inside.values() {
            if let Some(age) = ages.get_mut(self.next_row(seen.now_ms.saturating_sub(*since))) {
                *age += 1.0;
            }
        }
        let (soon, late) = self.leaving(&ages, seen.policy);
        // Whoever stops asking is dropped only later, so more may be giving up than was seen.
        let giving_up = self.giving_up.value();
        let soon = self.project(seen, &ages, &soon, giving_up * 1.5 + UNSEEN)?;
        let late = self.project(seen, &ages, &late, giving_up / 1.5)?;
        let present = seen.present() / seen.waiting.max(1) as f64;
        Some(Outlook { soon, late, present, short: SHORT * self.row_ms * ROWS as f64 / 1000.0 })
    }

    /// The chance to leave in each row, for those who got there: as high and as low as what was seen allows.
    fn leaving(&self, ages: &[f64], policy: &Policy) -> (Vec<f64>, Vec<f64>) {
        // Counted from the longest stay down: how many were seen in each row, and how many left there.
        let mut reached = vec![0.0; ROWS];
        let mut sum = 0.0;
        for row in (0..ROWS).rev() {
            let (ended, age) = (at(&self.ended, row), at(ages, row));
            // People still inside a row have seen about half of it.
            if let Some(reached) = reached.get_mut(row) {
                *reached = sum + ended + age / 2.0;
            }
            sum += ended + age;
        }
        let total: f64 = self.ended.iter().sum();
        let doubt = 1.0 + DOUBT + 1.0 / (1.0 + total).sqrt();
        let deadline = self.last_row(policy.active_ttl_ms);
        let (mut soon, mut late) = (Vec::with_capacity(ROWS), Vec::with_capacity(ROWS));
        let (mut recent_left, mut recent_reached) = (0.0, 0.0);
        for row in 0..ROWS {
            let (ended, reached) = (at(&self.ended, row), at(&reached, row));
            // What a few did says little: the rows before speak with them.
            let before = if recent_reached > 0.0 { recent_left / recent_reached } else { 0.0 };
            let trust = reached / (reached + 4.0);
            let own = if reached > 0.0 { ended / reached } else { 0.0 };
            let chance = trust * own + (1.0 - trust) * before;
            let unknown = 1.0 - trust;
            // Where nobody has been yet, people may leave at once, or stay until their time is over.
            let (mut fast, mut slow) = (chance * doubt + unknown * AT_ONCE, chance / (doubt + 3.0 * unknown));
            if row >= deadline {
                (fast, slow) = (fast.max(unknown), slow.max(unknown * 0.5));
            }
            soon.push(fast.min(1.0));
            late.push(slow.min(1.0));
            (recent_left, recent_reached) = (recent_left * 0.8 + ended, recent_reached * 0.8 + reached);
        }
        (soon, late)
    }

    fn project(&self, seen: &Seen, ages: &[f64], leaving: &[f64], giving_up: f64) -> Option<Curve> {
        let step = self.row_ms;
        let mut ages = ages.to_vec();
        let mut inside: f64 = ages.iter().sum();
        let (mut line, mut seats) = (seen.present(), seen.seats_left as f64);
        let (tickets, giving_up) = (self.sold.value().max(0.0), giving_up * step);
        let most_inside = seen.policy.max_active as f64;
        let most_let_in = seen.policy.batch as f64 * step / seen.policy.interval_ms.max(1) as f64;
        let (mut done, mut weight, mut sum) = (Vec::new(), 1.0, 0.0);
        while line > 0.5 && seats >= 0.5 && done.len() < MOST_STEPS {
            let mut out = 0.0;
            let mut older = 0.0;
            for (age, leaving) in ages.iter_mut().zip(leaving) {
                let left = *age * leaving;
                out += left;
                older = std::mem::replace(age, older) - left;
            }
            // Nobody stays longer than the last row.
            out += older;
            inside -= out;
            seats -= out * tickets;
            let room = (most_inside.min(seats) - inside).max(0.0);
            let let_in = room.min(most_let_in).min(line);
            if let Some(first) = ages.first_mut() {
                *first = let_in;
            }
            inside += let_in;
            line = (line - let_in) * (1.0 - giving_up).max(0.0);
            // Those who give up in front of a rank bring it forward: each let in counts for as many as stood there once.
            sum += let_in * weight;
            weight /= (1.0 - giving_up).max(0.5);
            done.push(sum);
        }
        (sum > 0.0).then_some(Curve { step: step / 1000.0, done, ends: seats < 0.5, whole: line <= 0.5 })
    }
}

fn at(table: &[f64], row: usize) -> f64 {
    table.get(row).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BEGIN: u64 = 1_000_000;

    /// People inside, each of whom stays as long as `stay` says, in front of an endless line.
    struct House<F> {
        policy: Policy,
        stay: F,
        passes: HashMap<Place, Pass>,
        let_in: u32,
        now_ms: u64,
    }

    impl<F: Fn(u32) -> u64> House<F> {
        fn new(policy: Policy, stay: F) -> Self {
            Self { policy, stay, passes: HashMap::new(), let_in: 0, now_ms: BEGIN }
        }

        fn second(&mut self) {
            self.now_ms += 1000;
            let (policy, now_ms) = (&self.policy, self.now_ms);
            self.passes.retain(|place, pass| pass.deadline_ms - policy.active_ttl_ms + (self.stay)(place.0) > now_ms);
            while (self.passes.len() as u64) < policy.max_active {
                let deadline_ms = now_ms + policy.active_ttl_ms;
                let limit_ms = deadline_ms + policy.hold_ttl_ms;
                self.passes.insert(Place(self.let_in), Pass { deadline_ms, limit_ms });
                self.let_in += 1;
            }
        }

        /// Watches it once a second.
        fn watch(&mut self, seconds: u64) -> (Estimator, Option<Outlook>) {
            let (mut estimator, mut outlook) = (Estimator::default(), None);
            for second in 1..=seconds {
                self.second();
                // Looking ahead costs more than looking.
                let open = second == seconds;
                let seen = Seen { now_ms: self.now_ms, passes: &self.passes, open, ..endless(&self.policy) };
                outlook = estimator.observe(&seen);
            }
            (estimator, outlook)
        }

        /// How many seconds it really takes until this many more are let in.
        fn wait_of(&mut self, rank: u32) -> u64 {
            let (began, until) = (self.now_ms, self.let_in + rank);
            while self.let_in < until {
                self.second();
            }
            (self.now_ms - began) / 1000
        }
    }

    fn watched(policy: &Policy, seconds: u64, stay: impl Fn(u32) -> u64) -> (Estimator, Option<Outlook>) {
        House::new(policy.clone(), stay).watch(seconds)
    }

    fn endless(policy: &Policy) -> Seen<'_> {
        static NOBODY: std::sync::LazyLock<HashMap<Place, Pass>> = std::sync::LazyLock::new(HashMap::new);
        let (waiting, seats_left) = (100_000, 1_000_000);
        Seen { now_ms: BEGIN, passes: &NOBODY, policy, waiting, absent: 0, gave_up: 0, seats_left, open: true }
    }

    #[test]
    fn nothing_is_said_before_anyone_was_seen_to_leave() {
        let policy = Policy::default();
        let (_, outlook) = watched(&policy, 5, |_| 60_000);
        assert_eq!(outlook.unwrap().range(1000), None);
    }

    fn right_about(rank: u32, after: u64, stay: impl Fn(u32) -> u64) {
        let mut house = House::new(Policy::default(), stay);
        let (_, outlook) = house.watch(after);
        let range = outlook.unwrap().range(rank.into());
        let wait = house.wait_of(rank);
        assert!(range.is_some_and(|range| (range.low..=range.high).contains(&wait)), "{range:?} lacks {wait}");
    }

    #[test]
    fn people_who_stay_a_minute_let_in_the_next_ones_every_minute() {
        let stay = |place: u32| 40_000 + u64::from(place.wrapping_mul(7919) % 40) * 1000;
        right_about(2000, 600, stay);
        right_about(150, 130, stay);
    }

    #[test]
    fn people_who_sit_idle_are_waited_for_until_their_time_is_over() {
        // Half of them buy within half a minute. The pace of the first minutes says nothing about the tenth.
        let stay = |place: u32| if place.is_multiple_of(2) { 300_000 } else { 20_000 + u64::from(place % 7) * 2000 };
        right_about(500, 250, stay);
        right_about(3000, 400, stay);
        right_about(150, 250, |_| 300_000);
    }

    #[test]
    fn a_rank_behind_the_last_seat_is_promised_nothing() {
        let policy = Policy::default();
        let (mut estimator, _) = watched(&policy, 600, |_| 60_000);
        let mut seen = Seen { now_ms: BEGIN + 601_000, ..endless(&policy) };
        let passes: HashMap<Place, Pass> = HashMap::new();
        (seen.passes, seen.seats_left) = (&passes, 300);
        estimator.sold = Share { part: 2.0, of: 1.0 };
        let outlook = estimator.observe(&seen).unwrap();
        assert!(outlook.range(10).is_some());
        assert_eq!(outlook.range(5000), None);
    }

    #[test]
    fn those_who_are_passed_over_hold_nobody_up() {
        let policy = Policy::default();
        let (estimator, _) = watched(&policy, 600, |_| 60_000);
        let now = Seen { now_ms: BEGIN + 601_000, waiting: 2001, ..endless(&policy) };
        let all_there = estimator.clone().observe(&now).unwrap().range(1001).unwrap();
        let half_there = estimator.clone().observe(&Seen { absent: 1000, ..now }).unwrap().range(2001).unwrap();
        assert_eq!(half_there.low / 10, all_there.low / 10);
        let now = Seen { now_ms: BEGIN + 601_000, waiting: 2001, ..endless(&policy) };
        let alone = estimator.clone().observe(&Seen { absent: 2000, ..now }).unwrap().range(2001).unwrap();
        assert!(alone.high < 10, "{alone:?}");
    }

    #[test]
    fn while_nobody_is_let_in_nobody_can_tell() {
        let policy = Policy::default();
        let (mut estimator, _) = watched(&policy, 300, |_| 60_000);
        let paused = Seen { now_ms: BEGIN + 301_000, open: false, ..endless(&policy) };
        assert!(estimator.observe(&paused).is_none());
    }

    #[test]
    fn a_change_of_settings_keeps_what_was_seen() {
        let policy = Policy::default();
        let (mut estimator, _) = watched(&policy, 600, |_| 60_000);
        let before: f64 = estimator.ended.iter().sum();
        let longer = Policy { active_ttl_ms: 900_000, ..policy };
        estimator.observe(&Seen { now_ms: BEGIN + 600_001, ..endless(&longer) });
        assert!(estimator.ended.iter().sum::<f64>() > before * 0.9);
        let row = estimator.last_row(60_000);
        assert!(estimator.ended.get(row - 1..=row + 1).unwrap().iter().sum::<f64>() > before * 0.9);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn a_range_is_in_order_and_nobody_waits_less_than_those_in_front(
            stay in 1_000..400_000_u64,
            max_active in 1..500_u64,
            ranks in proptest::collection::vec(1..1_000_000_u64, 2..20),
        ) {
            let policy = Policy { max_active, batch: max_active, ..Policy::default() };
            let (_, outlook) = watched(&policy, 400, |_| stay.min(300_000));
            let Some(outlook) = outlook else { return Ok(()) };
            let mut ranks = ranks;
            ranks.sort_unstable();
            let ranges: Vec<Range> = ranks.iter().filter_map(|rank| outlook.range(*rank)).collect();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].low <= pair[1].low && pair[0].high <= pair[1].high);
            }
            prop_assert!(ranges.iter().all(|range| range.low < range.high));
        }

        #[test]
        fn any_settings_are_taken_without_a_panic(
            active_ttl_ms: u64, hold_ttl_ms: u64, max_active: u64, batch: u64, interval_ms: u64,
            waiting: u64, seats_left: u64, gave_up: u64, now_ms: u64, rank: u64,
        ) {
            let (active_ttl_ms, hold_ttl_ms) = (active_ttl_ms >> 20, hold_ttl_ms >> 20);
            let policy = Policy { active_ttl_ms, hold_ttl_ms, max_active, batch, interval_ms, ..Policy::default() };
            let passes = HashMap::from([(Place(1), Pass { deadline_ms: now_ms / 2, limit_ms: now_ms })]);
            let mut estimator = Estimator::default();
            for now_ms in [now_ms / 2, now_ms] {
                let seen = Seen { now_ms, passes: &passes, policy: &policy, waiting, absent: 0, gave_up, seats_left, open: true };
                if let Some(outlook) = estimator.observe(&seen) {
                    let _ = (outlook.range(rank), outlook.range(1));
                }
            }
        }
    }
}
