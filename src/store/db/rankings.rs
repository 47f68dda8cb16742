//! Counting for the rankings.

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use tracing::instrument;

use crate::base::error::Error;
use crate::base::ids::ConcertId;
use crate::store::db::pool::Conn;

/// Today and this week in the configured time zone. Weeks begin on Monday.
#[derive(Debug, Clone, QueryableByName)]
pub struct Calendar {
    #[diesel(sql_type = Timestamptz)]
    pub now: DateTime<Utc>,
    /// Such as 2026-11-16.
    #[diesel(sql_type = Text)]
    pub day: String,
    #[diesel(sql_type = Timestamptz)]
    pub day_began: DateTime<Utc>,
    #[diesel(sql_type = Timestamptz)]
    pub day_ends: DateTime<Utc>,
    /// Such as 2026-W47.
    #[diesel(sql_type = Text)]
    pub week: String,
    #[diesel(sql_type = Timestamptz)]
    pub week_began: DateTime<Utc>,
}

#[derive(Debug, Clone, QueryableByName)]
pub struct Count {
    #[diesel(sql_type = Timestamptz)]
    pub as_of: DateTime<Utc>,
    #[diesel(sql_type = Integer)]
    pub concert_id: i32,
    /// From the opening to the last seat, ms.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub sold_out_ms: Option<i64>,
    #[diesel(sql_type = BigInt)]
    pub in_all: i64,
    #[diesel(sql_type = BigInt)]
    pub this_week: i64,
    #[diesel(sql_type = BigInt)]
    pub today: i64,
}

#[instrument(level = "debug", skip_all)]
pub async fn calendar(conn: &mut Conn, time_zone: &str) -> Result<Calendar, Error> {
    Ok(diesel::sql_query(
        "SELECT now() AS now,
                to_char(local, 'YYYY-MM-DD') AS day,
                date_trunc('day', local) AT TIME ZONE $1 AS day_began,
                (date_trunc('day', local) + interval '1 day') AT TIME ZONE $1 AS day_ends,
                to_char(local, 'IYYY-\"W\"IW') AS week,
                date_trunc('week', local) AT TIME ZONE $1 AS week_began
         FROM (SELECT now() AT TIME ZONE $1 AS local) AS here",
    )
    .bind::<Text, _>(time_zone)
    .get_result(conn)
    .await?)
}

/// Tickets sold and not cancelled, of these concerts. Reads the living tickets of their dates, and no others.
#[instrument(level = "debug", skip_all)]
pub async fn count(conn: &mut Conn, calendar: &Calendar, of: &[ConcertId]) -> Result<Vec<Count>, Error> {
    Ok(diesel::sql_query(
        "SELECT now() AS as_of, c.id AS concert_id,
                (extract(epoch FROM c.sold_out_at - c.opens_at) * 1000)::bigint AS sold_out_ms,
                coalesce(sum(t.in_all), 0)::bigint AS in_all,
                coalesce(sum(t.this_week), 0)::bigint AS this_week,
                coalesce(sum(t.today), 0)::bigint AS today
         FROM concerts c
         LEFT JOIN events e ON e.concert_id = c.id
         LEFT JOIN LATERAL (
           SELECT count(*) AS in_all,
                  count(*) FILTER (WHERE sold_at >= $2) AS this_week,
                  count(*) FILTER (WHERE sold_at >= $3) AS today
           FROM tickets WHERE event_id = e.id AND status <> 'CANCELLED'
         ) AS t ON true
         WHERE c.id = ANY ($1)
         GROUP BY c.id",
    )
    .bind::<Array<Integer>, _>(of.iter().map(|concert| concert.0).collect::<Vec<_>>())
    .bind::<Timestamptz, _>(calendar.week_began)
    .bind::<Timestamptz, _>(calendar.day_began)
    .load(conn)
    .await?)
}
