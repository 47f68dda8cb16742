//! Changes to what is offered, by operators: new concerts, and what may still change about concerts and events. Each is
//! written together with its entry in the audit log.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{ConcertId, EventId};
use crate::event::catalogue::Catalogue;
use crate::house::operators::Operator;
use crate::house::setup::{self, ConcertPlan};
use crate::store::db::audit_log::Entry;
use crate::store::db::concerts::ConcertRow;
use crate::store::db::events::EventRow;
use crate::store::db::pool::Conn;
use crate::store::{Stores, db};

pub struct Programme {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
}

/// What can change about a concert.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConcertChange {
    pub title: Option<String>,
    pub description: Option<String>,
    pub booking_opens_at: Option<DateTime<Utc>>,
    pub booking_closes_at: Option<DateTime<Utc>>,
    /// Refused with a reason rather than as unknown.
    #[schema(ignore)]
    dates: Option<Value>,
    #[schema(ignore)]
    layout: Option<Value>,
}

/// What can change about an event.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventChange {
    pub title: Option<String>,
    pub on_sale: Option<bool>,
    pub starts_at: Option<DateTime<Utc>>,
    /// Null: until it starts.
    #[serde(default, deserialize_with = "given")]
    pub cancel_until: Option<Option<DateTime<Utc>>>,
    pub one_place_per_person: Option<bool>,
    #[schema(ignore)]
    layout: Option<Value>,
    #[schema(ignore)]
    sections: Option<Value>,
    #[schema(ignore)]
    seats: Option<Value>,
    #[schema(ignore)]
    price: Option<Value>,
}

/// Tells null from not given.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(value).map(Some)
}

impl Programme {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>) -> Self {
        Self { stores, catalogue }
    }

    /// Sets up a concert.
    pub async fn add_concert(&self, who: &Operator, plan: ConcertPlan) -> Result<ConcertId, Error> {
        plan.check(Utc::now())?;
        let who = who.name.clone();
        self.noted(move |conn| {
            async move {
                let concert = setup::create(conn, &plan).await?;
                let after = json!({
                    "concertId": concert,
                    "title": plan.title,
                    "dates": plan.dates.iter().map(|date| date.starts_at).collect::<Vec<_>>(),
                    "seats": plan.layout.seats().count(),
                });
                let entry = Entry { who, action: "add concert", event: None, before: None, after: Some(after) };
                Ok((concert, Some(entry)))
            }
            .boxed()
        })
        .await
    }

    pub async fn change_concert(&self, who: &Operator, id: ConcertId, change: ConcertChange) -> Result<(), Error> {
        if change.layout.is_some() || change.dates.is_some() {
            return Err(Error::InvalidRequest(
                "The hall, its prices and the list of dates are set up once and do not change. The times of a date \
                 change with PATCH /api/admin/events/{event}."
                    .to_owned(),
            ));
        }
        let who = who.name.clone();
        self.noted(move |conn| {
            async move {
                let before = db::concerts::find_alone(conn, id).await?.ok_or(Error::ConcertNotFound)?;
                let mut after = before.clone();
                after.title = change.title.unwrap_or(after.title);
                after.description = change.description.unwrap_or(after.description);
                after.opens_at = change.booking_opens_at.unwrap_or(after.opens_at);
                after.closes_at = change.booking_closes_at.unwrap_or(after.closes_at);
                setup::check_concert(&after.title, &after.description, after.opens_at, after.closes_at)?;
                let (told_before, told_after) = (concert_told(&before), concert_told(&after));
                if told_before == told_after {
                    return Ok(((), None));
                }
                db::concerts::save(conn, &after).await?;
                let (before, after) = (Some(told_before), Some(told_after));
                Ok(((), Some(Entry { who, action: "change concert", event: None, before, after })))
            }
            .boxed()
        })
        .await
    }

    pub async fn change_event(&self, who: &Operator, event: EventId, change: EventChange) -> Result<(), Error> {
        let fixed = [&change.layout, &change.sections, &change.seats, &change.price];
        if fixed.into_iter().any(Option::is_some) {
            return Err(Error::InvalidRequest(
                "Seats and prices were announced when the event was set up, and do not change.".to_owned(),
            ));
        }
        let who = who.name.clone();
        self.noted(move |conn| {
            async move {
                let before = db::events::find_alone(conn, event).await?.ok_or(Error::EventNotFound)?;
                let mut after = before.clone();
                after.title = change.title.unwrap_or(after.title);
                after.on_sale = change.on_sale.unwrap_or(after.on_sale);
                after.starts_at = change.starts_at.or(after.starts_at);
                after.cancel_until = change.cancel_until.unwrap_or(after.cancel_until);
                after.one_place_per_person = change.one_place_per_person.unwrap_or(after.one_place_per_person);
                setup::check_title(&after.title)?;
                let times = |row: &EventRow| (row.starts_at, row.cancel_until);
                if times(&after) != times(&before) {
                    setup::check_date(after.starts_at, after.cancel_until, Utc::now())?;
                }
                let (told_before, told_after) = (event_told(&before), event_told(&after));
                if told_before == told_after {
                    return Ok(((), None));
                }
                db::events::save(conn, &after).await?;
                let (before, after) = (Some(told_before), Some(told_after));
                Ok(((), Some(Entry { who, action: "change event", event: Some(event), before, after })))
            }
            .boxed()
        })
        .await
    }

    /// Makes a change and its entry in the audit log, both or neither. What changes nothing has no entry. This server sees
    /// a change at once.
    async fn noted<T: Send + 'static>(
        &self,
        change: impl for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<(T, Option<Entry>), Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let done = self
            .stores
            .query(move |conn| {
                async move {
                    conn.transaction(async |conn| {
                        let (done, entry) = change(conn).await?;
                        if let Some(entry) = entry {
                            db::audit_log::write(conn, &entry).await?;
                        }
                        Ok::<_, Error>(done)
                    })
                    .await
                }
                .boxed()
            })
            .await?;
        self.catalogue.refresh().await?;
        Ok(done)
    }
}

fn concert_told(row: &ConcertRow) -> Value {
    json!({
        "concertId": row.id,
        "title": row.title,
        "description": row.description,
        "bookingOpensAt": row.opens_at,
        "bookingClosesAt": row.closes_at,
    })
}

fn event_told(row: &EventRow) -> Value {
    json!({
        "title": row.title,
        "onSale": row.on_sale,
        "startsAt": row.starts_at,
        "cancelUntil": row.cancel_until,
        "onePlacePerPerson": row.one_place_per_person,
    })
}
