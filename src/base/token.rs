//! A place in line that its owner carries: event and place, signed, written as a UUID of version 8.
//!
//! Reading one needs no look-up, and making one up needs the key. Layout, bits counted from the left:
//! 0–23 event, 24–47 place (high part), 48–51 version, 52–59 place (low part), 60–63 signature, 64–65 variant,
//! 66–127 signature.

use std::fmt;

use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::base::ids::{EventId, OrderId, Place};
use crate::base::order_number::OrderNumber;

const VERSION_AND_VARIANT: u128 = 0x0000_0000_0000_8000_8000_0000_0000_0000;
const SIGNATURE: u128 = 0x0000_0000_0000_000f_3fff_ffff_ffff_ffff;

/// What a visitor carries. Only its owner sees it in full: `Debug` masks it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    uuid: Uuid,
    event: EventId,
    place: Place,
}

impl Token {
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    pub fn event(&self) -> EventId {
        self.event
    }

    pub fn place(&self) -> Place {
        self.place
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.uuid.serialize(serializer)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token of event {} place {}", self.event, self.place)
    }
}

/// A token's text that has the right form. Whether it is genuine is for [`Signer::verify`] to say.
#[derive(Clone, Copy)]
pub struct Claim {
    uuid: Uuid,
    event: EventId,
    place: Place,
}

impl Claim {
    /// Takes canonical text only: lower case, hyphens, version 8. One token, one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = Uuid::try_parse(text).ok()?;
        let mut buffer = Uuid::encode_buffer();
        if uuid.hyphenated().encode_lower(&mut buffer) != text {
            return None;
        }
        let bits = uuid.as_u128();
        if bits & 0x0000_0000_0000_f000_c000_0000_0000_0000 != VERSION_AND_VARIANT {
            return None;
        }
        let event = EventId::new(low_bits(bits >> 104, 24))?;
        let place = Place((low_bits(bits >> 80, 24) << 8) | low_bits(bits >> 68, 8));
        Some(Self { uuid, event, place })
    }

    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The event it says it is of, to find the key by.
    pub fn event(&self) -> EventId {
        self.event
    }
}

