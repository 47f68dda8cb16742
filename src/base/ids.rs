//! The numbers everything else speaks in. Parsed at the edge; inside, no bare integer or string stands for one of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// An event: one dated performance.
// 1 to 2^24 - 1, because a token has 24 bits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(minimum = 1, maximum = 16_777_215, example = 2)]
pub struct EventId(u32);

impl EventId {
    pub const MAX: u32 = (1 << 24) - 1;

    pub fn new(id: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&id).then_some(Self(id))
    }

    pub fn get(self) -> u32 {
        self.0
    }

    /// As the database has it. Fits: 24 bits.
    pub fn db(self) -> i32 {
        self.0.cast_signed()
    }
}

impl TryFrom<i32> for EventId {
    type Error = BadNumber;

    fn try_from(id: i32) -> Result<Self, BadNumber> {
        u32::try_from(id).ok().and_then(Self::new).ok_or(BadNumber)
    }
}

impl FromStr for EventId {
    type Err = BadNumber;

    fn from_str(text: &str) -> Result<Self, BadNumber> {
        decimal(text).and_then(Self::new).ok_or(BadNumber)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in an event's line: a sequence number that is given out once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub u32);

impl Place {
    pub fn db(self) -> i64 {
        i64::from(self.0)
    }

    pub fn from_db(place: i64) -> Option<Self> {
        u32::try_from(place).ok().map(Self)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which fetch of which block of places Redis gives out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// First place of the block.
    pub start: i64,
    /// How often the database handed it out; 0: by a server that did not count.
    pub fetch: i32,
}

/// A seat of an event, counted from 1. Whether the event has it is for the seat map to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(example = 51)]
pub struct SeatNumber(pub u32);

impl SeatNumber {
    pub fn db(self) -> i32 {
        i32::try_from(self.0).unwrap_or(i32::MAX)
    }

    /// The seat at this position of the map.
    pub fn at(index: usize) -> Self {
        Self(u32::try_from(index).map_or(u32::MAX, |index| index.saturating_add(1)))
    }

    /// Its position in the map, if it can have one.
    pub fn index(self) -> Option<usize> {
        usize::try_from(self.0).ok()?.checked_sub(1)
    }
}

impl FromStr for SeatNumber {
    type Err = BadNumber;

    fn from_str(text: &str) -> Result<Self, BadNumber> {
        decimal(text).map(Self).ok_or(BadNumber)
    }
}

impl fmt::Display for SeatNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A concert: its dates are events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(minimum = 1, example = 1)]
pub struct ConcertId(pub i32);

impl FromStr for ConcertId {
    type Err = BadNumber;

    fn from_str(text: &str) -> Result<Self, BadNumber> {
        let id = decimal(text).and_then(|id| i32::try_from(id).ok()).filter(|id| *id > 0);
        id.map(Self).ok_or(BadNumber)
    }
}

impl fmt::Display for ConcertId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A person, who has a balance and can pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(example = "01a1e3a3-57d6-7230-8ac5-75942c2cc998")]
pub struct PersonId(pub Uuid);

macro_rules! uuids {
    ($( $(#[$about:meta])* $name:ident; )*) => { $(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        $(#[$about])*
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl FromStr for $name {
            type Err = BadNumber;

            fn from_str(text: &str) -> Result<Self, BadNumber> {
                Uuid::try_parse(text).map(Self).map_err(|_| BadNumber)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )* };
}

uuids! {
    /// One purchase of one pass.
    #[schema(example = "01a1e3a3-5fef-7387-8226-d31f5b6e4d49")]
    OrderId;
    /// The number on a ticket.
    #[schema(example = "01a1e3a3-5fef-7387-8226-d32073a54ece")]
    TicketId;
    /// The number of an API key.
    #[schema(example = "01a1e3a3-57d6-7230-8ac5-7a0c11d7e2b4")]
    KeyId;
    /// The number of a browser in which a person is signed in.
    #[schema(example = "6f1f0c1e-6a53-4c0a-9a2b-0f4c7b8a9d21")]
    SessionId;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a number of the expected kind")]
pub struct BadNumber;

/// Plain decimal digits only: no sign, no space, no leading zero, so that every number has one spelling.
fn decimal(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_one_spelling() {
        assert_eq!("7".parse(), Ok(SeatNumber(7)));
        assert_eq!("0".parse(), Ok(SeatNumber(0)));
        for odd in ["", "+7", "-7", "07", " 7", "7 ", "7.0", "4294967296", "７", "1e3"] {
            assert_eq!(odd.parse::<SeatNumber>(), Err(BadNumber), "{odd:?}");
        }
    }

    #[test]
    fn an_event_id_fits_a_token() {
        assert_eq!("16777215".parse::<EventId>().map(EventId::get), Ok(EventId::MAX));
        assert_eq!("16777216".parse::<EventId>(), Err(BadNumber));
        assert_eq!("0".parse::<EventId>(), Err(BadNumber));
    }

    proptest! {
        #[test]
        fn a_number_is_written_as_it_was_read(text in r"[0-9]{1,12}|[-+ 0-9.e_]{0,8}|\PC{0,12}") {
            if let Ok(seat) = text.parse::<SeatNumber>() {
                prop_assert_eq!(seat.to_string(), &*text);
            }
            if let Ok(event) = text.parse::<EventId>() {
                prop_assert_eq!(event.to_string(), &*text);
                prop_assert!((1..=EventId::MAX).contains(&event.get()));
            }
            if let Ok(concert) = text.parse::<ConcertId>() {
                prop_assert_eq!(concert.to_string(), &*text);
                prop_assert!(concert.0 > 0);
            }
            prop_assert!(text.parse::<TicketId>().is_err());
        }

        #[test]
        fn every_number_is_read_again(seat: u32, event in 1..=EventId::MAX, concert in 1..=i32::MAX, ticket: u128) {
            prop_assert_eq!(seat.to_string().parse(), Ok(SeatNumber(seat)));
            prop_assert_eq!(event.to_string().parse().map(EventId::get), Ok(event));
            prop_assert_eq!(concert.to_string().parse(), Ok(ConcertId(concert)));
            let ticket = TicketId(Uuid::from_u128(ticket));
            prop_assert_eq!(ticket.to_string().parse(), Ok(ticket));
            prop_assert_eq!(serde_json::from_str::<SeatNumber>(&seat.to_string()).ok(), Some(SeatNumber(seat)));
        }

        #[test]
        fn a_seat_in_json_is_a_whole_number_that_fits(number: i64, part in 1..1000_u32) {
            let read = |text: &str| serde_json::from_str::<SeatNumber>(text).ok();
            prop_assert_eq!(read(&number.to_string()), u32::try_from(number).ok().map(SeatNumber));
            prop_assert_eq!(read(&format!("{number}.{part}")), None);
            prop_assert_eq!(read(&format!("\"{number}\"")), None);
        }

        #[test]
        fn a_seat_has_one_position(index in 0..u32::MAX as usize) {
            prop_assert_eq!(SeatNumber::at(index).index(), Some(index));
        }
    }
}
