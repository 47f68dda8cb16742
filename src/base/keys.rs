//! Secret keys, which people and operators send: made once, shown once, kept as a hash.

use crate::base::error::Error;

pub type KeyHash = [u8; 32];

/// How the keys of people begin.
pub const OF_PEOPLE: &str = "zt_";

/// A new key. The prefix tells what it is for.
pub fn make(prefix: &str) -> Result<String, Error> {
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(Error::internal)?;
    Ok(spelled(prefix, secret))
}

/// The key that follows from these words: whoever has both gets it again.
pub fn derive(prefix: &str, secret: &[u8; 32], words: &str) -> String {
    spelled(prefix, *blake3::keyed_hash(secret, words.as_bytes()).as_bytes())
}

fn spelled(prefix: &str, secret: [u8; 32]) -> String {
    format!("{prefix}{}", blake3::Hash::from_bytes(secret).to_hex())
}

/// A key has 256 random bits, so a fast hash protects it as well as a slow one.
pub fn hash(key: &str) -> KeyHash {
    *blake3::hash(key.as_bytes()).as_bytes()
}

/// Whether the text has the form of a key with this prefix.
pub fn can_be_key(prefix: &str, text: &str) -> bool {
    let digit = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix(prefix).is_some_and(|secret| secret.len() == 64 && secret.bytes().all(digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_differ_and_look_like_keys() {
        let (one, other) = (make("zt_").unwrap(), make("zt_").unwrap());
        assert!(one != other && can_be_key("zt_", &one) && !can_be_key("zto_", &one));
    }

    proptest! {
        #[test]
        fn only_what_looks_like_a_key_is_one(secret: [u8; 32], at in 0..67_usize, text in r"(?s).{0,80}") {
            let key = spelled("zt_", secret);
            prop_assert!(can_be_key("zt_", &key));
            prop_assert!(!can_be_key("zt_", &text));
            prop_assert!(!can_be_key("zt_", key.split_at(at).0) && !can_be_key("zt_", &key.repeat(2)));
            let mut wrong = key.into_bytes();
            wrong[at] ^= 0x80;
            prop_assert!(!can_be_key("zt_", &String::from_utf8_lossy(&wrong)));
        }
    }
}
