//! What a waiting line is to the lab.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::way::About;

/// A way to keep a line. Everyone in it was given a place from 1 on, and nobody leaves while it is measured, so the place is
/// also the rank that a poll must answer.
pub trait Line: Send + Sync {
    fn about(&self) -> About;

    /// Puts the first people into an empty line, fast.
    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>>;

    /// One more person joins. Returns the place.
    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>>;

    /// The rank of the person with this place, who counts as present from now on.
    fn poll<'a>(&'a self, ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>>;

    /// What the line takes up in its store, in bytes.
    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>>;

    /// Ends what works in the background.
    fn finish<'a>(&'a self, _ground: &'a Ground) -> BoxFuture<'a, Result<(), Fault>> {
        async { Ok(()) }.boxed()
    }
}
