//! What one web worker has to itself: a connection to Redis, so that a request wakes no other thread, and a bound on the
//! calls under way. The writer of orders has one too.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::base::error::Error;
use crate::store::redis::links::{Address, Link, link};

pub struct Lane {
    link: Link,
    /// How many more calls may begin.
    calls: AtomicUsize,
}

impl Lane {
    pub fn new(address: &Address, most_calls: usize) -> Result<Self, Error> {
        Ok(Self { link: link(address)?, calls: AtomicUsize::new(most_calls) })
    }

    pub fn link(&self) -> Link {
        self.link.clone()
    }

    /// The connection, for one call. Refuses at once if too many calls are under way.
    pub fn call(&self) -> Result<Call<'_>, Error> {
        let begun = self.calls.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        begun.map_err(|_| Error::Overloaded("calls to Redis"))?;
        Ok(Call { link: self.link(), calls: &self.calls })
    }
}

/// A call to Redis under way.
pub struct Call<'a> {
    pub link: Link,
    calls: &'a AtomicUsize,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.fetch_add(1, Relaxed);
    }
}
