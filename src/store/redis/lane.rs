//! What one web worker has to itself: a connection to Redis, so that a request wakes no other thread, and a bound on the
//! calls under way.

use std::cell::Cell;

use crate::base::error::Error;
use crate::store::redis::links::{Address, Link, link};

pub struct Lane {
    link: Link,
    /// How many more calls may begin.
    calls: Cell<usize>,
}

impl Lane {
    pub fn new(address: &Address, most_calls: usize) -> Result<Self, Error> {
        Ok(Self { link: link(address)?, calls: Cell::new(most_calls) })
    }

    pub fn link(&self) -> Link {
        self.link.clone()
    }

    /// The connection, for one call. Refuses at once if too many calls are under way.
    pub fn call(&self) -> Result<Call<'_>, Error> {
        let left = self.calls.get().checked_sub(1).ok_or(Error::Overloaded("calls to Redis"))?;
        self.calls.set(left);
        Ok(Call { link: self.link(), calls: &self.calls })
    }
}

/// A call to Redis under way.
pub struct Call<'a> {
    pub link: Link,
    calls: &'a Cell<usize>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.set(self.calls.get() + 1);
    }
}
