//! Breaks each promise once, behind the servers' back, to see that the checks find it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use zticket::base::ids::EventId;
use zticket::store::redis::keys::{Key, Keys};
use zticket_testkit::Outcome;

use crate::world::{Rule, World, lock};

/// The rules that are broken, in turn.
pub const BROKEN: [Rule; 10] = [
    Rule::NobodyOvertakes,
    Rule::PollingGetsIn,
    Rule::NeverTooManyInside,
    Rule::NothingOutlivesItsDeadline,
    Rule::NoSeatTwice,
    Rule::NoTicketLost,
    Rule::MoneyIsConserved,
    Rule::DatabaseAndRedisAgree,
    Rule::PlacesFollowPeople,
    Rule::MemoryFollowsPeople,
];

const EVERY: Duration = Duration::from_secs(2);

pub async fn run(world: Arc<World>, until: Instant) -> Outcome<()> {
    for rule in BROKEN {
        tokio::time::sleep(EVERY).await;
        // There may be nobody in line just now.
        while !break_it(&world, rule).await? {
            if Instant::now() > until {
                return Err(format!("there was no opportunity to break \"{rule}\"").into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        world.say(&format!("broken on purpose: {rule}"));
    }
    Ok(())
}

/// Whether there was something to break.
async fn break_it(world: &World, rule: Rule) -> Outcome<bool> {
    match rule {
        Rule::NobodyOvertakes | Rule::PollingGetsIn => take_out_of_line(world, rule == Rule::NobodyOvertakes).await,
        Rule::NeverTooManyInside => crowd_inside(world).await,
        Rule::NothingOutlivesItsDeadline => stretch_a_hold(world).await,
        Rule::NoSeatTwice => sell_twice(world).await,
        Rule::NoTicketLost => lose_a_ticket(world).await,
        Rule::MoneyIsConserved => charge_twice(world).await,
        Rule::DatabaseAndRedisAgree => mark_a_free_seat(world).await,
        Rule::PlacesFollowPeople => {
            world.stage.db.execute("UPDATE events SET ceiling = ceiling + 100000000 WHERE id = 1").await?;
            Ok(true)
        }
        Rule::MemoryFollowsPeople => {
            // Gone with the slice.
            let (mut conn, keys) = (world.stage.redis().await?, free_event()?);
            let () = conn.setrange(keys.get(Key::Pulse0), 8 << 20, "x").await?;
            Ok(true)
        }
        Rule::OrdersEnd | Rule::NoPlaceTwice | Rule::NoOtherFault => Ok(true),
    }
}

/// The event that is sold for free.
fn free_event() -> Outcome<Keys> {
    Ok(Keys::new(EventId::try_from(1)?))
}

/// Lets the last one in before all others, or makes one in the middle lose the place.
async fn take_out_of_line(world: &World, last: bool) -> Outcome<bool> {
    let mut conn = world.stage.redis().await?;
    let Some((event, place)) = someone_waiting(world, last) else { return Ok(false) };
    let keys = Keys::new(EventId::try_from(event)?);
    let meta = keys.get(Key::Meta);
    let (base, now, inside): (u32, i64, usize) =
        redis::pipe().hget(meta, "base").hget(meta, "now").zcard(keys.get(Key::Passes)).query_async(&mut conn).await?;
    if last && inside >= world.stage.max_active {
        return Ok(false);
    }
    let was: bool = conn.setbit(keys.get(Key::Line), (place - base) as usize, false).await?;
    if !was {
        return Ok(false);
    }
    let mut pipe = redis::pipe();
    pipe.atomic().hincr(meta, "waiting", -1).hincr(meta, "line_version", 1);
    if last {
        pipe.zadd(keys.get(Key::Passes), place, now + 5000).hset(keys.get(Key::Limits), place, now + 5000);
        pipe.hincr(meta, "passes_version", 1);
    }
    let () = pipe.query_async(&mut conn).await?;
    Ok(true)
}

async fn crowd_inside(world: &World) -> Outcome<bool> {
    let (mut conn, keys) = (world.stage.redis().await?, free_event()?);
    let now: i64 = conn.hget(keys.get(Key::Meta), "now").await?;
    let mut pipe = redis::pipe();
    for place in 4_000_000_000_u32..4_000_000_100 {
        pipe.zadd(keys.get(Key::Passes), place, now + 1500).hset(keys.get(Key::Limits), place, now + 1500);
    }
    let () = pipe.atomic().query_async(&mut conn).await?;
    Ok(true)
}

async fn stretch_a_hold(world: &World) -> Outcome<bool> {
    let (mut conn, keys) = (world.stage.redis().await?, free_event()?);
    let ends = keys.get(Key::HoldEnds);
    let held: Vec<(u32, f64)> = conn.zrange_withscores(ends, 0, 0).await?;
    let Some((seat, deadline)) = held.first() else { return Ok(false) };
    let stretched = deadline + 3_600_000.0;
    let () = conn.zadd(ends, seat, stretched).await?;
    // Time for several looks.
    tokio::time::sleep(Duration::from_millis(500)).await;
    // If it was sold or given back meanwhile, nobody may have seen it: then another hold has to do. The same if it is part of
    // an order that waits: its clock stands still.
    let left: Option<f64> = conn.zscore(ends, seat).await?;
    let frozen: Vec<String> = conn.hvals(keys.get(Key::Frozen)).await?;
    let waits = frozen.iter().any(|record| record.contains(&format!(" {seat}:")));
    // As it was.
    let () = redis::cmd("ZADD").arg(ends).arg("XX").arg(*deadline).arg(seat).query_async(&mut conn).await?;
    Ok(left == Some(stretched) && !waits)
}

async fn sell_twice(world: &World) -> Outcome<bool> {
    let db = &world.stage.db;
    if db.number("SELECT count(*) AS n FROM tickets WHERE event_id = 1").await? == 0 {
        return Ok(false);
    }
    let twice = "DROP INDEX IF EXISTS tickets_one_per_seat;
        INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token)
        SELECT gen_random_uuid(), order_id, event_id, seat_number, seat_version, price, queue_token
        FROM tickets WHERE event_id = 1 AND status <> 'CANCELLED' ORDER BY sold_at LIMIT 1";
    db.execute(twice).await?;
    Ok(true)
}

async fn lose_a_ticket(world: &World) -> Outcome<bool> {
    // The latest: the oldest was sold twice.
    let told = lock(&world.stories).iter().rev().find_map(|story| {
        let story = lock(story);
        let ticket = story.tickets.first().filter(|ticket| !ticket.cancelled && story.event == 1);
        ticket.map(|ticket| ticket.id)
    });
    let Some(id) = told else { return Ok(false) };
    world.stage.db.execute(&format!("DELETE FROM tickets WHERE id = '{id}'")).await?;
    Ok(true)
}

async fn charge_twice(world: &World) -> Outcome<bool> {
    let db = &world.stage.db;
    let twice = "UPDATE users SET balance = balance - 1000 WHERE id =
        (SELECT user_id FROM payments JOIN users ON users.id = user_id WHERE balance >= 1000 LIMIT 1)";
    if db.number("SELECT count(*) AS n FROM payments").await? == 0 {
        return Ok(false);
    }
    db.execute(twice).await?;
    Ok(true)
}

/// Redis says that it is sold.
async fn mark_a_free_seat(world: &World) -> Outcome<bool> {
    let (mut conn, keys) = (world.stage.redis().await?, free_event()?);
    let states: Vec<u8> = conn.get(keys.get(Key::Seats)).await?;
    let Some(free) = states.iter().position(|state| *state == b'a') else { return Ok(false) };
    let mut pipe = redis::pipe();
    pipe.atomic().setrange(keys.get(Key::Seats), free as isize, "s").hincr(keys.get(Key::Meta), "sold", 1);
    let () = pipe.hincr(keys.get(Key::Meta), "seats_version", 1).query_async(&mut conn).await?;
    Ok(true)
}

/// The last or the middle visitor in line who has polled lately.
fn someone_waiting(world: &World, last: bool) -> Option<(i32, u32)> {
    let stories = lock(&world.stories);
    let waiting = stories.iter().filter_map(|story| {
        let story = lock(story);
        let lately = story.polls.len() > 2 && story.polls.back()?.answered.elapsed() < Duration::from_secs(3);
        (story.waiting && lately).then_some((story.event, story.place))
    });
    let mut waiting: Vec<_> = waiting.collect();
    waiting.sort_by_key(|(event, place)| (*place, *event));
    // There must be visitors in front to overtake.
    if waiting.len() < 20 {
        return None;
    }
    if last { waiting.pop() } else { waiting.get(waiting.len() / 2).copied() }
}
