//! Every read of Redis. What must be of one moment is read by MULTI and EXEC or, where a full Redis refuses that, by a
//! script that only reads. What it means is for others to say.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use redis::aio::ConnectionLike;
use redis::{FromRedisValue, InfoDict, Pipeline, RedisError, Value};

use crate::base::error::Error;
use crate::base::ids::{ConcertId, Fetched, OrderId, PersonId, Place, SeatNumber};
use crate::base::request::Request;
use crate::base::seat::{SeatChange, SeatState};
use crate::store::redis::keys::{Key, Keys};
use crate::store::redis::scripts;

pub type Hash = HashMap<String, String>;

/// The hash `meta`, with Redis's clock.
pub struct MetaRead {
    pub clock_ms: u64,
    /// Empty if the event is not there.
    pub meta: Hash,
}

/// Which bytes of the line to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinePart {
    Nothing,
    Whole,
    /// Bytes around the head, and from `tail` on.
    Ends {
        front: Range<u64>,
        tail: u64,
    },
}

/// Which parts of an event to read besides `meta`.
pub struct Wanted {
    pub line: LinePart,
    pub passes: bool,
    pub seats: bool,
    pub policy: bool,
    pub buyers: bool,
}

/// The parts that were read, all of one moment; `None` where a part was not wanted.
pub struct PartsRead {
    pub meta: MetaRead,
    pub line: Option<LineBytes>,
    pub passes: Option<PassesRead>,
    pub seats: Option<SeatsRead>,
    pub policy: Option<Hash>,
    /// The place that holds or bought each seat.
    pub owners: Option<HashMap<u32, u32>>,
}

#[derive(Debug)]
pub enum LineBytes {
    Whole { line: Vec<u8>, back: Vec<u8> },
    Ends { front: Vec<u8>, tail: Vec<u8> },
}

pub struct PassesRead {
    /// Place and deadline, ms.
    pub deadlines: Vec<(Place, u64)>,
    /// Place and the latest moment its pass can be extended to, ms.
    pub limits: HashMap<u32, u64>,
    /// Places whose order waits.
    pub frozen: Vec<(Place, Frozen)>,
}

/// An order that waits, and the deadlines that its place had when its clock was stopped, ms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    pub order: OrderId,
    pub at: u64,
    pub pass_ends: u64,
    pub limit: u64,
    pub holds: Vec<(SeatNumber, u64)>,
}

impl Frozen {
    /// From a record in Redis.
    fn parse(record: &str) -> Option<Self> {
        let mut words = record.split(' ');
        let order = words.next()?.parse().ok()?;
        let mut words = words.skip(3);
        let mut number = || words.next()?.parse().ok();
        let (at, pass_ends, limit) = (number()?, number()?, number()?);
        let hold = |word: &str| {
            let (seat, deadline) = word.split_once(':')?;
            Some((seat.parse().ok()?, deadline.parse().ok()?))
        };
        Some(Self { order, at, pass_ends, limit, holds: words.filter_map(hold).collect() })
    }
}

#[derive(Debug)]
pub struct SeatsRead {
    pub states: Vec<SeatState>,
    /// Seat and deadline of its hold, ms.
    pub hold_ends: Vec<(SeatNumber, u64)>,
    /// The place that holds each held seat.
    pub holders: BTreeMap<SeatNumber, Place>,
}

/// The block of places that an event hands out.
pub struct Block {
    /// The life of Redis that the block of places belongs to.
    pub life: String,
    pub next: i64,
    pub end: i64,
    pub fetched: Fetched,
}

