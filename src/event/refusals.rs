//! What was refused, counted by reason until it is saved.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::base::error::Error;
use crate::base::lock;

#[derive(Default)]
pub struct Refusals(Mutex<BTreeMap<&'static str, u64>>);

impl Refusals {
    /// Counts an error, and passes the outcome on.
    pub fn heed<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &outcome {
            let (_, code, _) = error.public();
            self.add(code, 1);
        }
        outcome
    }

    /// The counts so far. They start over.
    pub fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *lock(&self.0))
    }

    pub fn add(&self, code: &'static str, times: u64) {
        *lock(&self.0).entry(code).or_default() += times;
    }
}
