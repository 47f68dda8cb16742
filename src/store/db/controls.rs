//! What operators decided about events.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::control::{Control, Reason, State};
use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::store::db::pool::Conn;
use crate::store::db::schema::{controls, events};

#[derive(Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = controls)]
struct Row {
    event_id: i32,
    version: i64,
    state: String,
    reason: String,
    settings: serde_json::Value,
    was_paused: bool,
}

impl Row {
    fn control(self) -> Result<Control, Error> {
        Ok(Control {
            version: self.version,
            state: State::from_word(&self.state)
                .ok_or_else(|| Error::Internal(format!("a control has state {:?}", self.state)))?,
            reason: Reason::from_text(&self.reason),
            overrides: serde_json::from_value(self.settings).map_err(Error::internal)?,
            was_paused: self.was_paused,
        })
    }
}

/// Of every event that operators decided something about.
#[instrument(level = "debug", skip_all)]
pub async fn all(conn: &mut Conn) -> Result<Vec<(EventId, Control)>, Error> {
    let rows: Vec<Row> = controls::table.select(Row::as_select()).load(conn).await?;
    let known = rows.into_iter().filter_map(|row| Some((EventId::try_from(row.event_id).ok()?, row)));
    known.map(|(event, row)| Ok((event, row.control()?))).collect()
}

#[instrument(level = "debug", skip_all)]
pub async fn find(conn: &mut Conn, event: EventId) -> Result<Control, Error> {
    let row = controls::table.find(event.db()).select(Row::as_select()).first(conn).await.optional()?;
    row.map_or_else(|| Ok(Control::default()), Row::control)
}

/// The same, and until the transaction ends nobody else decides.
#[instrument(level = "debug", skip_all)]
pub async fn find_alone(conn: &mut Conn, event: EventId) -> Result<Control, Error> {
    let locked = events::table.find(event.db()).select(events::id).for_no_key_update();
    locked.first::<i32>(conn).await.optional()?.ok_or(Error::EventNotFound)?;
    find(conn, event).await
}

#[instrument(level = "debug", skip_all)]
pub async fn save(conn: &mut Conn, event: EventId, control: &Control) -> Result<(), Error> {
    let row = Row {
        event_id: event.db(),
        version: control.version,
        state: control.state.word().to_owned(),
        reason: Reason::text(control.reason.as_ref()),
        settings: serde_json::to_value(&control.overrides).map_err(Error::internal)?,
        was_paused: control.was_paused,
    };
    diesel::insert_into(controls::table)
        .values(&row)
        .on_conflict(controls::event_id)
        .do_update()
        .set((&row, controls::changed_at.eq(diesel::dsl::now)))
        .execute(conn)
        .await?;
    Ok(())
}
