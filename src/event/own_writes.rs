//! What visitors changed through this server that its snapshot may not show yet, so that they see it at once.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::base::ids::{Place, SeatNumber};
use crate::base::lock;
use crate::base::seat::SeatState;
use crate::event::snapshot::Snapshot;

/// Nothing is remembered for longer, so that the memory has a bound. By then snapshots show it, unless Redis is away.
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct OwnWrites {
    places: Mutex<HashMap<Place, Write>>,
    /// How many there are. Most polls find none, and that costs them no lock.
    count: AtomicUsize,
}

struct Write {
    /// A snapshot taken later shows it, but for a sale, which Redis hears of when it is settled.
    at: Instant,
    bought: Vec<SeatNumber>,
}

/// What a snapshot lacks of what one visitor did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Whether a newer snapshot would show more.
    pub stale: bool,
    /// Seats this visitor bought, which the snapshot does not show as sold.
    pub bought: Vec<SeatNumber>,
}

impl OwnWrites {
    /// This visitor changed something just now.
    pub fn note(&self, place: Place) {
        self.change(place, |_| {});
    }

    pub fn bought(&self, place: Place, seats: &[SeatNumber]) {
        self.change(place, |write| write.bought.extend(seats));
    }

    /// The ticket for this seat was taken back.
    pub fn cancelled(&self, place: Place, seat: SeatNumber) {
        self.change(place, |write| write.bought.retain(|bought| *bought != seat));
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Write)) {
        let mut places = lock(&self.places);
        let write = places.entry(place).or_insert_with(|| Write { at: Instant::now(), bought: Vec::new() });
        write.at = Instant::now();
        change(write);
        self.count.store(places.len(), Ordering::Release);
    }

    pub fn unseen(&self, place: Place, snapshot: &Snapshot) -> Unseen {
        if self.count.load(Ordering::Acquire) == 0 {
            return Unseen::default();
        }
        let places = lock(&self.places);
        let Some(write) = places.get(&place) else { return Unseen::default() };
        Unseen { stale: write.at > snapshot.taken, bought: unsettled(write, snapshot).collect() }
    }

    /// Forgets what this snapshot shows.
    pub fn forget(&self, snapshot: &Snapshot) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut places = lock(&self.places);
        places.retain(|_, write| {
            let unseen = write.at > snapshot.taken || unsettled(write, snapshot).next().is_some();
            unseen && write.at.elapsed() < LONGEST
        });
        self.count.store(places.len(), Ordering::Release);
    }
}

/// The seats of a sale that the snapshot does not show as sold.
fn unsettled<'a>(write: &'a Write, snapshot: &'a Snapshot) -> impl Iterator<Item = SeatNumber> + 'a {
    let state = |seat: SeatNumber| snapshot.seats.states.get(seat.index()?).copied();
    write.bought.iter().copied().filter(move |seat| state(*seat) != Some(SeatState::Sold))
}
