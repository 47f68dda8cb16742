//! What scripts take and answer, as types, and how a reply is read.

use std::str::FromStr;
use std::time::Duration;

use redis::Value;

use crate::base::error::Error;
use crate::base::ids::{Fetched, OrderId, Place, SeatNumber};
use crate::base::request::Request;
use crate::base::seat::SeatState;

#[derive(Debug, PartialEq, Eq)]
pub enum Enter {
    /// The first `count` of those who asked are in, in order.
    Entered {
        first: Place,
        count: u32,
        first_rank: u64,
    },
    Full,
    Closed,
    SoldOut,
    /// The block of places belongs to an earlier life of this Redis.
    Stale,
    NeedBlock,
}

/// How entering went, and the block of places that any place in the answer comes from.
#[derive(Debug, PartialEq, Eq)]
pub struct EnterReply {
    pub outcome: Enter,
    /// The place each person has now, where the call named people.
    pub places: Vec<Option<Place>>,
    /// `None`: the answer has no place.
    pub block: Option<Fetched>,
}

/// Why an event gets another block of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The last one is.
    UsedUp,
    /// Redis was restarted or promoted.
    NewLife,
    /// The database handed the last one out again, so its places may belong to others.
    Refused,
}

/// A block of places for Redis.
#[derive(Debug, Clone)]
pub struct NewBlock {
    pub places: std::ops::Range<i64>,
    /// How often the database handed it out.
    pub fetch: i32,
    pub why: Why,
    /// How long admission waits for lost places to return.
    pub gap_wait_ms: u64,
    /// The next place when all servers stopped cleanly.
    pub parked: Option<i64>,
}

/// How asking for an order went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// How many are before it.
    Accepted {
        ahead: u64,
    },
    /// The place asked for the same seats before, under this number.
    Known(OrderId),
    /// The place has an order for other seats.
    Other(OrderId),
    /// The place is used by another person.
    Another,
    NoPass,
    Full,
}

/// What the writer of an event's orders gets.
#[derive(Debug, PartialEq, Eq)]
pub enum Take {
    Taken(Vec<Taken>),
    None,
    /// Somebody else writes, for this long at least.
    Busy {
        left: Duration,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where it stands in the stream, if it is there.
    pub entry: Option<String>,
    pub request: Request,
}

/// An order that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub order: OrderId,
    pub place: Place,
    pub paid: bool,
    /// Where it stood in the stream, if that is known.
    pub entry: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Leave {
    Left,
    Gone,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Sweep {
    Swept(u64),
    Skipped,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Admit {
    Admitted(u64),
    /// Too early; ask again after this many ms.
    Skipped(u64),
    Paused,
    Stale,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Hold {
    /// For this many ms from now.
    Held {
        left_ms: u64,
    },
    /// Already bought by this place.
    Yours,
    Taken(Vec<(SeatNumber, SeatState)>),
    /// The place is used by another person.
    Another,
    NoPass,
    NoSeat(SeatNumber),
    TooMany(u64),
}

#[derive(Debug, PartialEq, Eq)]
pub enum Release {
    Released(u64),
    NotYours(SeatNumber, SeatState),
    NoSeat(SeatNumber),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    /// How many changes were new to Redis.
    pub applied: u64,
    /// Seats that nobody has bought.
    pub unsold: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Restore {
    Restored,
    Present,
}

/// What `5_event_restore` builds from.
#[derive(Debug, Default)]
pub struct RestoreArgs {
    pub facts: String,
    pub policy: String,
    pub line: Vec<u8>,
    pub back: Vec<u8>,
    pub passes: String,
    pub holds: String,
    pub settled: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PolicySet {
    Ok,
    Refused(String),
}

/// A reply: a word, then what belongs to it.
pub struct Reply {
    pub values: Vec<Value>,
    /// For error messages.
    pub script: &'static str,
}

impl Reply {
    pub fn word(&self) -> &str {
        self.text(0).unwrap_or("none")
    }

    pub fn text(&self, at: usize) -> Result<&str, Error> {
        match self.values.get(at) {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).map_err(|_| self.unknown()),
            Some(Value::SimpleString(text)) => Ok(text),
            _ => Err(self.unknown()),
        }
    }

    pub fn parsed<T: FromStr>(&self, at: usize) -> Result<T, Error> {
        self.text(at)?.parse().map_err(|_| self.unknown())
    }

    pub fn number<T: TryFrom<i64>>(&self, at: usize) -> Result<T, Error> {
        match self.values.get(at) {
            Some(Value::Int(number)) => T::try_from(*number).map_err(|_| self.unknown()),
            _ => Err(self.unknown()),
        }
    }

    pub fn place(&self, at: usize) -> Result<Place, Error> {
        Ok(Place(self.number(at)?))
    }

    pub fn state(&self, at: usize) -> Result<SeatState, Error> {
        SeatState::from_word(self.text(at)?).ok_or_else(|| self.unknown())
    }

    pub fn unknown(&self) -> Error {
        Error::Internal(format!("{} answered {:?}", self.script, self.values))
    }
}
