//! Sorted sets in Redis, where people who come together travel together: one script call for many.

use std::sync::{LazyLock, OnceLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::Script;

use crate::lab::ground::{Fault, Ground, LabKey};
use crate::lab::line::Line;
use crate::lab::lines::sorted_set;
use crate::lab::way::About;
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::redis::links::Link;

const CAPACITY: Capacity = Capacity { waiting: 10_000, together: 500, at_once: 2 };

static ENTER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local line, seen, next_place = unpack(KEYS)
         local count, time = tonumber(ARGV[1]), redis.call('TIME')
         local now = time[1] * 1000 + math.floor(time[2] / 1000)
         local last = redis.call('INCRBY', next_place, count)
         for place = last - count + 1, last do
           redis.call('ZADD', line, place, place)
           redis.call('ZADD', seen, now, place)
         end
         return last - count + 1",
    )
});
static POLL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local line, seen = unpack(KEYS)
         local time = redis.call('TIME')
         local now, ranks = time[1] * 1000 + math.floor(time[2] / 1000), {}
         for at, place in ipairs(ARGV) do
           redis.call('ZADD', seen, 'XX', now, place)
           ranks[at] = (redis.call('ZRANK', line, place) or -1) + 1
         end
         return ranks",
    )
});

#[derive(Default)]
pub struct SortedSetGathered {
    gathers: OnceLock<(Gather<(), u64>, Gather<u64, u64>)>,
}

impl SortedSetGathered {
    fn gathers(&self, ground: &Ground) -> &(Gather<(), u64>, Gather<u64, u64>) {
        self.gathers.get_or_init(|| {
            let link = ground.link.clone();
            let (enter, entering) = Gather::new("entering", CAPACITY, move |batch| enter(link.clone(), batch));
            let link = ground.link.clone();
            let (poll, polling) = Gather::new("polling", CAPACITY, move |batch| poll(link.clone(), batch));
            tokio::spawn(entering);
            tokio::spawn(polling);
            (enter, poll)
        })
    }
}

impl Line for SortedSetGathered {
    fn about(&self) -> About {
        About {
            name: "sorted set, Lua, gathered",
            english: "The next call gathers people while the last one is under way, so the load makes its own batches. \
                      Fewer messages; the work inside Redis stays: two entries of a skip list a person.",
            korean: "앞의 호출이 도는 동안 다음 사람들이 모이므로, 부하가 스스로 묶음을 만든다. 메시지는 줄지만 Redis 안의 \
                     일은 그대로다. 한 사람에 스킵 리스트 항목 두 개.",
        }
    }

    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>> {
        sorted_set::fill(ground, people.into()).boxed()
    }

    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move { Ok(self.gathers(ground).0.ask(()).await?) }.boxed()
    }

    fn poll<'a>(&'a self, ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>> {
        async move { Ok(self.gathers(ground).1.ask(place).await?) }.boxed()
    }

    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        sorted_set::bytes(ground).boxed()
    }
}

async fn enter(mut link: Link, batch: Batch<(), u64>) {
    let mut call = ENTER.key(LabKey::Line.name());
    call.key(LabKey::Seen.name()).key(LabKey::Next.name()).arg(batch.len());
    let places = call.invoke_async::<u64>(&mut link).await.map(|first| (first..).take(batch.len()).collect());
    answer(batch, places);
}

async fn poll(mut link: Link, batch: Batch<u64, u64>) {
    let mut call = POLL.key(LabKey::Line.name());
    call.key(LabKey::Seen.name());
    for (place, _) in &batch {
        call.arg(*place);
    }
    let ranks = call.invoke_async::<Vec<u64>>(&mut link).await;
    answer(batch, ranks);
}

fn answer<Q>(batch: Batch<Q, u64>, answers: Result<Vec<u64>, redis::RedisError>) {
    match answers {
        Ok(answers) => batch.into_iter().zip(answers).for_each(|((_, tell), number)| drop(tell.send(Ok(number)))),
        Err(error) => {
            let error = crate::base::error::Error::from(error);
            batch.into_iter().for_each(|(_, tell)| drop(tell.send(Err(error.clone()))));
        }
    }
}
