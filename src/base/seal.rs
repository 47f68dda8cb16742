//! What makes a printed ticket genuine: its number, event and seat, signed so that a door can check it without asking
//! anyone. Only the server knows whether it was cancelled since.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::{Signature, Signer, SigningKey, Verifier, VerifyingKey};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::base::ids::{EventId, SeatNumber, TicketId};
use crate::base::token::MasterKeys;

/// Starts every seal, so that another format can come later.
const FORM: &str = "ZT1";

pub struct Seal {
    key: SigningKey,
    previous: Option<VerifyingKey>,
}

/// What a door needs to know.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublicKeys {
    algorithm: &'static str,
    /// The text after the last dot signs the text before it.
    form: &'static str,
    /// Base64url; the newest first.
    public_keys: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    pub ticket: TicketId,
    pub event: EventId,
    pub seat: SeatNumber,
}

impl Seal {
    pub fn new(master: &MasterKeys) -> Self {
        let derive = |key: &[u8; 32]| SigningKey::from_bytes(&blake3::derive_key("zticket 2026 ticket seal", key));
        Self { key: derive(&master.current), previous: master.previous.as_ref().map(|key| derive(key).verifying_key()) }
    }

    /// As it stands in the ticket's QR code.
    pub fn sign(&self, ticket: &Sealed) -> String {
        let mut facts = Vec::with_capacity(24);
        facts.extend(ticket.ticket.0.as_bytes());
        facts.extend(ticket.event.get().to_be_bytes());
        facts.extend(ticket.seat.0.to_be_bytes());
        let text = format!("{FORM}.{}", BASE64.encode(facts));
        let signature = BASE64.encode(self.key.sign(text.as_bytes()).to_bytes());
        format!("{text}.{signature}")
    }

    pub fn public_keys(&self) -> PublicKeys {
        let keys = std::iter::once(self.key.verifying_key()).chain(self.previous);
        PublicKeys {
            algorithm: "Ed25519",
            form: "ZT1.base64url(ticket 16 bytes, event 4, seat 4).base64url(signature)",
            public_keys: keys.map(|key| BASE64.encode(key.to_bytes())).collect(),
        }
    }

    /// What a door does. `None`: not one of ours.
    pub fn check(&self, text: &str) -> Option<Sealed> {
        let (signed, signature) = text.rsplit_once('.')?;
        let signature = Signature::from_slice(&BASE64.decode(signature).ok()?).ok()?;
        let mut keys = std::iter::once(self.key.verifying_key()).chain(self.previous);
        if !keys.any(|key| key.verify(signed.as_bytes(), &signature).is_ok()) {
            return None;
        }
        let facts = BASE64.decode(signed.strip_prefix(FORM)?.strip_prefix('.')?).ok()?;
        let (ticket, rest) = facts.split_first_chunk::<16>()?;
        let (event, rest) = rest.split_first_chunk::<4>()?;
        let (seat, _) = rest.split_first_chunk::<4>()?;
        Some(Sealed {
            ticket: TicketId(Uuid::from_bytes(*ticket)),
            event: EventId::new(u32::from_be_bytes(*event))?,
            seat: SeatNumber(u32::from_be_bytes(*seat)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MASTER: MasterKeys = MasterKeys { current: [7; 32], previous: None };

    fn sealed() -> Sealed {
        Sealed { ticket: TicketId(Uuid::from_u128(5)), event: EventId::new(3).unwrap(), seat: SeatNumber(77) }
    }

    #[test]
    fn a_seal_is_checked_without_asking_and_survives_a_new_key() {
        let text = Seal::new(&MASTER).sign(&sealed());
        assert_eq!(Seal::new(&MASTER).check(&text), Some(sealed()));
        let rotated = MasterKeys { current: [8; 32], previous: Some([7; 32]) };
        assert_eq!(Seal::new(&rotated).check(&text), Some(sealed()));
        assert_eq!(Seal::new(&MasterKeys { current: [8; 32], previous: None }).check(&text), None);
    }

    #[test]
    fn a_changed_letter_breaks_the_seal() {
        let seal = Seal::new(&MASTER);
        let text = seal.sign(&sealed());
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(seal.check(std::str::from_utf8(&bytes).unwrap()), None, "at {at}");
        }
    }

    proptest! {
        // Signing is slow where nothing is optimized.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_seal_says_what_was_sealed(ticket: u128, event in 1..=EventId::MAX, seat: u32, at: usize, bit in 0..8_u32) {
            let event = EventId::new(event).unwrap();
            let sealed = Sealed { ticket: TicketId(Uuid::from_u128(ticket)), event, seat: SeatNumber(seat) };
            let seal = Seal::new(&MASTER);
            let text = seal.sign(&sealed);
            prop_assert_eq!(seal.check(&text), Some(sealed));
            let mut bytes = text.clone().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(seal.check(&String::from_utf8_lossy(&bytes)), None, "one bit changed");
            prop_assert_eq!(seal.check(text.split_at(at).0), None, "cut off");
            prop_assert_eq!(seal.check(&format!("{text}=")), None, "padded");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_checked_without_a_panic(text in ".{0,200}") {
            prop_assert_eq!(Seal::new(&MASTER).check(&text), None);
        }
    }
}
