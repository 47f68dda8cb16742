//! Long lists, one page at a time. A cursor names the last item shown, so that items added in between are neither skipped
//! nor shown twice.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::OrderId;

const USUAL: u32 = 20;
const LARGEST: u32 = 100;

/// Which page the caller asks for.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
    /// Items on a page: 20 if not given.
    #[param(minimum = 1, maximum = 100)]
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
    pub fn new(cursor: Option<String>, limit: Option<u32>) -> Self {
        Self { cursor, limit }
    }

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

    /// How many items to read: one more than is shown tells whether there is another page.
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

    /// For lists of orders: the last one shown.
    pub fn before_order(&self) -> Result<Option<OrderId>, Error> {
        self.cursor.is_some().then(|| self.from(OrderId(Uuid::nil()))).transpose()
    }

    /// Cuts the items to one page, and says where the next one begins.
    pub fn of<T>(&self, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> PageOf<T> {
        let more = items.len() > self.limit();
        items.truncate(self.limit());
        let next_cursor = items.last().filter(|_| more).map(cursor);
        PageOf { items, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::web::Query;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_query_is_a_page_or_none(query in r"(limit|cursor|x)=[-+0-9a-z%]{0,12}(&(limit|cursor)=[0-9]{0,3})?|\\PC{0,40}") {
            let Ok(Query(page)) = Query::<Page>::from_query(&query) else { return Ok(()) };
            if let Ok(page) = page.check() {
                prop_assert!((2..=i64::from(LARGEST) + 1).contains(&page.most()));
                let _ = (page.from(0_i64), page.before_uuid());
            }
        }

        #[test]
        fn pages_show_everything_once(count in 0..60_i64, limit in 1..=LARGEST) {
            let (mut shown, mut cursor) = (Vec::new(), None);
            loop {
                let page = Page { cursor, limit: Some(limit) }.check().unwrap();
                let after = page.from(-1_i64).unwrap();
                let read = (0..count).filter(|item| *item > after).take(page.most() as usize).collect();
                let PageOf { items, next_cursor } = page.of(read, ToString::to_string);
                prop_assert!(items.len() <= limit as usize);
                shown.extend(items);
                cursor = next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            prop_assert_eq!(shown, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn a_cursor_is_read_as_it_was_made(uuid: u128, number: i64) {
            let uuid = Uuid::from_u128(uuid);
            prop_assert_eq!(Page::after(Some(uuid.to_string())).before_uuid().unwrap(), uuid);
            prop_assert_eq!(Page::after(Some(number.to_string())).from(0).unwrap(), number);
        }
    }
}
