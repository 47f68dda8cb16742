//! Long lists, a page at a time. A cursor says after what to go on; it is made of the last thing shown, so that nothing is
//! skipped or shown twice when things are added meanwhile.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::Error;

const USUAL: u32 = 20;
const LARGEST: u32 = 100;

/// Which page is wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    cursor: Option<String>,
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageOf<T> {
    pub items: Vec<T>,
    /// Null on the last page.
    pub next_cursor: Option<String>,
}

impl Page {
    pub fn after(cursor: Option<String>) -> Self {
        Self { cursor, limit: None }
    }

    pub fn check(self) -> Result<Self, Error> {
        if self.limit.is_some_and(|limit| !(1..=LARGEST).contains(&limit)) {
            return Err(Error::InvalidRequest(format!("limit is a number from 1 to {LARGEST}.")));
        }
        Ok(self)
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(USUAL) as usize
    }

    /// How many to read: one more than is shown tells whether there is another page.
    pub fn most(&self) -> i64 {
        self.limit() as i64 + 1
    }

    /// The cursor as a number; without one, `first`.
    pub fn from<T: std::str::FromStr>(&self, first: T) -> Result<T, Error> {
        let wrong = || Error::InvalidRequest("cursor is the nextCursor of the page before.".to_owned());
        self.cursor.as_ref().map_or(Ok(first), |cursor| cursor.parse().map_err(|_| wrong()))
    }

    /// For lists that go down from the newest.
    pub fn before_uuid(&self) -> Result<Uuid, Error> {
        self.from(Uuid::max())
    }

    /// Cuts what was read to the page, and says where the next one begins.
    pub fn of<T>(&self, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> PageOf<T> {
        let more = items.len() > self.limit();
        items.truncate(self.limit());
        let next_cursor = items.last().filter(|_| more).map(cursor);
        PageOf { items, next_cursor }
    }
}
