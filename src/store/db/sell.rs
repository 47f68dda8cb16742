//! The statement that sells.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DbError};
use diesel::serialize::ToSql;
use diesel::sql_types::{Array, BigInt, HasSqlType, Integer, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use tracing::instrument;
use uuid::Uuid;

use crate::base::ids::{EventId, OrderId, PersonId, Place, SeatNumber, TicketId};
use crate::store::db::pool::Conn;
use crate::store::db::statement::Statement;
use crate::store::db::tickets::{LIMIT, TicketRow};

/// A purchase to write: all of its seats, or none.
#[derive(Debug, Clone)]
pub struct NewOrder {
    pub id: OrderId,
    pub event: EventId,
    pub place: Place,
    pub token: Uuid,
    /// The person who pays; free seats need none.
    pub person: Option<PersonId>,
    pub seats: Vec<(TicketId, SeatNumber)>,
    /// How many tickets of the event this person may have; `None`: any number.
    pub most: Option<u32>,
}

/// How an order went.
#[derive(Debug, Clone)]
pub enum Sold {
    Sold(Vec<TicketRow>),
    /// A seat is sold, or the place has its order already.
    Refused,
    /// The person would have too many tickets of the event.
    TooMany {
        limit: u32,
        owned: u32,
    },
    /// The balance is too low, and nothing else was in the way.
    TooPoor {
        balance: i64,
        total: i64,
    },
}

/// Why a statement failed as a whole.
#[derive(Debug)]
pub enum Failure {
    /// Another server sold at the same moment.
    Conflict,
    /// The person got tickets of the event elsewhere at the same moment, and would have too many with these.
    LimitPassed,
    /// The database cannot write at the moment. Nothing was written.
    ReadOnly(String),
    /// The database said no to one of the orders. Nothing was written.
    Refused(String),
    /// Anything else: nobody knows whether the commit happened, because a connection can break after it as well as before.
    Unknown(String),
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Self {
        use DatabaseErrorKind as Kind;
        match &error {
            DbError::DatabaseError(Kind::UniqueViolation | Kind::SerializationFailure, _) => Self::Conflict,
            DbError::DatabaseError(Kind::CheckViolation, info) if info.constraint_name() == Some(LIMIT) => {
                Self::LimitPassed
            }
            DbError::DatabaseError(Kind::ReadOnlyTransaction, _) => Self::ReadOnly(error.to_string()),
            DbError::DatabaseError(Kind::CheckViolation | Kind::NotNullViolation | Kind::ForeignKeyViolation, _) => {
                Self::Refused(error.to_string())
            }
            _ => Self::Unknown(error.to_string()),
        }
    }
}

/// Sells to many buyers in one commit: see `sql/sell.sql`. The answers are in the order of `asked`. No seat, place or
/// person may appear in two orders of one call.
#[instrument(level = "debug", skip_all)]
pub async fn sell(conn: &mut Conn, asked: &[NewOrder]) -> Result<Vec<Sold>, Failure> {
    let seats = || asked.iter().flat_map(|order| order.seats.iter().map(move |seat| (order, seat)));
    let rows: Vec<AnswerRow> = Sell {
        tickets: seats().map(|(_, (ticket, _))| ticket.0).collect(),
        orders: seats().map(|(order, _)| order.id.0).collect(),
        events: seats().map(|(order, _)| order.event.db()).collect(),
        places: seats().map(|(order, _)| order.place.db()).collect(),
        seats: seats().map(|(_, (_, seat))| seat.db()).collect(),
        tokens: seats().map(|(order, _)| order.token).collect(),
        people: seats().map(|(order, _)| order.person.map(|person| person.0)).collect(),
        parties: seats().map(|(order, _)| i64::try_from(order.seats.len()).unwrap_or(i64::MAX)).collect(),
        limits: seats().map(|(order, _)| order.most.map(|most| i32::try_from(most).unwrap_or(i32::MAX))).collect(),
    }
    .load(conn)
    .await
    .map_err(Failure::from)?;
    let rows: HashMap<Uuid, AnswerRow> = rows.into_iter().map(|row| (row.0, row)).collect();
    Ok(asked.iter().map(|order| how_it_went(order, &rows)).collect())
}

/// Ticket, seat version, price, time of sale, total, balance, tickets owned before, and how many may be: all but the first
/// null where they do not apply.
type AnswerRow =
    (Uuid, Option<i64>, Option<i64>, Option<DateTime<Utc>>, Option<i64>, Option<i64>, Option<i32>, Option<i32>);

fn how_it_went(order: &NewOrder, rows: &HashMap<Uuid, AnswerRow>) -> Sold {
    let sold = |(id, seat): &(TicketId, SeatNumber)| match rows.get(&id.0) {
        Some((_, Some(seat_version), Some(price), Some(sold_at), ..)) => Some(TicketRow {
            id: id.0,
            order_id: order.id.0,
            user_id: order.person.map(|person| person.0),
            event_id: order.event.db(),
            place: order.place.db(),
            seat_number: seat.db(),
            price: *price,
            seat_version: *seat_version,
            status: "PAID".to_owned(),
            sold_at: *sold_at,
            cancelled_at: None,
            queue_token: order.token,
        }),
        _ => None,
    };
    if let Some(tickets) = order.seats.iter().map(sold).collect() {
        return Sold::Sold(tickets);
    }
    let more = i32::try_from(order.seats.len()).unwrap_or(i32::MAX);
    match order.seats.as_slice().first().and_then(|(id, _)| rows.get(&id.0)) {
        Some((.., Some(owned), Some(most))) if owned.saturating_add(more) > *most => {
            Sold::TooMany { limit: most.cast_unsigned(), owned: owned.cast_unsigned() }
        }
        Some((.., Some(total), Some(balance), _, _)) if balance < total => {
            Sold::TooPoor { balance: *balance, total: *total }
        }
        _ => Sold::Refused,
    }
}

/// One entry a seat in each list.
#[derive(QueryId)]
struct Sell {
    tickets: Vec<Uuid>,
    orders: Vec<Uuid>,
    events: Vec<i32>,
    places: Vec<i64>,
    seats: Vec<i32>,
    tokens: Vec<Uuid>,
    people: Vec<Option<Uuid>>,
    parties: Vec<i64>,
    limits: Vec<Option<i32>>,
}

impl Query for Sell {
    type SqlType = (
        SqlUuid,
        Nullable<BigInt>,
        Nullable<BigInt>,
        Nullable<Timestamptz>,
        Nullable<BigInt>,
        Nullable<BigInt>,
        Nullable<Integer>,
        Nullable<Integer>,
    );
}

impl QueryFragment<Pg> for Sell {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut sql = Statement::new(include_str!("sql/sell.sql"));
        fn value<'b, T, U>(sql: &mut Statement, out: &mut AstPass<'_, 'b, Pg>, value: &'b U) -> QueryResult<()>
        where
            Pg: HasSqlType<T>,
            U: ToSql<T, Pg>,
        {
            sql.write_to_value(out);
            out.push_bind_param::<T, U>(value)
        }
        value::<Array<SqlUuid>, _>(&mut sql, &mut out, &self.tickets)?;
        value::<Array<SqlUuid>, _>(&mut sql, &mut out, &self.orders)?;
        value::<Array<Integer>, _>(&mut sql, &mut out, &self.events)?;
        value::<Array<BigInt>, _>(&mut sql, &mut out, &self.places)?;
        value::<Array<Integer>, _>(&mut sql, &mut out, &self.seats)?;
        value::<Array<SqlUuid>, _>(&mut sql, &mut out, &self.tokens)?;
        value::<Array<Nullable<SqlUuid>>, _>(&mut sql, &mut out, &self.people)?;
        value::<Array<BigInt>, _>(&mut sql, &mut out, &self.parties)?;
        value::<Array<Nullable<Integer>>, _>(&mut sql, &mut out, &self.limits)?;
        sql.write_rest(&mut out);
        Ok(())
    }
}
