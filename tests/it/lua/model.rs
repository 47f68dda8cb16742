//! The line, admission and sales as plain lists, written from what is promised and not from the scripts. `walk.rs` runs
//! both side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use zticket::base::ids::Place;
use zticket::base::policy::Policy;
use zticket::store::redis::scripts::{Admit, Enter, Leave, Sweep};

/// A visitor in line.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub place: u32,
    /// Turn of the ring and time of the last sign of life.
    pub turn: u32,
    pub heard: i64,
}

/// Places lost when Redis fell back to an older copy, which may return once.
#[derive(Debug, Clone, Default)]
pub struct Gap {
    pub places: Range<u32>,
    pub opens: i64,
    pub turns: u32,
    /// Returned already, left for good, or bought.
    pub barred: BTreeSet<u32>,
    /// Handed out between two losses: never lost, so there is nothing to return from.
    pub known: Vec<Range<u32>>,
}

/// What happened so far, as the event counts it; the last two it does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub entered: u64,
    pub admitted: u64,
    pub swept: u64,
    pub left: u64,
    pub returned: u64,
    pub overdue: u64,
    pub left_line: u64,
    pub bought_in_line: u64,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub now: i64,
    pub policy: Policy,
    /// In order.
    pub line: Vec<Waiting>,
    /// Place and deadline.
    pub inside: BTreeMap<u32, i64>,
    pub block: Range<u32>,
    pub gap: Gap,
    pub turn: u32,
    pub turned: i64,
    /// When a sweep was last requested.
    pub asked: i64,
    /// Turns at which a sweep was postponed because it would drop too many.
    pub doubts: u32,
    pub admitted_at: i64,
    /// Version and buyer of each seat that was ever sold.
    pub sales: BTreeMap<u32, (i64, Option<u32>)>,
    pub seats: u32,
    pub counts: Counts,
}

impl Model {
    pub fn new(now: i64, policy: Policy, seats: u32, end: u32) -> Self {
        Self {
            now,
            policy,
            line: Vec::new(),
            inside: BTreeMap::new(),
            block: 0..end,
            gap: Gap::default(),
            turn: 0,
            turned: now,
            asked: now,
            doubts: 0,
            admitted_at: 0,
            sales: BTreeMap::new(),
            seats,
            counts: Counts::default(),
        }
    }

    pub fn sold(&self) -> u32 {
        self.sales.values().filter(|(_, buyer)| buyer.is_some()).count() as u32
    }

    /// From 1; for a visitor who does not wait, the number of those in front.
    pub fn rank(&self, place: u32) -> u64 {
        self.line.iter().filter(|other| other.place <= place).count() as u64
    }

    pub fn head(&self) -> u32 {
        self.line.first().map_or(self.block.start, |first| first.place)
    }

    /// Heard from in this slice or the one before.
    pub fn present(&self, who: &Waiting) -> bool {
        self.turn - who.turn <= 1
    }

    fn take_out(&mut self, place: u32) -> bool {
        let before = self.line.len();
        self.line.retain(|other| other.place != place);
        self.line.len() < before
    }

    /// Whether a lost visitor may return, which is allowed once: the call uses it up.
    fn use_return(&mut self, place: u32) -> bool {
        let known = self.gap.known.iter().any(|known| known.contains(&place));
        self.gap.places.contains(&place) && !known && self.gap.barred.insert(place)
    }

    pub fn enter(&mut self, asked: u32) -> Enter {
        let waiting = self.line.len() as u32;
        let most = self.policy.max_queue as u32;
        let room = if most == 0 { asked } else { most.saturating_sub(waiting) };
        let count = asked.min(room);
        if self.sold() >= self.seats {
            return Enter::SoldOut;
        }
        if count == 0 {
            return Enter::Full;
        }
        if self.block.len() < count as usize {
            return Enter::NeedBlock;
        }
        let first = self.block.start;
        let (turn, heard) = (self.turn, self.now);
        self.line.extend((first..first + count).map(|place| Waiting { place, turn, heard }));
        self.block.start += count;
        self.counts.entered += u64::from(count);
        Enter::Entered { first: Place(first), count, first_rank: u64::from(waiting) + 1 }
    }

    /// A fresh block in the same life: the rest of the last one is skipped.
    pub fn next_block(&mut self, block: Range<u32>) {
        self.block = block;
    }

    /// Redis fell back to this state, an older copy: places handed out since are lost.
    pub fn new_life(&mut self, block: Range<u32>, gap_wait: i64) {
        let before = std::mem::take(&mut self.gap);
        let (mut from, mut known) = (self.block.start, before.known);
        if !before.places.is_empty() {
            known.push(before.places.end..self.block.start);
            from = before.places.start;
        }
        let (places, opens) = (from..block.start, self.now + gap_wait);
        self.gap = Gap { places, opens, turns: 0, barred: before.barred, known };
        self.block = block;
        for who in &mut self.line {
            (who.turn, who.heard) = (self.turn, self.now);
        }
    }

