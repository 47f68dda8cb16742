//! Every key in Redis. All keys of an event share a hash tag, so that they live in one slot of a cluster. So do the two
//! keys of a ranking.

use crate::base::ids::EventId;

/// Version of the stored data. A server that stores it differently uses another number.
const SHAPE: &str = "zt1";

macro_rules! keys {
    ($first:ident = $first_name:literal, $( $key:ident = $name:literal, )* ; $( $other:ident = $other_name:literal, )*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key { $first, $( $key, )* $( $other, )* }

        impl Key {
            /// Those of an event.
            pub const ALL: &'static [Key] = &[Key::$first, $( Key::$key, )*];
            /// Those of a ranking.
            const RANKING: &'static [Key] = &[$( Key::$other, )*];

            /// Its name, as the headers of the scripts have it.
            pub fn name(self) -> &'static str {
                match self { Key::$first => $first_name, $( Key::$key => $name, )* $( Key::$other => $other_name, )* }
            }
        }
    };
}

keys! {
    Meta = "meta",
    Line = "line",
    Policy = "policy",
    Back = "back",
    Passes = "passes",
    Limits = "limits",
    Seats = "seats",
    Owners = "owners",
    Versions = "versions",
    HoldEnds = "hold_ends",
    Held = "held",
    Members = "members",
    Tmp = "tmp",
    Pulse0 = "pulse:0",
    Pulse1 = "pulse:1",
    Pulse2 = "pulse:2",
    Pulse3 = "pulse:3",
    Pulse4 = "pulse:4",
    Requests = "requests",
    Pending = "pending",
    Working = "working",
    Frozen = "frozen",
    Latest = "latest",
    People = "people",
    ;
    Ranking = "ranking",
    AsOf = "as_of",
}

/// The keys of one event or ranking, each formatted once.
#[derive(Debug, Clone)]
pub struct Keys {
    first: Key,
    names: Vec<String>,
}

impl Keys {
    pub fn new(event: EventId) -> Self {
        let names = Key::ALL.iter().map(|key| format!("{SHAPE}:{{e{event}}}:{}", key.name())).collect();
        Self { first: Key::Meta, names }
    }

    /// Of the ranking of this name.
    pub fn ranking(name: &str) -> Self {
        let suffix = |key: &Key| if *key == Key::Ranking { String::new() } else { format!(":{}", key.name()) };
        let names = Key::RANKING.iter().map(|key| format!("{SHAPE}:ranking:{{{name}}}{}", suffix(key))).collect();
        Self { first: Key::Ranking, names }
    }

    /// Of the event that the lab makes for itself.
    pub fn lab() -> Self {
        let names = Key::ALL.iter().map(|key| format!("{SHAPE}:{{lab}}:{}", key.name())).collect();
        Self { first: Key::Meta, names }
    }

    /// Their names.
    pub fn all(&self) -> &[String] {
        &self.names
    }

    pub fn get(&self, key: Key) -> &str {
        // The constructors make one for each variant from the first on, in order.
        (key as usize).checked_sub(self.first as usize).and_then(|at| self.names.get(at)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_an_event_share_its_hash_tag() {
        let keys = Keys::new(EventId::new(7).unwrap());
        assert_eq!(keys.get(Key::Meta), "zt1:{e7}:meta");
        assert_eq!(keys.get(Key::Pulse4), "zt1:{e7}:pulse:4");
        assert!(Key::ALL.iter().all(|key| keys.get(*key).starts_with("zt1:{e7}:")));
    }

    #[test]
    fn keys_of_a_ranking_share_its_hash_tag() {
        let keys = Keys::ranking("best-selling:all");
        assert_eq!(keys.get(Key::Ranking), "zt1:ranking:{best-selling:all}");
        assert_eq!(keys.get(Key::AsOf), "zt1:ranking:{best-selling:all}:as_of");
        assert_eq!(keys.get(Key::Meta), "");
    }
}
