//! What a strategy is.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask};

/// What the report says about a strategy or a line.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub name: &'static str,
    pub english: &'static str,
    pub korean: &'static str,
}

/// A strategy.
pub trait Way: Send + Sync {
    fn about(&self) -> About;

    /// Whether it has a bug, which the race is to show.
    fn broken(&self) -> bool {
        false
    }

    /// Whether it can do more than sell an item once.
    fn counts(&self) -> bool {
        true
    }

    /// Before a race with this many buyers and items.
    fn prepare<'a>(&'a self, _ground: &'a Ground, _buyers: i32, _items: i32) -> BoxFuture<'a, Result<(), Fault>> {
        async { Ok(()) }.boxed()
    }

    /// Called by all buyers at once.
    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>>;

    /// After a race.
    fn finish<'a>(&'a self, _ground: &'a Ground) -> BoxFuture<'a, Result<(), Fault>> {
        async { Ok(()) }.boxed()
    }
}
