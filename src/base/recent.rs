//! The last warnings and errors of this server, for operators who cannot read its log.

use std::collections::VecDeque;
use std::sync::Mutex;

use chrono::{DateTime, Utc};

use crate::base::lock;

const KEPT: usize = 50;

/// One for the process, like the log.
pub static RECENT: Recent = Recent(Mutex::new(VecDeque::new()));

pub struct Recent(Mutex<VecDeque<Trouble>>);

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub at: DateTime<Utc>,
    /// An error rather than a warning.
    pub error: bool,
    pub text: String,
}

impl Recent {
    pub fn note(&self, error: bool, text: String) {
        let mut kept = lock(&self.0);
        kept.truncate(KEPT - 1);
        kept.push_front(Trouble { at: Utc::now(), error, text });
    }

    /// Newest first.
    pub fn list(&self) -> Vec<Trouble> {
        lock(&self.0).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_old_ones_are_forgotten() {
        let recent = Recent(Mutex::default());
        for number in 0..KEPT + 5 {
            recent.note(number % 2 == 0, number.to_string());
        }
        let list = recent.list();
        assert_eq!(list.len(), KEPT);
        assert_eq!((list[0].text.as_str(), list[0].error), ("54", true));
    }
}
