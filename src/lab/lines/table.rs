//! A table in PostgreSQL, as at a bank counter: take a number, and count the people before you.

use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::line::Line;
use crate::lab::way::About;

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

/// Most people that one statement puts into the line.
const TOGETHER: u32 = 100_000;

pub struct Table;

impl Line for Table {
    fn about(&self) -> About {
        About {
            name: "table",
            english: "Take a number, count those before you. Each poll counts them again, so the line gets slower the \
                      longer it is, just when it matters; and each poll is a write, too.",
            korean: "번호표를 뽑고 앞사람을 센다. 물을 때마다 다시 세므로 줄이 길수록, 하필 중요한 때에 느려진다. \
                     게다가 물을 때마다 쓰기도 한 번이다.",
        }
    }

    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            conn.batch_execute("TRUNCATE zticket_lab.line RESTART IDENTITY").await?;
            // A statement may take five seconds.
            for first in (0..people).step_by(TOGETHER as usize) {
                let some = i64::from((people - first).min(TOGETHER));
                let fill =
                    diesel::sql_query("INSERT INTO zticket_lab.line (seen) SELECT now() FROM generate_series(1, $1)");
                fill.bind::<BigInt, _>(some).execute(&mut conn).await?;
            }
            conn.batch_execute("VACUUM ANALYZE zticket_lab.line").await?;
            Ok(())
        }
        .boxed()
    }

    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let insert = diesel::sql_query("INSERT INTO zticket_lab.line DEFAULT VALUES RETURNING place AS number");
            Ok(insert.get_result::<Number>(&mut ground.connection().await?).await?.number.cast_unsigned())
        }
        .boxed()
    }

    fn poll<'a>(&'a self, ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut conn = ground.connection().await?;
            let seen = diesel::sql_query("UPDATE zticket_lab.line SET seen = now() WHERE place = $1");
            seen.bind::<BigInt, _>(place.cast_signed()).execute(&mut conn).await?;
            let count = diesel::sql_query("SELECT count(*) AS number FROM zticket_lab.line WHERE place <= $1");
            let count = count.bind::<BigInt, _>(place.cast_signed());
            Ok(count.get_result::<Number>(&mut conn).await?.number.cast_unsigned())
        }
        .boxed()
    }

    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let size = diesel::sql_query("SELECT pg_total_relation_size('zticket_lab.line') AS number");
            Ok(size.get_result::<Number>(&mut ground.connection().await?).await?.number.cast_unsigned())
        }
        .boxed()
    }
}
