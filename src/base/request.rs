//! An order that was accepted and is written later.

use uuid::Uuid;

use crate::base::ids::{OrderId, PersonId, Place, SeatNumber};

/// Stands for no person.
const NOBODY: &str = "-";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub order: OrderId,
    pub place: Place,
    /// In ascending order.
    pub seats: Vec<SeatNumber>,
    /// The person who pays; free seats need none.
    pub person: Option<PersonId>,
}

impl Request {
    /// The seats as one word.
    pub fn seats_word(&self) -> String {
        self.seats.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    pub fn parse_seats(word: &str) -> Option<Vec<SeatNumber>> {
        word.split(',').map(|seat| seat.parse().ok()).collect()
    }

    pub fn parse_buyer(word: &str) -> Option<Option<PersonId>> {
        if word == NOBODY { Some(None) } else { Uuid::try_parse(word).ok().map(|person| Some(PersonId(person))) }
    }
}

/// A person as one word.
pub fn buyer_word(person: Option<PersonId>) -> String {
    person.map_or_else(|| NOBODY.to_owned(), |person| person.0.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(person: Option<u128>, seats in btree_set(1..100_000_u32, 1..50)) {
            let request = Request {
                order: OrderId(Uuid::nil()),
                place: Place(1),
                seats: seats.into_iter().map(SeatNumber).collect(),
                person: person.map(|person| PersonId(Uuid::from_u128(person))),
            };
            prop_assert_eq!(Request::parse_seats(&request.seats_word()), Some(request.seats.clone()));
            prop_assert_eq!(Request::parse_buyer(&buyer_word(request.person)), Some(request.person));
        }

        #[test]
        fn any_word_is_read_or_refused(word in "\\PC{0,50}") {
            let _ = (Request::parse_seats(&word), Request::parse_buyer(&word));
        }
    }
}
