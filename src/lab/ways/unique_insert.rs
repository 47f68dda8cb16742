//! A unique index: two tickets for one seat cannot exist. Nothing is read first.

use diesel::sql_types::Integer;
use diesel_async::RunQueryDsl;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::lab::ground::{Fault, Ground};
use crate::lab::steps::{Answer, Ask};
use crate::lab::way::{About, Way};

pub struct UniqueInsert;

impl Way for UniqueInsert {
    fn about(&self) -> About {
        About {
            name: "unique insert",
            english: "The last line of defence that every other strategy should have behind it: whatever the program \
                      does wrong, the database keeps one ticket a seat. Alone it lets the whole crowd through to the \
                      database, and tells people at the till that they came too late.",
            korean: "다른 모든 방법 뒤에 있어야 할 마지막 방어선이다. 프로그램이 무엇을 잘못하든 데이터베이스가 좌석마다 \
                     표 한 장을 지킨다. 혼자서는 모든 사람을 데이터베이스까지 들이고, 계산대에서야 늦었다고 알린다.",
        }
    }

    fn counts(&self) -> bool {
        false
    }

    fn change<'a>(&'a self, ground: &'a Ground, ask: Ask) -> BoxFuture<'a, Result<Answer, Fault>> {
        insert(ground, ask).boxed()
    }
}

pub async fn insert(ground: &Ground, ask: Ask) -> Result<Answer, Fault> {
    let mut conn = ground.connection().await?;
    let insert =
        diesel::sql_query("INSERT INTO zticket_lab.sales (item, buyer) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    let written = insert.bind::<Integer, _>(ask.item).bind::<Integer, _>(ask.buyer).execute(&mut conn).await?;
    Ok(if written == 1 { Answer::Done } else { Answer::Refused })
}
