//! Log lines that an outage must not multiply: a few of each kind are written, the rest are counted.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::base::lock;

/// Of each kind, this many lines are written in this time.
const MOST: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// Kinds are few and known: variants of an enum, names in the code.
pub struct Quiet<K>(Mutex<Vec<Kind<K>>>);

struct Kind<K> {
    kind: K,
    began: Instant,
    written: u32,
    left_out: u64,
}

impl<K: PartialEq> Quiet<K> {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether to write a line of this kind: how many were left out since the last one, or `None` to leave it out.
    pub fn may_write(&self, kind: K) -> Option<u64> {
        self.at(kind, Instant::now())
    }

    fn at(&self, kind: K, now: Instant) -> Option<u64> {
        let mut kinds = lock(&self.0);
        let Some(known) = kinds.iter_mut().find(|known| known.kind == kind) else {
            kinds.push(Kind { kind, began: now, written: 1, left_out: 0 });
            return Some(0);
        };
        if now.duration_since(known.began) >= WINDOW {
            (known.began, known.written) = (now, 0);
        }
        if known.written == MOST {
            known.left_out += 1;
            return None;
        }
        known.written += 1;
        Some(std::mem::take(&mut known.left_out))
    }
}

impl<K: PartialEq> Default for Quiet<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_writes_a_few_lines_and_says_how_many_it_left_out() {
        let (quiet, start) = (Quiet::new(), Instant::now());
        let ask = |kind, ms| quiet.at(kind, start + Duration::from_millis(ms));
        let written = (0..60_000).filter_map(|at| ask("a", at * 5)).collect::<Vec<_>>();
        assert_eq!(written.len(), 300 / 10 * MOST as usize, "five minutes");
        assert_eq!(written.iter().sum::<u64>() + written.len() as u64, 60_000 - (2000 - u64::from(MOST)));
        assert_eq!(ask("b", 1), Some(0), "another kind is not held back");
        assert_eq!(ask("a", 400_000), Some(2000 - u64::from(MOST)));
    }
}
