//! A sorted set in Redis, one command at a time.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::AsyncCommands;

use crate::lab::ground::{Fault, Ground, LabKey};
use crate::lab::line::Line;
use crate::lab::way::About;

/// Most people that one command puts into the line.
const TOGETHER: u64 = 10_000;

pub struct SortedSet;

impl Line for SortedSet {
    fn about(&self) -> About {
        About {
            name: "sorted set, one command at a time",
            english: "Three round trips to enter, two to poll. Between them anything can happen: whoever dies after the \
                      first command has a number and no place.",
            korean: "들어갈 때 왕복 세 번, 물을 때 두 번. 그 사이에 무슨 일이든 생길 수 있다. 첫 명령 뒤에 죽으면 번호만 \
                     있고 자리가 없다.",
        }
    }

    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>> {
        fill(ground, people.into()).boxed()
    }

    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut link = ground.link.clone();
            let place: u64 = link.incr(LabKey::Next.name(), 1).await?;
            let _: () = link.zadd(LabKey::Line.name(), place, place).await?;
            let _: () = link.zadd(LabKey::Seen.name(), place, now_ms()).await?;
            Ok(place)
        }
        .boxed()
    }

    fn poll<'a>(&'a self, ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut link = ground.link.clone();
            let _: () = link.zadd(LabKey::Seen.name(), place, now_ms()).await?;
            let before: Option<u64> = link.zrank(LabKey::Line.name(), place).await?;
            Ok(before.map_or(0, |before| before + 1))
        }
        .boxed()
    }

    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        bytes(ground).boxed()
    }
}

fn now_ms() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// People 1 to `people`, all present.
pub async fn fill(ground: &Ground, people: u64) -> Result<(), Fault> {
    let (mut link, now) = (ground.link.clone(), now_ms());
    ground.clear_redis().await?;
    for first in (1..=people).step_by(TOGETHER as usize) {
        let places = first..=(first + TOGETHER - 1).min(people);
        let line: Vec<(u64, u64)> = places.clone().map(|place| (place, place)).collect();
        let seen: Vec<(i64, u64)> = places.map(|place| (now, place)).collect();
        let _: () = link.zadd_multiple(LabKey::Line.name(), &line).await?;
        let _: () = link.zadd_multiple(LabKey::Seen.name(), &seen).await?;
    }
    Ok(link.set(LabKey::Next.name(), people).await?)
}

/// Of the sorted sets.
pub async fn bytes(ground: &Ground) -> Result<u64, Fault> {
    Ok(ground.memory(LabKey::Line.name()).await? + ground.memory(LabKey::Seen.name()).await?)
}