/// `meta`, and whether the line exists.
pub async fn meta(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<(MetaRead, bool), Error> {
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("TIME").hgetall(keys.get(Key::Meta)).exists(keys.get(Key::Line));
    let mut replies = Replies::of(&pipe, conn, keys).await?;
    Ok((replies.meta()?, replies.next()?))
}

/// `meta` and the wanted parts.
pub async fn parts(conn: &mut impl ConnectionLike, keys: &Keys, wanted: &Wanted) -> Result<PartsRead, Error> {
    let key = |key: Key| keys.get(key);
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("TIME").hgetall(key(Key::Meta));
    match &wanted.line {
        LinePart::Nothing => {}
        LinePart::Whole => {
            bytes(&mut pipe, key(Key::Line), 0, None);
            bytes(&mut pipe, key(Key::Back), 0, None);
        }
        LinePart::Ends { front, tail } => {
            bytes(&mut pipe, key(Key::Line), front.start, Some(front.end));
            bytes(&mut pipe, key(Key::Line), *tail, None);
        }
    }
    if wanted.passes {
        pipe.zrange_withscores(key(Key::Passes), 0, -1).hgetall(key(Key::Limits)).hgetall(key(Key::Frozen));
    }
    if wanted.seats {
        pipe.get(key(Key::Seats)).zrange_withscores(key(Key::HoldEnds), 0, -1).hgetall(key(Key::Held));
    }
    if wanted.policy {
        pipe.hgetall(key(Key::Policy));
    }
    if wanted.buyers {
        pipe.hgetall(key(Key::Owners));
    }

    let mut replies = Replies::of(&pipe, conn, keys).await?;
    Ok(PartsRead {
        meta: replies.meta()?,
        line: match wanted.line {
            LinePart::Nothing => None,
            LinePart::Whole => Some(LineBytes::Whole { line: replies.next()?, back: replies.next()? }),
            LinePart::Ends { .. } => Some(LineBytes::Ends { front: replies.next()?, tail: replies.next()? }),
        },
        passes: if wanted.passes { Some(replies.passes()?) } else { None },
        seats: if wanted.seats { Some(replies.seats()?) } else { None },
        policy: if wanted.policy { Some(replies.next()?) } else { None },
        owners: if wanted.buyers { Some(replies.next()?) } else { None },
    })
}

/// The event's block of places, and the current life of Redis. `None`: keys are missing.
pub async fn block(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Option<(Block, String)>, Error> {
    let mut pipe = redis::pipe();
    pipe.atomic()
        .hmget(keys.get(Key::Meta), &["life", "next", "end", "waiting", "block", "fetch"])
        .exists(keys.get(Key::Line))
        .cmd("INFO")
        .arg("replication");
    let mut replies = Replies::of(&pipe, conn, keys).await?;
    type Fields = (Option<String>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i32>);
    let (Some(life), Some(next), Some(end), Some(waiting), start, fetch) = replies.next::<Fields>()? else {
        return Ok(None);
    };
    let has_line: bool = replies.next()?;
    if waiting > 0 && !has_line {
        return Ok(None);
    }
    let current = replies.next::<InfoDict>()?.get("master_replid").unwrap_or_default();
    let fetched = Fetched { start: start.unwrap_or(0), fetch: fetch.unwrap_or(0) };
    Ok(Some((Block { life, next, end, fetched }, current)))
}

/// The next place that will be given out.
pub async fn next_place(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Option<i64>, Error> {
    Ok(redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("next").query_async(conn).await?)
}

/// The end of the event's block of places, however much of the event is there.
pub async fn block_end(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Option<i64>, Error> {
    Ok(redis::cmd("HGET").arg(keys.get(Key::Meta)).arg("end").query_async(conn).await?)
}

/// Which decision of operators is in force, and on top of which configuration.
pub async fn in_force(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<(Option<i64>, Option<String>), Error> {
    let fields = ["version", "seed"].as_slice();
    Ok(redis::cmd("HMGET").arg(keys.get(Key::Policy)).arg(fields).query_async(conn).await?)
}

/// How many wait, and the first place that does.
pub async fn line_head(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<(u64, u64), Error> {
    let fields = ["waiting", "head"].as_slice();
    Ok(redis::cmd("HMGET").arg(keys.get(Key::Meta)).arg(fields).query_async(conn).await?)
}

/// The state of every seat, and the latest change of each seat that Redis ever heard of: sold to a place, or not sold.
pub async fn seats(conn: &mut impl ConnectionLike, keys: &Keys) -> Result<(Vec<SeatState>, Vec<SeatChange>), Error> {
    let mut pipe = redis::pipe();
    pipe.atomic().get(keys.get(Key::Seats)).hgetall(keys.get(Key::Versions)).hgetall(keys.get(Key::Owners));
    let mut replies = Replies::of(&pipe, conn, keys).await?;
    let states = states_of(&replies.next::<Vec<u8>>()?);
    let (versions, owners): (HashMap<u32, i64>, HashMap<u32, u32>) = (replies.next()?, replies.next()?);
    let change = |(seat, version): (u32, i64)| {
        let seat = SeatNumber(seat);
        let sold = states.get(seat.index()?) == Some(&SeatState::Sold);
        let state = if sold { SeatState::Sold } else { SeatState::Available };
        let place = Place(owners.get(&seat.0).copied().filter(|_| sold).unwrap_or(0));
        Some(SeatChange { seat, version, state, place })
    };
    let changes = versions.into_iter().filter_map(change).collect();
    Ok((states, changes))
}

/// An order that waits to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingOrder {
    pub seats: Vec<SeatNumber>,
    pub person: Option<PersonId>,
    /// How many were accepted before it and are not decided.
    pub ahead: u64,
    /// Whether it is being written.
    pub working: bool,
}

/// These orders, with the place of each: `None` where it does not wait.
pub async fn pending(
    conn: &mut impl ConnectionLike,
    keys: &Keys,
    orders: &[(OrderId, Place)],
) -> Result<Vec<Option<PendingOrder>>, Error> {
    let mut pipe = redis::pipe();
    for (order, place) in orders {
        let order = order.to_string();
        pipe.hget(keys.get(Key::Frozen), place.0).zrank(keys.get(Key::Pending), &order);
        pipe.sismember(keys.get(Key::Working), &order);
    }
    let mut replies = Replies(pipe.query_async::<Vec<Value>>(conn).await?.into_iter());
    let mut found = Vec::with_capacity(orders.len());
    for (order, _) in orders {
        let (record, ahead): (Option<String>, Option<u64>) = (replies.next()?, replies.next()?);
        let working = replies.next()?;
        let parse = |record: String| {
            let mut words = record.split(' ');
            let same = words.next()? == order.to_string();
            let (seats, person) = (Request::parse_seats(words.next()?)?, Request::parse_buyer(words.next()?)?);
            same.then_some(PendingOrder { seats, person, ahead: ahead.unwrap_or(0), working })
        };
        found.push(record.and_then(parse));
    }
    Ok(found)
}

/// The first concerts of a ranking with their scores, best first. `None`: the ranking is not in Redis.
pub async fn ranking(
    conn: &mut impl ConnectionLike,
    keys: &Keys,
    lowest_first: bool,
    most: isize,
) -> Result<Option<Vec<(ConcertId, i64)>>, Error> {
    let mut pipe = redis::pipe();
    pipe.hexists(keys.get(Key::AsOf), "*");
    if lowest_first {
        pipe.zrange_withscores(keys.get(Key::Ranking), 0, most - 1);
    } else {
        pipe.zrevrange_withscores(keys.get(Key::Ranking), 0, most - 1);
    }
    let (built, scores): (bool, Vec<(i32, f64)>) = pipe.query_async(conn).await?;
    Ok(built.then(|| scores.into_iter().map(|(id, score)| (ConcertId(id), score as i64)).collect()))
}

/// Bytes `start` to `end`, or to the last one.
fn bytes(pipe: &mut Pipeline, key: &str, start: u64, end: Option<u64>) {
    let last = end.map_or(-1, |end| i64::try_from(end).unwrap_or(i64::MAX) - 1);
    // To GETRANGE an end of -1 is the last byte, so an empty range needs other words.
    let (start, last) = if end.is_some_and(|end| end <= start) { (1, 0) } else { (start, last) };
    pipe.cmd("GETRANGE").arg(key).arg(start).arg(last);
}

/// A byte that is no state counts as sold: the seat is not offered, and the audit reports it.
fn states_of(bytes: &[u8]) -> Vec<SeatState> {
    bytes.iter().map(|byte| SeatState::from_byte(*byte).unwrap_or(SeatState::Sold)).collect()
}

/// Whether Redis refused MULTI because it is full: it then takes no command into one, not even a read.
fn is_full(error: &RedisError) -> bool {
    matches!(error.code(), Some("OOM" | "EXECABORT"))
}

/// The replies of one MULTI, taken in the order of its commands.
struct Replies(std::vec::IntoIter<Value>);

impl Replies {
    async fn of(pipe: &Pipeline, conn: &mut impl ConnectionLike, keys: &Keys) -> Result<Self, Error> {
        let replies: Vec<Value> = match pipe.query_async(conn).await {
            Err(error) if is_full(&error) => scripts::read(conn, keys, pipe).await?,
            replies => replies?,
        };
        Ok(Self(replies.into_iter()))
    }

    fn next<T: FromRedisValue>(&mut self) -> Result<T, Error> {
        let reply = self.0.next().ok_or_else(|| Error::internal("a reply of Redis is missing"))?;
        Ok(redis::from_redis_value(reply).map_err(RedisError::from)?)
    }

    fn meta(&mut self) -> Result<MetaRead, Error> {
        let (seconds, micros): (u64, u64) = self.next()?;
        Ok(MetaRead { clock_ms: seconds * 1000 + micros / 1000, meta: self.next()? })
    }

    fn passes(&mut self) -> Result<PassesRead, Error> {
        let deadlines: Vec<(u32, f64)> = self.next()?;
        let deadlines = deadlines.into_iter().map(|(place, deadline)| (Place(place), deadline as u64)).collect();
        let limits = self.next()?;
        let frozen: HashMap<u32, String> = self.next()?;
        let frozen =
            frozen.iter().filter_map(|(place, record)| Some((Place(*place), Frozen::parse(record)?))).collect();
        Ok(PassesRead { deadlines, limits, frozen })
    }

    fn seats(&mut self) -> Result<SeatsRead, Error> {
        let (states, ends): (Vec<u8>, Vec<(u32, f64)>) = (self.next()?, self.next()?);
        let hold_ends = ends.into_iter().map(|(seat, deadline)| (SeatNumber(seat), deadline as u64)).collect();
        let held: HashMap<u32, String> = self.next()?;
        let seats =
            |list: &str| list.split(' ').filter_map(|seat| seat.parse().ok()).map(SeatNumber).collect::<Vec<_>>();
        let holders =
            held.iter().flat_map(|(place, list)| seats(list).into_iter().map(|seat| (seat, Place(*place)))).collect();
        Ok(SeatsRead { states: states_of(&states), hold_ends, holders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_no_state_counts_as_sold_and_spoils_no_other_seat() {
        use SeatState::{Available, Held, Sold};
        assert_eq!(states_of(b"ahs\0xa"), [Available, Held, Sold, Sold, Sold, Available]);
    }
}
