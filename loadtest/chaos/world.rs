//! What all tasks of the run share: visitors and the answers they got, the faults and their times, broken promises.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::stage::Stage;

/// A healthy server passes a poll on to Redis within this time.
pub const PASSED_ON: Duration = Duration::from_millis(2200);
/// While all servers are left alone, one visitor at this interval tries all the same.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// How long after a fault servers may still be waiting to try again.
const AFTERMATH: Duration = Duration::from_millis(1500);

/// What must hold, whatever goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    NoSeatTwice,
    NoTicketLost,
    MoneyIsConserved,
    DatabaseAndRedisAgree,
    NobodyOvertakes,
    NeverTooManyInside,
    NothingOutlivesItsDeadline,
    PollingGetsIn,
    OrdersEnd,
    NoPlaceTwice,
    PlacesFollowPeople,
    MemoryFollowsPeople,
    NoOtherFault,
}

impl Rule {
    pub const ALL: [Self; 13] = [
        Self::NoSeatTwice,
        Self::NoTicketLost,
        Self::MoneyIsConserved,
        Self::DatabaseAndRedisAgree,
        Self::NobodyOvertakes,
        Self::NeverTooManyInside,
        Self::NothingOutlivesItsDeadline,
        Self::PollingGetsIn,
        Self::OrdersEnd,
        Self::NoPlaceTwice,
        Self::PlacesFollowPeople,
        Self::MemoryFollowsPeople,
        Self::NoOtherFault,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSeatTwice => "no seat is sold twice",
            Self::NoTicketLost => "the database has exactly the tickets that answers confirmed",
            Self::MoneyIsConserved => "nobody is charged twice, and all money is accounted for",
            Self::DatabaseAndRedisAgree => "database and Redis agree",
            Self::NobodyOvertakes => "nobody is let in before someone alive in front of them",
            Self::NeverTooManyInside => "never more inside than allowed",
            Self::NothingOutlivesItsDeadline => "no hold or pass outlives its deadline",
            Self::PollingGetsIn => "every visitor who keeps polling gets in or learns that all is sold",
            Self::OrdersEnd => "every accepted order ends, bought or failed",
            Self::NoPlaceTwice => "no place is given twice",
            Self::PlacesFollowPeople => "no repair costs more than one block of places",
            Self::MemoryFollowsPeople => "the memory of a line follows the people in it",
            Self::NoOtherFault => "no server crashes, and no answer is a 500",
        })
    }
}

/// A ticket as the answer to its buyer had it.
#[derive(Debug, Clone)]
pub struct Told {
    pub id: Uuid,
    pub seat: i32,
    pub price: i64,
    pub cancelled: bool,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Bought,
    /// Learned it while waiting, or found no seat inside.
    SoldOut,
    /// Inside, and then too slow: on purpose, or held up by a fault.
    RanOut,
    /// Left or went away on purpose.
    Gone,
    /// Sent a purchase and did not wait for the answer.
    Vanished,
    /// The place was lost while waiting.
    Expired,
    /// Not heard from long enough to lose the place.
    Silent,
    /// Lost the place, or was let in and ran out of time while Redis could not be watched.
    Unseen,
    /// The database was restored from a backup, which voids every token.
    Voided,
    StillWaiting,
}

/// A question that a server answered. It counted at some moment in between.
#[derive(Debug, Clone, Copy)]
pub struct Poll {
    pub sent: Instant,
    pub answered: Instant,
    pub server: usize,
}

impl Poll {
    /// For messages: how long before this moment it was sent and answered, and by which server.
    pub fn before(&self, at: Instant) -> (Duration, Duration, usize) {
        (at.saturating_duration_since(self.sent), at.saturating_duration_since(self.answered), self.server)
    }
}

/// A visitor, as seen from outside.
#[derive(Debug)]
pub struct Story {
    pub event: i32,
    pub place: u32,
    /// When the visitor arrived.
    pub began: Instant,
    pub entered: Instant,
    pub waiting: bool,
    /// Answers that the place still waits.
    pub polls: VecDeque<Poll>,
    pub user: Option<Uuid>,
    pub charged: i64,
    pub tickets: Vec<Told>,
    pub end: Option<End>,
}

impl Story {
    pub fn who(&self) -> (i32, u32) {
        (self.event, self.place)
    }
}

pub type Shared<T> = Arc<Mutex<T>>;

/// What a fault breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Server(usize),
    Redis,
    Postgres,
}

/// A fault that is over.
pub struct Done {
    pub name: &'static str,
    pub began: Instant,
    pub ended: Instant,
}

struct Fault {
    target: Target,
    from: Instant,
    to: Option<Instant>,
}

#[derive(Default)]
pub struct Counts {
    pub answered: AtomicU64,
    pub refused: AtomicU64,
    pub unavailable: AtomicU64,
    pub unanswered: AtomicU64,
    /// Requests to join a line, answered or not.
    pub joins: AtomicU64,
    pub lines_seen: AtomicU64,
}

