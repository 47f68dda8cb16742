//! The metrics of events, made at each scrape from what this server knows about them. Only the busiest events have series of
//! their own: ten thousand of them would drown whoever stores the series.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, Opts, Registry};

use crate::base::lock;
use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::snapshot::Snapshot;
use crate::event::tally::{Count, Totals};

/// Events with series of their own.
const MOST: usize = 50;
/// The label of all others together.
const OTHERS: &str = "other";

/// Name and help of each counter, and the label of its kinds.
const COUNTERS: [(Count, &str, &str, Option<&str>); 15] = [
    (
        Count::Refused,
        "refused_total",
        "Requests to join, hold or buy that this server refused, by error code.",
        Some("reason"),
    ),
    (Count::TicketsSold, "tickets_sold_total", "Tickets sold by this server.", None),
    (Count::TicketsCancelled, "tickets_cancelled_total", "Tickets cancelled by this server.", None),
    (Count::Settled, "settled_total", "Sales and cancels that this server settled in Redis.", None),
    (
        Count::Repaired,
        "audit_repaired_total",
        "Seats whose sale or cancel Redis had forgotten, corrected from the database.",
        None,
    ),
    (Count::Restored, "restores_total", "Events rebuilt in Redis by this server, by source.", Some("from")),
    (Count::HoldsOverdue, "holds_overdue_total", "Holds that this server ended because their time was over.", None),
    (
        Count::Estimates,
        "estimates_total",
        "People let in, by how that compares with the wait they were first told.",
        Some("outcome"),
    ),
    (
        Count::ScoredWait,
        "scored_wait_seconds_total",
        "Time that those people waited (real), and that they were first told (low, high), together.",
        Some("wait"),
    ),
    (Count::Entered, "entered_total", "People who joined the line. Every server reports the same.", None),
    (Count::Admitted, "admitted_total", "People let in. Every server reports the same.", None),
    (
        Count::Swept,
        "swept_total",
        "Places dropped because nobody asked about them. Every server reports the same.",
        None,
    ),
    (Count::GaveUp, "gave_up_total", "Places given up. Every server reports the same.", None),
    (Count::PassesOverdue, "passes_overdue_total", "Passes that ran out. Every server reports the same.", None),
    (
        Count::SweepsSkipped,
        "sweeps_skipped_total",
        "Sweeps skipped because they would have dropped more than half of a line. Every server reports the same.",
        None,
    ),
];

/// What is known of an event at the scrape.
struct Look {
    event: Arc<Event>,
    snapshot: Option<Arc<Snapshot>>,
}

type Value = fn(&Look) -> Option<f64>;
type Merge = fn(f64, f64) -> f64;

/// Name and help of each gauge, its value, and how the values of many events become one.
const GAUGES: [(&str, &str, Value, Merge); 13] = [
    ("waiting", "People waiting.", |look| look.number(|seen| seen.meta.waiting), add),
    ("inside", "People inside.", |look| look.number(|seen| seen.passes.len() as u64), add),
    ("max_inside", "The most people that may be inside.", |look| look.number(|seen| seen.policy.max_active), add),
    ("seats_held", "Seats held.", |look| look.number(|seen| seen.seats.count(SeatState::Held)), add),
    ("seats_sold", "Seats sold.", |look| look.number(|seen| seen.meta.sold), add),
    ("seats_available", "Seats available.", |look| look.number(|seen| seen.seats.available), add),
    (
        "orders_pending",
        "Orders that are accepted and not decided yet.",
        |look| look.number(|seen| seen.frozen.len() as u64),
        add,
    ),
    (
        "snapshot_age_seconds",
        "Age of the latest snapshot of an event that somebody asks about.",
        |look| Some(look.snapshot.as_ref().filter(|_| look.event.hot())?.age().as_secs_f64()),
        f64::max,
    ),
    (
        "settling_lag_seconds",
        "For how long this server has failed to settle a sale or cancel in Redis. Each server has its own.",
        |look| Some(look.event.tally.settling_lag().as_secs_f64()),
        f64::max,
    ),
    (
        "push_streams",
        "Push streams open on this server.",
        |look| Some(look.event.tally.streams.load(Relaxed) as f64),
        add,
    ),
    (
        "audit_unexplained",
        "Seats that Redis calls sold and the database does not. Anything but 0 needs a person to look.",
        |look| Some(look.event.tally.unexplained.load(Relaxed) as f64),
        add,
    ),
    (
        "event_needs_repair",
        "1 while nothing can be sold: the event is not ready in Redis, or the database lacks what Redis knows.",
        |look| Some(f64::from(u8::from(look.event.needs_repair()))),
        add,
    ),
    (
        "estimate_score",
        "Share of people let in within the wait they were first told, of those that this server judged since it started.",
        |look| look.event.scores.share(),
        f64::min,
    ),
];

