//! What a seat can be, and how that changes: one spelling from the byte in Redis to the word in JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::ids::{Place, SeatNumber};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SeatState {
    Available,
    Held,
    Sold,
}

impl SeatState {
    pub const ALL: [Self; 3] = [Self::Available, Self::Held, Self::Sold];

    /// As the scripts and the API write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Held => "held",
            Self::Sold => "sold",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// As the seat map in Redis has it.
    pub fn byte(self) -> u8 {
        match self {
            Self::Available => b'a',
            Self::Held => b'h',
            Self::Sold => b's',
        }
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.byte() == byte)
    }
}

/// A sale or a cancel, as PostgreSQL recorded it and Redis has to learn it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatChange {
    pub seat: SeatNumber,
    /// Of two changes of a seat the one with the greater version counts.
    pub version: i64,
    /// Sold, or available again; never held.
    pub state: SeatState,
    /// The place that bought the seat.
    pub place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_from_its_byte_and_its_word() {
        for state in SeatState::ALL {
            assert_eq!(SeatState::from_byte(state.byte()), Some(state));
            assert_eq!(SeatState::from_word(state.word()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        assert_eq!((SeatState::from_byte(b'x'), SeatState::from_word("gone")), (None, None));
    }
}
