//! The number of an order that is written later: event, place and the moment it was asked for, signed, as a UUID of
//! version 8. Whoever reads one knows where to look, and that it was given out. Orders that are written at once have plain
//! UUIDs of version 7.
//!
//! Layout, bits counted from the left: 0–23 event, 24–47 place (high part), 48–51 version, 52–59 place (low part),
//! 60–63 time (high part), 64–65 variant, 66–91 time (low part), 92–127 signature.

use std::time::Duration;

use uuid::Uuid;

use crate::base::ids::{EventId, OrderId, Place};

const VERSION_AND_VARIANT: u128 = 0x0000_0000_0000_8000_8000_0000_0000_0000;
const TIME_BITS: u32 = 30;
const SIGNATURE_BITS: u32 = 36;
/// The clock of a server may be ahead of another's by this much: an hour.
const AHEAD_MS: u64 = 3_600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderNumber {
    pub event: EventId,
    pub place: Place,
    /// The lowest 30 bits of Unix time, ms: it starts over every twelve days.
    moment: u32,
}

impl OrderNumber {
    pub fn new(event: EventId, place: Place, now_ms: u64) -> Self {
        Self { event, place, moment: low_bits(u128::from(now_ms), TIME_BITS) }
    }

    /// What an id says, genuine or not. `None`: it is of another kind.
    pub fn read(id: OrderId) -> Option<Self> {
        let bits = id.0.as_u128();
        if bits & 0x0000_0000_0000_f000_c000_0000_0000_0000 != VERSION_AND_VARIANT {
            return None;
        }
        Some(Self {
            event: EventId::new(low_bits(bits >> 104, 24))?,
            place: Place((low_bits(bits >> 80, 24) << 8) | low_bits(bits >> 68, 8)),
            moment: (low_bits(bits >> 64, 4) << 26) | low_bits(bits >> SIGNATURE_BITS, 26),
        })
    }

    pub fn sign(&self, key: &[u8; 32]) -> OrderId {
        let (place, moment) = (self.place.0, self.moment);
        let mut message = b"order".to_vec();
        message.extend(self.event.get().to_be_bytes());
        message.extend(place.to_be_bytes());
        message.extend(moment.to_be_bytes());
        let hash = blake3::keyed_hash(key, &message);
        let hash = hash.as_bytes().iter().take(8).fold(0, |bits, byte| (bits << 8) | u128::from(*byte));
        let bits = (u128::from(self.event.get()) << 104)
            | (u128::from(place >> 8) << 80)
            | (u128::from(place & 0xff) << 68)
            | (u128::from(moment >> 26) << 64)
            | (u128::from(moment & ((1 << 26) - 1)) << SIGNATURE_BITS)
            | (hash & ((1 << SIGNATURE_BITS) - 1))
            | VERSION_AND_VARIANT;
        OrderId(Uuid::from_u128(bits))
    }

    /// How long ago it was asked for, by the clock of this server. A moment that is a little ahead is that of a server whose
    /// clock is ahead. One that is twelve days old looks new again.
    pub fn age(&self, now_ms: u64) -> Duration {
        let age = u64::from(low_bits(u128::from(now_ms), TIME_BITS).wrapping_sub(self.moment) & ((1 << TIME_BITS) - 1));
        let ahead = age >= (1 << TIME_BITS) - AHEAD_MS;
        Duration::from_millis(if ahead { 0 } else { age })
    }
}

/// The lowest `count` bits, at most 32 of them.
fn low_bits(bits: u128, count: u32) -> u32 {
    u32::try_from(bits & ((1 << count) - 1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: [u8; 32] = [7; 32];

    fn number(event: u32, place: u32, now_ms: u64) -> OrderNumber {
        OrderNumber::new(EventId::new(event).unwrap(), Place(place), now_ms)
    }

    proptest! {
        #[test]
        fn a_number_says_what_was_asked_for(event in 1..=EventId::MAX, place: u32, now in 0..1_u64 << 42, later in 0..1_u64 << 29) {
            let number = number(event, place, now);
            let id = number.sign(&KEY);
            prop_assert_eq!(OrderNumber::read(id), Some(number));
            prop_assert_eq!(number.age(now + later), Duration::from_millis(later));
            prop_assert_eq!(id.0.get_version_num(), 8);
        }

        #[test]
        fn a_number_with_another_bit_has_another_signature(place: u32, now in 0..1_u64 << 42, bit in 0..128_u32) {
            let changed = OrderId(Uuid::from_u128(number(9, place, now).sign(&KEY).0.as_u128() ^ (1 << bit)));
            prop_assert!(OrderNumber::read(changed).is_none_or(|number| number.sign(&KEY) != changed));
        }
    }

    #[test]
    fn a_clock_that_is_ahead_makes_no_order_old() {
        for ahead in [5_000, 3_600_000] {
            assert_eq!(number(1, 1, 10_000_000).age(10_000_000 - ahead), Duration::ZERO);
        }
    }

    #[test]
    fn an_order_of_last_week_is_not_new() {
        let week = 7 * 24 * 3_600_000;
        assert_eq!(number(1, 1, 10_000_000).age(10_000_000 + week), Duration::from_millis(week));
    }
}