fn add(one: f64, other: f64) -> f64 {
    one + other
}

impl Look {
    /// From the snapshot, which is renewed only while somebody asks: an old number would stay for ever.
    fn number(&self, value: impl Fn(&Snapshot) -> u64) -> Option<f64> {
        self.snapshot.as_deref().filter(|_| self.event.hot()).map(|snapshot| value(snapshot) as f64)
    }

    fn totals(&self) -> Totals {
        let mut totals = self.event.tally.totals();
        if let Some(snapshot) = &self.snapshot {
            for (count, name) in [
                (Count::Entered, "entered"),
                (Count::Admitted, "admitted"),
                (Count::Swept, "swept"),
                (Count::GaveUp, "left"),
                (Count::PassesOverdue, "overdue"),
                (Count::SweepsSkipped, "sweeps_skipped"),
            ] {
                totals.insert((count, ""), snapshot.meta.counter(name));
            }
        }
        totals
    }

    /// How many people it has, if anybody asks about it.
    fn people(&self) -> u64 {
        let people = |seen: &Arc<Snapshot>| seen.meta.waiting + seen.passes.len() as u64;
        self.snapshot.as_ref().filter(|_| self.event.hot()).map_or(0, people)
    }
}

/// Remembers what was shown, so that no total of the others ever falls.
#[derive(Default)]
pub struct Scrape(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    /// Events with series of their own.
    own: HashSet<u32>,
    /// The totals of every event at the last scrape.
    last: HashMap<u32, Totals>,
    /// What the others counted together, whichever they were at the time.
    others: Totals,
}

impl Scrape {
    pub fn families(&self, events: Vec<Arc<Event>>) -> Result<Vec<MetricFamily>, prometheus::Error> {
        let look = |event: Arc<Event>| Look { snapshot: event.snapshot.load_full(), event };
        let mut looks: Vec<Look> = events.into_iter().map(look).collect();
        let mut memory = lock(&self.0);
        // Whoever has series keeps them until others are twice as busy, or every event would have them in the course of time.
        let rank = |look: &Look| {
            let (own, people) = (memory.own.contains(&look.event.id.get()), look.people());
            (Reverse(if own { people * 2 + 1 } else { people }), look.event.id)
        };
        looks.sort_by_cached_key(rank);
        let others = looks.split_off(looks.len().min(MOST));
        memory.update(&looks, &others);
        let registry = Registry::new();
        gauges(&registry, &looks, &others)?;
        counters(&registry, &looks, &memory.others)?;
        Ok(registry.gather())
    }
}

impl Memory {
    fn update(&mut self, own: &[Look], others: &[Look]) {
        self.own = own.iter().map(|look| look.event.id.get()).collect();
        let mut last = HashMap::new();
        for look in own.iter().chain(others) {
            let (id, totals) = (look.event.id.get(), look.totals());
            if !self.own.contains(&id) {
                let before = self.last.get(&id);
                for (key, total) in &totals {
                    let unseen = if key.0.in_redis() { *total } else { 0 };
                    let before = before.and_then(|before| before.get(key)).copied().unwrap_or(unseen);
                    // If Redis was rebuilt from an old copy, its counters begin anew.
                    let risen = if *total < before { *total } else { total - before };
                    *self.others.entry(*key).or_default() += risen;
                }
            }
            last.insert(id, totals);
        }
        self.last = last;
    }
}