    /// Returns how many came back from the gap.
    pub fn pulse(&mut self, places: &[u32]) -> u64 {
        let mut returned = 0;
        for place in places {
            let news = Waiting { place: *place, turn: self.turn, heard: self.now };
            match self.line.binary_search_by_key(place, |who| who.place) {
                Ok(at) => self.line[at] = news,
                Err(at) if self.use_return(*place) => {
                    self.line.insert(at, news);
                    returned += 1;
                }
                Err(_) => {}
            }
        }
        self.counts.returned += returned;
        returned
    }

    pub fn leave(&mut self, place: u32) -> Leave {
        let waited = self.take_out(place);
        let lost = self.use_return(place);
        let was_inside = self.inside.remove(&place).is_some();
        self.counts.left_line += u64::from(waited);
        if waited || lost || was_inside {
            self.counts.left += 1;
            Leave::Left
        } else {
            Leave::Gone
        }
    }

    /// How long nobody has requested a sweep, if that is longer than servers ever wait.
    fn silence(&self) -> i64 {
        let silence = self.now - self.asked;
        if silence <= self.policy.queue_ttl_ms.cast_signed() / 4 / 8 { 0 } else { silence }
    }

    pub fn sweep(&mut self) -> Sweep {
        let slice = (self.policy.queue_ttl_ms / 4).cast_signed();
        let silence = self.silence();
        let served = silence == 0;
        self.asked = self.now;
        if served && self.now - self.turned < slice {
            return Sweep::Skipped;
        }
        self.turned = self.now;
        if !served {
            self.gap.opens += silence;
            return Sweep::Skipped;
        }
        self.turn += 1;
        if !self.gap.places.is_empty() {
            self.gap.turns += 1;
            // The first turn may come right after the loss: four more make a TTL.
            if self.gap.turns == 5 {
                self.gap = Gap::default();
            }
        }
        // The slice that just began is empty, so the other four of five count.
        let turn = self.turn;
        let (alive, silent): (Vec<Waiting>, Vec<Waiting>) = self.line.iter().partition(|who| turn - who.turn <= 4);
        if self.line.len() > 100 && alive.len() * 2 < self.line.len() && self.doubts < 4 {
            self.doubts += 1;
            return Sweep::Skipped;
        }
        if !self.line.is_empty() {
            self.doubts = 0;
        }
        for who in &silent {
            assert!(self.now - who.heard >= 4 * slice, "{who:?} would be dropped before a TTL of silence");
        }
        self.line = alive;
        self.counts.swept += silent.len() as u64;
        Sweep::Swept(silent.len() as u64)
    }

    pub fn admit(&mut self) -> Admit {
        let before = self.inside.len();
        let now = self.now;
        self.inside.retain(|_, deadline| *deadline > now);
        self.counts.overdue += (before - self.inside.len()) as u64;
        let wait = self.admitted_at + self.policy.interval_ms.cast_signed() - now;
        if wait > 0 {
            return Admit::Skipped(wait.cast_unsigned());
        }
        let inside = self.inside.len() as u64;
        let unsold = u64::from(self.seats - self.sold());
        let room = self.policy.batch.min(self.policy.max_active.saturating_sub(inside));
        let room = room.min(unsold.saturating_sub(inside));
        let open_to = if now < self.gap.opens + self.silence() && !self.gap.places.is_empty() {
            self.gap.places.start
        } else {
            u32::MAX
        };
        let candidates = self.line.iter().filter(|who| who.place < open_to && self.present(who));
        let chosen: Vec<u32> = candidates.map(|who| who.place).take(room as usize).collect();
        for place in &chosen {
            self.take_out(*place);
            self.inside.insert(*place, now + self.policy.active_ttl_ms.cast_signed());
        }
        if !chosen.is_empty() {
            self.admitted_at = now;
        }
        self.counts.admitted += chosen.len() as u64;
        Admit::Admitted(chosen.len() as u64)
    }

    /// Whether this was news.
    pub fn settle(&mut self, seat: u32, version: i64, buyer: Option<u32>) -> bool {
        let known = self.sales.get(&seat).map_or(0, |(version, _)| *version);
        if version <= known {
            return false;
        }
        self.sales.insert(seat, (version, buyer));
        if let Some(place) = buyer {
            self.inside.remove(&place);
            self.counts.bought_in_line += u64::from(self.take_out(place));
            self.use_return(place);
        }
        true
    }

    /// Everyone who ever got a place is accounted for.
    pub fn check(&self) {
        let counts = &self.counts;
        let gone = counts.admitted + counts.swept + counts.left_line + counts.bought_in_line;
        assert_eq!(counts.entered + counts.returned, self.line.len() as u64 + gone, "{counts:?}");
    }
}
