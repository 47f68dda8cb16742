//! What an event and its concert are called and when they can be booked: read from the database every few seconds.

use chrono::{DateTime, Utc};

use crate::base::ids::{ConcertId, EventId};
use crate::store::db::concerts::ConcertRow;
use crate::store::db::events::EventRow;

/// What an operator can change about an event during its sale.
#[derive(Debug, Clone)]
pub struct Facts {
    pub title: String,
    pub on_sale: bool,
    pub concert: Option<ConcertId>,
    pub starts_at: Option<DateTime<Utc>>,
    /// Until then tickets can be cancelled; `None`: always.
    pub cancel_until: Option<DateTime<Utc>>,
    /// Whether joining the line takes a person, who has one place in it.
    pub one_place_per_person: bool,
    /// `None`: always open.
    pub opens_at: Option<DateTime<Utc>>,
    pub closes_at: Option<DateTime<Utc>>,
}

/// Whether an event can be booked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Booking {
    NotYet(DateTime<Utc>),
    Open,
    Over,
}

impl Facts {
    pub fn new(row: &EventRow, concert: Option<&Concert>) -> Self {
        Self {
            title: row.title.clone(),
            on_sale: row.on_sale,
            concert: row.concert_id.map(ConcertId),
            starts_at: row.starts_at,
            cancel_until: row.cancel_until.or(row.starts_at),
            one_place_per_person: row.one_place_per_person,
            opens_at: concert.map(|concert| concert.opens_at),
            // Nobody joins the line of a performance that has begun.
            closes_at: concert.map(|concert| concert.closes_at).into_iter().chain(row.starts_at).min(),
        }
    }

    pub fn booking(&self, now: DateTime<Utc>) -> Booking {
        match self.opens_at {
            _ if !self.on_sale || self.closes_at.is_some_and(|closes_at| now >= closes_at) => Booking::Over,
            Some(opens_at) if now < opens_at => Booking::NotYet(opens_at),
            _ => Booking::Open,
        }
    }
}

/// A concert, with its dates in order of time.
#[derive(Debug, Clone)]
pub struct Concert {
    pub id: ConcertId,
    pub title: String,
    pub description: String,
    pub opens_at: DateTime<Utc>,
    pub closes_at: DateTime<Utc>,
    pub dates: Vec<EventId>,
}

impl From<ConcertRow> for Concert {
    fn from(row: ConcertRow) -> Self {
        Self {
            id: ConcertId(row.id),
            title: row.title,
            description: row.description,
            opens_at: row.opens_at,
            closes_at: row.closes_at,
            dates: Vec::new(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use chrono::TimeDelta;

    /// An event without a concert.
    pub(crate) fn always_open() -> Facts {
        Facts {
            title: String::new(),
            on_sale: true,
            concert: None,
            starts_at: None,
            cancel_until: None,
            one_place_per_person: false,
            opens_at: None,
            closes_at: None,
        }
    }

    #[test]
    fn the_booking_window_has_its_opening_and_not_its_closing() {
        let now = Utc::now();
        let minute = TimeDelta::minutes(1);
        let mut facts = always_open();
        assert_eq!(facts.booking(now), Booking::Open);
        (facts.opens_at, facts.closes_at) = (Some(now), Some(now + minute));
        assert_eq!(facts.booking(now - TimeDelta::nanoseconds(1)), Booking::NotYet(now));
        assert_eq!(facts.booking(now), Booking::Open);
        assert_eq!(facts.booking(now + minute - TimeDelta::nanoseconds(1)), Booking::Open);
        assert_eq!(facts.booking(now + minute), Booking::Over);
        facts.on_sale = false;
        assert_eq!(facts.booking(now), Booking::Over);
    }
}