fn gauges(registry: &Registry, own: &[Look], others: &[Look]) -> Result<(), prometheus::Error> {
    for (name, help, value, merge) in GAUGES {
        let gauge = GaugeVec::new(Opts::new(format!("zticket_{name}"), help), &["event"])?;
        for (look, value) in own.iter().filter_map(|look| Some((look, value(look)?))) {
            gauge.with_label_values(&[&look.event.id.to_string()]).set(value);
        }
        if let Some(value) = others.iter().filter_map(value).reduce(merge) {
            gauge.with_label_values(&[OTHERS]).set(value);
        }
        registry.register(Box::new(gauge))?;
    }
    Ok(())
}

fn counters(registry: &Registry, own: &[Look], others: &Totals) -> Result<(), prometheus::Error> {
    let own: Vec<(String, Totals)> = own.iter().map(|look| (look.event.id.to_string(), look.totals())).collect();
    for (count, name, help, kind) in COUNTERS {
        let labels: Vec<&str> = std::iter::once("event").chain(kind).collect();
        let counter = IntCounterVec::new(Opts::new(format!("zticket_{name}"), help), &labels)?;
        let events = own.iter().map(|(event, totals)| (event.as_str(), totals)).chain([(OTHERS, others)]);
        for (event, totals) in events {
            if kind.is_none() && event != OTHERS && !count.in_redis() {
                counter.with_label_values(&[event]);
            }
            for ((_, of_kind), total) in totals.iter().filter(|((counted, _), _)| *counted == count) {
                let values: Vec<&str> = std::iter::once(event).chain(kind.map(|_| *of_kind)).collect();
                counter.with_label_values(&values).inc_by(*total);
            }
        }
        registry.register(Box::new(counter))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hall::Hall;
    use crate::base::ids::EventId;
    use crate::base::policy::Policy;
    use crate::base::token::MasterKeys;
    use crate::event::facts::tests::always_open;

    fn event(id: u32) -> Arc<Event> {
        let (hall, master) = (Hall::new(Vec::new()), MasterKeys { current: [7; 32], previous: None });
        let id = EventId::new(id).unwrap();
        Arc::new(Event::new(id, Vec::new(), hall, uuid::Uuid::nil(), &master, always_open(), &Policy::default()))
    }

    /// The values of a metric by the event it is about.
    fn values(families: &[MetricFamily], name: &str) -> HashMap<String, f64> {
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let value = |metric: &prometheus::proto::Metric| {
            let event = metric.get_label().iter().find(|label| label.name() == "event").unwrap();
            (event.value().to_owned(), metric.get_counter().get_value() + metric.get_gauge().get_value())
        };
        family.get_metric().iter().map(value).collect()
    }

    #[test]
    fn only_the_busiest_have_series_of_their_own_and_no_total_ever_falls() {
        let events: Vec<Arc<Event>> = (1..=80).map(event).collect();
        let scrape = Scrape::default();
        let sold = || values(&scrape.families(events.clone()).unwrap(), "zticket_tickets_sold_total");
        let sell = |at: usize| events[at].tally.add(Count::TicketsSold, "", 1);
        (0..80).for_each(sell);
        let first = sold();
        assert_eq!((first.len(), first["1"], first["other"]), (51, 1.0, 30.0));
        (0..80).for_each(sell);
        let second = sold();
        assert_eq!((second.len(), second["1"], second["other"]), (51, 2.0, 60.0));
        // The last thirty are the busiest now, and the first thirty become others.
        let memory = || lock(&scrape.0);
        let busy = |own: std::ops::Range<u32>| memory().own = own.collect();
        busy(31..81);
        (0..80).for_each(sell);
        let third = sold();
        assert_eq!((third.len(), third["80"], third.get("1")), (51, 3.0, None));
        assert_eq!(third["other"], 90.0, "what the first thirty sold before was shown as their own");
        busy(1..51);
        (0..80).for_each(sell);
        let fourth = sold();
        assert_eq!((fourth["1"], fourth["other"]), (4.0, 120.0));
    }
}
