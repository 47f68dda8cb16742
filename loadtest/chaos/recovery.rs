//! How soon the sale goes on: after each kind of fault, and after the last one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::world::Done;

/// A sale that comes later than this had no buyer before, rather than a fault behind it.
const LONGEST: Duration = Duration::from_secs(60);

/// What is known about one kind of fault.
pub struct Row {
    pub name: &'static str,
    pub times: usize,
    /// From its beginning to the next sale, each sorted: how soon somebody could buy again.
    pub to_next_sale: Vec<Duration>,
}

/// One row for each kind of fault that happened.
pub fn rows(done: &[Done], sales: &[Instant]) -> Vec<Row> {
    let mut rows: BTreeMap<&'static str, Row> = BTreeMap::new();
    for fault in done {
        let row = rows.entry(fault.name).or_insert(Row { name: fault.name, times: 0, to_next_sale: Vec::new() });
        row.times += 1;
        let next = sales.iter().filter(|sale| **sale > fault.began).min();
        row.to_next_sale.extend(next.map(|next| *next - fault.began).filter(|time| *time <= LONGEST));
    }
    let mut rows: Vec<Row> = rows.into_values().collect();
    rows.iter_mut().for_each(|row| row.to_next_sale.sort_unstable());
    rows
}

/// From the end of the last fault to the normal pace: the end of the first second with at least half as many sales as the
/// average second of the half minute that follows the first five. `None` if nobody was left to buy.
pub fn to_normal_pace(done: &[Done], sales: &[Instant]) -> Option<Duration> {
    let last = done.iter().map(|fault| fault.ended).max()?;
    let between = |from: Instant, to: Instant| sales.iter().filter(|sale| **sale >= from && **sale < to).count();
    let second = Duration::from_secs(1);
    let (from, mut to) = (last + 5 * second, last + 35 * second);
    to = to.min(*sales.iter().max()?);
    let normal = between(from, to) as f64 / to.checked_duration_since(from)?.as_secs_f64().max(1.0);
    if normal < 1.0 {
        return None;
    }
    let ends = (0..600).map(|tenth| last + second + tenth * second / 10);
    ends.into_iter().find(|end| between(*end - second, *end) as f64 >= normal / 2.0).map(|end| end - last)
}