pub struct World {
    pub stage: Stage,
    began: Instant,
    pub http: reqwest::Client,
    pub counts: Counts,
    pub stories: Mutex<Vec<Shared<Story>>>,
    places: Mutex<HashSet<(i32, u32)>>,
    /// Places that were seen inside.
    pub admitted: Mutex<HashSet<(i32, u32)>>,
    /// When somebody could be let in and run out of time unseen: the end of each such time.
    unseen: Mutex<Vec<Instant>>,
    violations: Mutex<BTreeMap<Rule, Vec<String>>>,
    faults: Mutex<Vec<Fault>>,
    pub faults_done: Mutex<Vec<Done>>,
    /// When each purchase was answered.
    pub sales: Mutex<Vec<Instant>>,
    /// When the database was restored from a backup.
    restored: Mutex<Option<Instant>>,
    /// Faults share it. What stops the whole sale takes it alone.
    pub calm: tokio::sync::RwLock<()>,
    /// Servers that did not answer are left alone until then, as a balancer would.
    shunned: Mutex<HashMap<usize, Instant>>,
    /// When somebody last tried a server while all were left alone.
    tried: Mutex<Option<Instant>>,
    /// Ends all tasks.
    pub over: AtomicBool,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(stage: Stage) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(3))
            .connect_timeout(Duration::from_millis(500))
            .pool_max_idle_per_host(64)
            .build()
            .unwrap_or_default();
        Self {
            stage,
            began: Instant::now(),
            http,
            counts: Counts::default(),
            stories: Mutex::default(),
            places: Mutex::default(),
            admitted: Mutex::default(),
            unseen: Mutex::default(),
            violations: Mutex::default(),
            faults: Mutex::default(),
            faults_done: Mutex::default(),
            sales: Mutex::default(),
            restored: Mutex::default(),
            calm: tokio::sync::RwLock::default(),
            shunned: Mutex::default(),
            tried: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Until then somebody could be let in and run out of time unseen.
    pub fn blind_until(&self, until: Instant) {
        lock(&self.unseen).push(until);
    }

    pub fn blind_since(&self, since: Instant) -> bool {
        lock(&self.unseen).iter().any(|until| *until > since)
    }

    pub fn violated(&self, rule: Rule, what: impl Into<String>) {
        let what = what.into();
        let mut violations = lock(&self.violations);
        let known = violations.entry(rule).or_default();
        // The same thing seen again is one violation.
        if !known.contains(&what) {
            if known.len() < 5 {
                self.say(&format!("VIOLATION: {rule}: {what}"));
            }
            known.push(what);
        }
    }

    pub fn violations(&self, rule: Rule) -> usize {
        lock(&self.violations).get(&rule).map_or(0, Vec::len)
    }

    /// Progress, with the time since the beginning.
    pub fn say(&self, what: &str) {
        eprintln!("chaos: {:6.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    /// A visitor got a place.
    pub fn entered(&self, story: &Shared<Story>) {
        let (event, place) = lock(story).who();
        if !self.is_void(lock(story).began) && !lock(&self.places).insert((event, place)) {
            self.violated(Rule::NoPlaceTwice, format!("place {place} of event {event}"));
        }
        lock(&self.stories).push(story.clone());
    }

    /// The database is about to be replaced by a backup: whatever began before does not count any more.
    pub fn void_all(&self) {
        *lock(&self.restored) = Some(Instant::now());
        // If Redis was empty at that time, nobody knew any more which places were given. Their tokens are void.
        lock(&self.places).clear();
    }

    /// Whether a visit that began then is void.
    pub fn is_void(&self, began: Instant) -> bool {
        lock(&self.restored).is_some_and(|restored| began <= restored)
    }

    /// From now on, until [`World::healed`].
    pub fn hurt(&self, target: Target) -> usize {
        let mut faults = lock(&self.faults);
        faults.push(Fault { target, from: Instant::now(), to: None });
        faults.len() - 1
    }

    pub fn healed(&self, fault: usize) {
        if let Some(fault) = lock(&self.faults).get_mut(fault) {
            fault.to = Some(Instant::now());
        }
    }

    /// Whether anything of this kind was broken at some moment in between.
    fn was_hurt(&self, targets: &[Target], from: Instant, to: Instant) -> bool {
        let within = |fault: &Fault| fault.from <= to && fault.to.is_none_or(|end| end >= from);
        lock(&self.faults).iter().any(|fault| targets.contains(&fault.target) && within(fault))
    }

    /// Whether Redis must have heard of a poll: there was time to pass it on, and no fault stood in the way.
    pub fn passed_on(&self, poll: &Poll) -> bool {
        let from = poll.sent.checked_sub(AFTERMATH).unwrap_or(poll.sent);
        let targets = [Target::Server(poll.server), Target::Redis];
        poll.answered.elapsed() >= PASSED_ON && !self.was_hurt(&targets, from, poll.answered + PASSED_ON)
    }

    pub fn any_hurt_since(&self, from: Instant) -> bool {
        lock(&self.faults).iter().any(|fault| fault.to.is_none_or(|end| end >= from))
    }

    /// `None`: all servers are shunned. Somebody tries one now and then all the same.
    pub fn pick_server(&self, rng: &mut fastrand::Rng) -> Option<usize> {
        let (now, count) = (Instant::now(), self.stage.server_count());
        let shunned = lock(&self.shunned);
        let well: Vec<usize> = (0..count).filter(|at| shunned.get(at).is_none_or(|until| *until < now)).collect();
        rng.choice(well).or_else(|| {
            let mut tried = lock(&self.tried);
            let due = tried.is_none_or(|tried| now - tried > TRY_EVERY);
            due.then(|| {
                *tried = Some(now);
                rng.usize(..count)
            })
        })
    }

    pub fn shun(&self, server: usize) {
        lock(&self.shunned).insert(server, Instant::now() + Duration::from_secs(1));
    }
}