/// Signs and checks the tokens of one event.
pub struct Signer {
    event: EventId,
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl Signer {
    /// Derives the event's key from each master key. The first signs; both are accepted.
    pub fn new(event: EventId, salt: Uuid, master: &MasterKeys) -> Self {
        let derive = |key: &[u8; 32]| {
            let mut hasher = blake3::Hasher::new_derive_key("zticket 2026 queue token of one event");
            hasher.update(key).update(&event.get().to_be_bytes()).update(salt.as_bytes());
            *hasher.finalize().as_bytes()
        };
        Self { event, current: derive(&master.current), previous: master.previous.as_ref().map(derive) }
    }

    pub fn sign(&self, place: Place) -> Token {
        let bits = frame(self.event, place) | mac(&self.current, self.event, place);
        Token { uuid: Uuid::from_u128(bits), event: self.event, place }
    }

    /// The number of an order that this place asks for now.
    pub fn order(&self, place: Place, now_ms: u64) -> OrderId {
        OrderNumber::new(self.event, place, now_ms).sign(&self.current)
    }

    /// Whether the number is one of ours.
    pub fn verify_order(&self, order: OrderId) -> Option<OrderNumber> {
        let number = OrderNumber::read(order).filter(|number| number.event == self.event)?;
        let good = |key| number.sign(key) == order;
        (good(&self.current) || self.previous.as_ref().is_some_and(good)).then_some(number)
    }

    pub fn verify(&self, claim: Claim) -> Option<Token> {
        let given = claim.uuid.as_u128() & SIGNATURE;
        // No early exit on the first wrong byte: the signatures are compared as one number.
        let good = |key| (mac(key, self.event, claim.place) ^ given) == 0;
        let genuine = claim.event == self.event && (good(&self.current) || self.previous.as_ref().is_some_and(good));
        genuine.then_some(Token { uuid: claim.uuid, event: claim.event, place: claim.place })
    }
}

/// The secrets all tokens hang on: made once and kept in PostgreSQL, or configured.
#[derive(Clone)]
pub struct MasterKeys {
    pub current: [u8; 32],
    pub previous: Option<[u8; 32]>,
}

fn frame(event: EventId, place: Place) -> u128 {
    let (high, low) = (u128::from(place.0 >> 8), u128::from(place.0 & 0xff));
    (u128::from(event.get()) << 104) | (high << 80) | (low << 68) | VERSION_AND_VARIANT
}

fn mac(key: &[u8; 32], event: EventId, place: Place) -> u128 {
    let message = (u64::from(event.get()) << 32) | u64::from(place.0);
    let hash = blake3::keyed_hash(key, &message.to_be_bytes());
    let (head, _) = hash.as_bytes().split_at(16);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(head);
    u128::from_be_bytes(bytes) & SIGNATURE
}

/// The lowest `count` bits, at most 32 of them.
fn low_bits(bits: u128, count: u32) -> u32 {
    u32::try_from(bits & ((1 << count) - 1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASTER: MasterKeys = MasterKeys { current: [7; 32], previous: None };

    fn signer(event: u32, master: &MasterKeys) -> Signer {
        Signer::new(EventId::new(event).unwrap(), Uuid::from_u128(1), master)
    }

    fn text(token: Token) -> String {
        token.uuid().to_string()
    }

    proptest! {
        #[test]
        fn a_token_carries_its_event_and_place(event in 1..=EventId::MAX, place: u32) {
            let signer = signer(event, &MASTER);
            let token = signer.sign(Place(place));
            prop_assert_eq!(token.uuid().get_version_num(), 8);
            let read = signer.verify(Claim::parse(&text(token)).unwrap()).unwrap();
            prop_assert_eq!(read.event().get(), event);
            prop_assert_eq!(read.place(), Place(place));
        }

        #[test]
        fn a_token_with_one_bit_changed_is_refused(place: u32, bit in 0..128u32) {
            let signer = signer(9, &MASTER);
            let forged = Uuid::from_u128(signer.sign(Place(place)).uuid().as_u128() ^ (1 << bit));
            prop_assert!(Claim::parse(&forged.to_string()).and_then(|claim| signer.verify(claim)).is_none());
        }

        #[test]
        fn a_token_that_was_made_up_is_refused(bits: u128, place: u32, cut in 0..36_usize) {
            let signer = signer(9, &MASTER);
            let genuine = |text: &str| Claim::parse(text).and_then(|claim| signer.verify(claim)).is_some();
            prop_assert!(!genuine(&Uuid::from_u128(bits).to_string()));
            let event = EventId::new(9).unwrap();
            prop_assert!(!genuine(&Uuid::from_u128(frame(event, Place(place)) | bits & SIGNATURE).to_string()));
            let mut text = text(signer.sign(Place(place)));
            text.truncate(cut);
            prop_assert!(!genuine(&text));
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in ".{0,60}") {
            prop_assert!(Claim::parse(&text).is_none());
        }
    }

    #[test]
    fn only_canonical_text_is_a_token() {
        let canonical = text(signer(0xabcdef, &MASTER).sign(Place(0xabcd_ef01)));
        assert!(Claim::parse(&canonical).is_some());
        let spellings = [
            canonical.to_uppercase(),
            canonical.replace('-', ""),
            format!("{{{canonical}}}"),
            format!("urn:uuid:{canonical}"),
            format!(" {canonical}"),
        ];
        for spelling in spellings {
            assert!(Claim::parse(&spelling).is_none(), "{spelling}");
        }
    }

    #[test]
    fn a_token_of_one_event_is_no_token_of_another() {
        let claim = Claim::parse(&text(signer(1, &MASTER).sign(Place(5)))).unwrap();
        assert!(signer(2, &MASTER).verify(claim).is_none());
        let other_salt = Signer::new(EventId::new(1).unwrap(), Uuid::from_u128(2), &MASTER);
        assert!(other_salt.verify(claim).is_none());
    }

    #[test]
    fn the_previous_key_is_accepted_while_rotating() {
        let old = text(signer(1, &MASTER).sign(Place(5)));
        let claim = Claim::parse(&old).unwrap();
        let rotated = MasterKeys { current: [8; 32], previous: Some([7; 32]) };
        assert!(signer(1, &rotated).verify(claim).is_some());
        assert!(signer(1, &MasterKeys { current: [8; 32], previous: None }).verify(claim).is_none());
    }

    #[test]
    fn an_order_is_signed_for_its_event_and_is_no_token() {
        let token = signer(1, &MASTER).sign(Place(5));
        let order = signer(1, &MASTER).order(Place(5), 77);
        assert_eq!(signer(1, &MASTER).verify_order(order).map(|number| number.place), Some(Place(5)));
        assert!(signer(2, &MASTER).verify_order(order).is_none());
        assert!(signer(1, &MasterKeys { current: [8; 32], previous: Some([7; 32]) }).verify_order(order).is_some());
        assert!(signer(1, &MasterKeys { current: [8; 32], previous: None }).verify_order(order).is_none());
        assert!(signer(1, &MASTER).verify_order(OrderId(token.uuid())).is_none());
        assert!(Claim::parse(&order.to_string()).and_then(|claim| signer(1, &MASTER).verify(claim)).is_none());
    }

    #[test]
    fn a_token_is_masked_when_logged() {
        let token = signer(1, &MASTER).sign(Place(5));
        assert!(!format!("{token:?}").contains(&text(token)));
    }
}
