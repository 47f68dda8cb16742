//! Compares the stores with the answers visitors got: the database all the time, Redis at the end.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use uuid::Uuid;
use zticket::base::ids::EventId;
use zticket::store::redis::keys::{Key, Keys};
use zticket_testkit::Outcome;

use crate::faults;
use crate::sql::{self, TicketRow};
use crate::world::{End, Rule, Story, Told, World, lock};

/// True at any moment, because every sale is one transaction.
pub async fn promises(world: &World) -> Outcome<()> {
    for promise in world.stage.db.broken_promises().await? {
        let seats = promise.contains("seat") || promise.contains("order is without");
        world.violated(if seats { Rule::NoSeatTwice } else { Rule::MoneyIsConserved }, promise);
    }
    Ok(())
}

/// Every ticket in an answer is in the database.
pub async fn told_is_true(world: &World) -> Outcome<()> {
    // Read first: answers that come later need not be in the rows.
    let told: Vec<(i32, u32, Told)> = lock(&world.stories)
        .iter()
        .filter(|story| !world.is_void(lock(story).began))
        .flat_map(|story| {
            let story = lock(story);
            let (event, place) = (story.event, story.place);
            story.tickets.iter().map(move |ticket| (event, place, ticket.clone())).collect::<Vec<_>>()
        })
        .collect();
    let rows = sql::tickets(&world.stage.db).await?;
    let rows: HashMap<Uuid, TicketRow> = rows.into_iter().map(|row| (row.id, row)).collect();
    for (event, place, ticket) in told {
        let seat = ticket.seat;
        let same = |row: &TicketRow| {
            (row.event_id, row.seat_number, row.place, row.price) == (event, seat, i64::from(place), ticket.price)
        };
        if !rows.get(&ticket.id).is_some_and(same) {
            world.violated(
                Rule::NoTicketLost,
                format!("seat {seat} of event {event} was sold to place {place} according to its answer"),
            );
        }
    }
    Ok(())
}

/// When everyone is gone: everything sold or charged was in an answer.
pub async fn nothing_else(world: &World) -> Outcome<()> {
    let rows = sql::tickets(&world.stage.db).await?;
    let stories: HashMap<(i32, u32), _> =
        lock(&world.stories).iter().map(|story| (lock(story).who(), story.clone())).collect();
    for row in &rows {
        let place = u32::try_from(row.place)?;
        let Some(story) = stories.get(&(row.event_id, place)) else {
            world.violated(
                Rule::NoTicketLost,
                format!("seat {} was sold to a place that no visitor had", row.seat_number),
            );
            continue;
        };
        let story = lock(story);
        if uncertain(world, &story) {
            continue;
        }
        let told = story.tickets.iter().find(|ticket| ticket.id == row.id);
        if told.map(|ticket| ticket.cancelled) != Some(row.status == "CANCELLED") {
            let what =
                format!("ticket {} of place {} is {}, and the answer said otherwise", row.id, row.place, row.status);
            world.violated(Rule::NoTicketLost, what);
        }
    }
    let balances = sql::balances(&world.stage.db).await?;
    let balances: HashMap<Uuid, i64> = balances.into_iter().map(|row| (row.id, row.balance)).collect();
    for story in stories.values() {
        let story = lock(story);
        let Some(user) = story.user.filter(|_| !uncertain(world, &story)) else { continue };
        let paid: i64 = story.tickets.iter().filter(|ticket| !ticket.cancelled).map(|ticket| ticket.price).sum();
        let (expected, found) = (story.charged - paid, balances.get(&user).copied());
        if found != Some(expected) {
            let what =
                format!("place {} of event {} should have {expected} left, has {found:?}", story.place, story.event);
            world.violated(Rule::MoneyIsConserved, what);
        }
    }
    for story in stories.values() {
        let story = lock(story);
        if matches!(story.end, None | Some(End::StillWaiting)) && !world.is_void(story.began) {
            let what = format!("place {} of event {} was still waiting at the end", story.place, story.event);
            world.violated(Rule::PollingGetsIn, what);
        }
    }
    Ok(())
}

/// A visitor who did not wait for an answer, was cut off by the end of the run, or came before a backup was restored.
fn uncertain(world: &World, story: &Story) -> bool {
    world.is_void(story.began) || matches!(story.end, None | Some(End::Vanished | End::StillWaiting | End::Voided))
}

/// A repair takes a small block of places at most, and blocks grow only with the people who use them up.
pub async fn places(world: &World) -> Outcome<()> {
    const SMALLEST: i64 = 1 << 14;
    let ceilings = world.stage.db.numbers("SELECT ceiling AS n FROM events").await?;
    let joins = i64::try_from(world.counts.joins.load(Relaxed))?;
    let losses = i64::try_from(lock(&world.faults_done).iter().filter(|done| faults::loses(done.name)).count())?;
    // A block is four times as large as the one that was used up before it. A loss costs what is left of a block, and the
    // new block that follows.
    let most = 5 * joins + 2 * SMALLEST * (losses + 2);
    for ceiling in ceilings.into_iter().filter(|ceiling| *ceiling > most) {
        let what = format!("{ceiling} places were handed out after {joins} requests to join and {losses} losses");
        world.violated(Rule::PlacesFollowPeople, what);
    }
    Ok(())
}

/// Waits until everything is settled and every hold has ended, then compares.
pub async fn redis_agrees(world: &World, events: &[i32], patience: Duration) -> Outcome<()> {
    let deadline = Instant::now() + patience;
    loop {
        // Nothing is broken any more, but a busy machine may be slow.
        let differences = match differences(world, events).await {
            Err(_) if Instant::now() < deadline => vec!["not answered".to_owned()],
            differences => differences?,
        };
        if differences.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            differences.into_iter().for_each(|what| world.violated(Rule::DatabaseAndRedisAgree, what));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn differences(world: &World, events: &[i32]) -> Outcome<Vec<String>> {
    let rows = sql::tickets(&world.stage.db).await?;
    let unsettled = "SELECT count(*) AS n FROM tickets WHERE settled_at IS NULL";
    let unsettled = world.stage.db.number(unsettled).await?;
    let mut differences = Vec::new();
    if unsettled > 0 {
        differences.push(format!("{unsettled} tickets are not settled"));
    }
    let mut conn = world.stage.redis().await?;
    for event in events {
        let keys = Keys::new(EventId::try_from(*event)?);
        let states: Vec<u8> = conn.get(keys.get(Key::Seats)).await?;
        let live = |row: &&TicketRow| row.event_id == *event && row.status != "CANCELLED";
        let sold: HashSet<i32> = rows.iter().filter(live).map(|row| row.seat_number).collect();
        let known: HashSet<i32> =
            (1..).zip(&states).filter(|(_, state)| **state == b's').map(|(seat, _)| seat).collect();
        let held = states.iter().filter(|state| **state == b'h').count();
        if sold != known {
            let mut other: Vec<_> = sold.symmetric_difference(&known).collect();
            other.sort_unstable();
            differences.push(format!("event {event}: seats {other:?}"));
        }
        let pending: usize = conn.zcard(keys.get(Key::Pending)).await?;
        if pending > 0 {
            differences.push(format!("event {event}: {pending} orders are pending"));
        }
        if held > 0 {
            differences.push(format!("event {event}: {held} seats are held though nobody is there"));
        }
    }
    Ok(differences)
}
