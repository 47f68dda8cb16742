//! Sorted sets in Redis, with one script call to enter and one to poll.

use std::sync::LazyLock;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::Script;

use crate::lab::ground::{Fault, Ground, LabKey};
use crate::lab::line::Line;
use crate::lab::lines::sorted_set;
use crate::lab::way::About;

static ENTER: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local line, seen, next_place = unpack(KEYS)
         local place = redis.call('INCR', next_place)
         local time = redis.call('TIME')
         redis.call('ZADD', line, place, place)
         redis.call('ZADD', seen, time[1] * 1000 + math.floor(time[2] / 1000), place)
         return place",
    )
});
static POLL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "local line, seen = unpack(KEYS)
         local time = redis.call('TIME')
         redis.call('ZADD', seen, 'XX', time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])
         return (redis.call('ZRANK', line, ARGV[1]) or -1) + 1",
    )
});

pub struct SortedSetLua;

impl Line for SortedSetLua {
    fn about(&self) -> About {
        About {
            name: "sorted set, Lua",
            english: "One round trip each, and all or nothing. Redis still does each call by itself on its one thread, \
                      and each person costs two entries of a skip list.",
            korean: "왕복은 한 번씩이고, 전부 되거나 전혀 안 된다. 그래도 Redis는 호출 하나하나를 스레드 하나로 처리하고, \
                     한 사람마다 스킵 리스트 항목이 두 개 든다.",
        }
    }

    fn fill<'a>(&'a self, ground: &'a Ground, people: u32) -> BoxFuture<'a, Result<(), Fault>> {
        sorted_set::fill(ground, people.into()).boxed()
    }

    fn enter<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut call = ENTER.key(LabKey::Line.name());
            call.key(LabKey::Seen.name()).key(LabKey::Next.name());
            Ok(call.invoke_async(&mut ground.link.clone()).await?)
        }
        .boxed()
    }

    fn poll<'a>(&'a self, ground: &'a Ground, place: u64) -> BoxFuture<'a, Result<u64, Fault>> {
        async move {
            let mut call = POLL.key(LabKey::Line.name());
            call.key(LabKey::Seen.name()).arg(place);
            Ok(call.invoke_async(&mut ground.link.clone()).await?)
        }
        .boxed()
    }

    fn bytes<'a>(&'a self, ground: &'a Ground) -> BoxFuture<'a, Result<u64, Fault>> {
        sorted_set::bytes(ground).boxed()
    }
}
