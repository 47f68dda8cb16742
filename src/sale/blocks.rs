//! Whether places of a block may be told to visitors. The database decides, and is asked once for each block.

use std::sync::{Arc, Mutex};

use crate::base::error::Error;
use crate::base::ids::{EventId, Fetched};
use crate::base::lock;
use crate::event::Event;
use crate::event::per_event::PerEvent;
use crate::store::db::events::PLACES;
use crate::store::{Stores, db};

pub struct Blocks {
    stores: Arc<Stores>,
    events: PerEvent<Mutex<Known>>,
}

/// What the database said about the block of places in Redis.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Known {
    #[default]
    Nothing,
    /// It knows that places of this block are given out.
    Used(Fetched),
    /// Places of this block must not be given out: it was fetched again or replaced.
    Refused(Fetched),
    /// It did not answer.
    Unanswered(Fetched),
}

impl Blocks {
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores, events: PerEvent::default() }
    }

    /// Whether places of this block may be told to visitors. The first time, that is recorded in the database, and from
    /// then on no repair hands the block out again. If they may not, the next repair replaces the block.
    pub async fn may_use(&self, event: EventId, block: Fetched) -> Result<bool, Error> {
        let known = self.events.of(event);
        if block.fetch == 0 || *lock(&known) == Known::Used(block) {
            return Ok(true);
        }
        let db = self.stores.db.clone();
        let record = async move { db::events::use_block(&mut db.get().await?, event, block).await };
        let used = self.stores.run(record).await;
        *lock(&known) = match used {
            Ok(true) => Known::Used(block),
            Ok(false) => Known::Refused(block),
            Err(_) => Known::Unanswered(block),
        };
        used
    }

    /// Fails while the database cannot say whether places of the last block may be told to visitors: then it is better to
    /// take none.
    pub async fn check(&self, event: EventId) -> Result<(), Error> {
        let known = *lock(&self.events.of(event));
        match known {
            Known::Unanswered(block) => self.may_use(event, block).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Whether the database refused this block.
    pub fn is_refused(&self, event: EventId, block: Fetched) -> bool {
        *lock(&self.events.of(event)) == Known::Refused(block)
    }

    /// The end of the last block that this server knows of: in Redis, from its snapshot, or because it told visitors places
    /// of it. A database that knows of less hands out nothing.
    pub fn known_end(&self, event: &Event, in_redis: i64) -> i64 {
        let seen = event.snapshot.load().as_ref().map_or(0, |seen| i64::try_from(seen.meta.end).unwrap_or(PLACES));
        let told = match *lock(&self.events.of(event.id)) {
            Known::Used(block) => block.start + 1,
            _ => 0,
        };
        in_redis.max(seen).max(told)
    }
}
