//! What operators did. An entry is written in the transaction of the change it tells of.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use serde_json::Value;
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::Conn;
use crate::store::db::schema::audit_log;

/// Something an operator did.
#[derive(Debug, Clone)]
pub struct Entry {
    pub who: String,
    pub action: &'static str,
    pub event: Option<EventId>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = audit_log)]
pub struct EntryRow {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub who: String,
    pub action: String,
    pub event_id: Option<i32>,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

#[instrument(level = "debug", skip_all)]
pub async fn write(conn: &mut Conn, entry: &Entry) -> Result<(), Error> {
    let values = (
        audit_log::who.eq(&entry.who),
        audit_log::action.eq(entry.action),
        audit_log::event_id.eq(entry.event.map(EventId::db)),
        audit_log::before.eq(&entry.before),
        audit_log::after.eq(&entry.after),
    );
    diesel::insert_into(audit_log::table).values(values).execute(conn).await?;
    Ok(())
}

/// Newest first, starting before `cursor`; of one event, or of all.
#[instrument(level = "debug", skip_all)]
pub async fn read(conn: &mut Conn, event: Option<EventId>, cursor: i64, most: i64) -> Result<Vec<EntryRow>, Error> {
    let entries = audit_log::table
        .filter(audit_log::id.lt(cursor))
        .select(EntryRow::as_select())
        .order(audit_log::id.desc())
        .limit(most);
    Ok(match event {
        Some(event) => entries.filter(audit_log::event_id.eq(event.db())).load(conn).await?,
        None => entries.load(conn).await?,
    })
}
