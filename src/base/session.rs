//! The secret that a browser keeps while someone is signed in. Part of it is a signature, so that made-up ones are refused
//! without asking anyone.

use crate::base::error::Error;
use crate::base::keys::KeyHash;
use crate::base::token::MasterKeys;

/// Random bytes and signature, in hexadecimal digits.
const LENGTH: usize = 2 * (32 + 16);

/// Makes and checks sessions.
pub struct Sessions {
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl Sessions {
    /// Of operators at the console.
    pub fn of_operators(master: &MasterKeys) -> Self {
        Self::new(master, "zticket 2026 session")
    }

    /// Of people on the pages.
    pub fn of_people(master: &MasterKeys) -> Self {
        Self::new(master, "zticket 2026 session of a person")
    }

    fn new(master: &MasterKeys, purpose: &str) -> Self {
        let derive = |key: &[u8; 32]| blake3::derive_key(purpose, key);
        Self { current: derive(&master.current), previous: master.previous.as_ref().map(derive) }
    }

    /// A new session: what the browser keeps, and the hash that the database keeps.
    pub fn make(&self) -> Result<(String, KeyHash), Error> {
        let mut secret = [0_u8; 32];
        getrandom::fill(&mut secret).map_err(Error::internal)?;
        let secret = blake3::Hash::from_bytes(secret).to_hex();
        let text = format!("{secret}{}", signature(&self.current, &secret));
        let hash = *blake3::hash(text.as_bytes()).as_bytes();
        Ok((text, hash))
    }

    /// The hash of a session that this house made. Whether it is still good is for the database to say.
    pub fn check(&self, text: &str) -> Option<KeyHash> {
        let (secret, given) = text.is_ascii().then(|| text.split_at_checked(64)).flatten()?;
        let good = |key: &[u8; 32]| {
            let expected = signature(key, secret);
            // No early exit on the first wrong letter.
            expected.bytes().zip(given.bytes()).fold(0, |wrong, (one, other)| wrong | (one ^ other)) == 0
        };
        let genuine = text.len() == LENGTH && (good(&self.current) || self.previous.as_ref().is_some_and(good));
        genuine.then(|| *blake3::hash(text.as_bytes()).as_bytes())
    }
}

fn signature(key: &[u8; 32], secret: &str) -> String {
    blake3::keyed_hash(key, secret.as_bytes()).to_hex().chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sessions(current: u8, previous: Option<u8>) -> Sessions {
        Sessions::of_people(&MasterKeys { current: [current; 32], previous: previous.map(|key| [key; 32]) })
    }

    #[test]
    fn a_session_is_known_by_its_maker_also_after_a_change_of_keys() {
        let (text, hash) = sessions(1, None).make().unwrap();
        assert_eq!(sessions(1, None).check(&text), Some(hash));
        assert_eq!(sessions(2, Some(1)).check(&text), Some(hash));
        assert_eq!(sessions(2, None).check(&text), None);
        assert_ne!(sessions(1, None).make().unwrap().0, text);
        let operators = Sessions::of_operators(&MasterKeys { current: [1; 32], previous: None });
        assert_eq!(operators.check(&text), None, "a person is no operator");
    }

    proptest! {
        #[test]
        fn nothing_else_is_a_session(at in 0..96_usize, letter in "[0-9a-f]", text in r"(?s).{0,100}") {
            let sessions = sessions(1, None);
            let (real, _) = sessions.make().unwrap();
            prop_assert_eq!(sessions.check(&text), None);
            let mut changed = real.clone();
            changed.replace_range(at..=at, &letter);
            prop_assert_eq!(sessions.check(&changed).is_some(), changed == real);
            prop_assert_eq!(sessions.check(&format!("{real}0")), None);
            prop_assert_eq!(sessions.check(real.split_at(at).0), None);
        }
    }
}
