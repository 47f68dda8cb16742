//! Every key in Redis. All keys of an event share a hash tag, so that they live in one slot of a cluster.

use crate::ids::EventId;

/// Version of the stored shape. A server that stores things differently uses another number.
const SHAPE: &str = "zt1";

macro_rules! keys {
    ($( $key:ident = $name:literal, )*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key { $( $key, )* }

        impl Key {
            pub const ALL: &'static [Key] = &[$( Key::$key, )*];

            /// Its name, as the headers of the scripts have it.
            pub fn name(self) -> &'static str {
                match self { $( Key::$key => $name, )* }
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
    Tmp = "tmp",
    Pulse0 = "pulse:0",
    Pulse1 = "pulse:1",
    Pulse2 = "pulse:2",
    Pulse3 = "pulse:3",
    Pulse4 = "pulse:4",
}

/// The keys of one event, spelt out once.
#[derive(Debug, Clone)]
pub struct Keys(Vec<String>);

impl Keys {
    pub fn new(event: EventId) -> Self {
        Self(Key::ALL.iter().map(|key| format!("{SHAPE}:{{e{event}}}:{}", key.name())).collect())
    }

    pub fn get(&self, key: Key) -> &str {
        // `new` makes one for each variant, in order.
        self.0.get(key as usize).map_or("", String::as_str)
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
}
