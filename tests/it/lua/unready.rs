//! An event that is not in Redis, or only a part of it: every script says so and writes nothing.

use std::time::Duration;

use redis::AsyncCommands;
use zticket::base::error::Error;
use zticket::base::ids::{Place, SeatNumber};
use zticket::store::redis::keys::Key;
use zticket::store::redis::scripts::{Admit, Holder, Leave, NewBlock, SOURCES, Why};

use super::fixture::{BLOCK, Fixture, change};
use super::orders::{finished, request};

/// Every script but the one that restores.
const OTHERS: [&str; 15] = [
    "1_line_block",
    "1_line_enter",
    "1_line_leave",
    "1_line_pulse",
    "1_line_sweep",
    "2_pass_admit",
    "3_seat_expire",
    "3_seat_hold",
    "3_seat_release",
    "4_order_accept",
    "4_order_begin",
    "4_order_finish",
    "4_order_take",
    "4_ticket_settle",
    "policy_set",
];

/// Calls a script so that it writes if the event is there. Returns whether the event was missing.
async fn call(event: &Fixture, name: &str) -> bool {
    let (scripts, keys, conn) = (&event.scripts, &event.keys, &mut event.conn());
    let new = NewBlock { places: BLOCK..2 * BLOCK, fetch: 1, why: Why::UsedUp, gap_wait_ms: 5, parked: None };
    match name {
        "1_line_block" => unready(scripts.block(conn, keys, &new).await),
        "1_line_enter" => unready(scripts.enter(conn, keys, 3).await),
        "1_line_leave" => unready(scripts.leave(conn, keys, Place(3)).await),
        "1_line_pulse" => unready(scripts.pulse(conn, keys, 0, &[0xff], &[3]).await),
        "1_line_sweep" => unready(scripts.sweep(conn, keys).await),
        "2_pass_admit" => unready(scripts.admit(conn, keys).await),
        "3_seat_expire" => unready(scripts.expire(conn, keys, 10).await),
        "3_seat_hold" => unready(
            scripts.hold(conn, keys, 0, &Holder { place: Place(0), person: None, seats: &[SeatNumber(1)] }).await,
        ),
        "3_seat_release" => unready(scripts.release(conn, keys, Place(1), &[SeatNumber(9)]).await),
        "4_order_accept" => {
            let request = request(0, &[1]);
            unready(scripts.accept(conn, keys, &request, Duration::from_secs(60), 9, true).await)
        }
        "4_order_begin" => unready(scripts.begin(conn, keys, &[request(0, &[1]).order]).await),
        "4_order_finish" => unready(scripts.finish(conn, keys, &[finished(0, &[1], true)]).await),
        "4_order_take" => unready(scripts.take(conn, keys, "me", Duration::from_secs(60), 9).await),
        "4_ticket_settle" => unready(scripts.settle(conn, keys, &[change(2, 1, true, 0)]).await),
        "policy_set" => unready(scripts.policy_set(conn, keys, 1, "", &[("batch", "1")]).await),
        _ => panic!("there is no script {name}"),
    }
}

/// Which of all scripts, called one after the other, found the event missing.
async fn call_all(event: &Fixture) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for name in OTHERS {
        if call(event, name).await {
            missing.push(name);
        }
    }
    missing
}

fn unready<T: std::fmt::Debug>(outcome: Result<T, Error>) -> bool {
    match outcome {
        Err(Error::Unready) => true,
        Ok(_) => false,
        Err(error) => panic!("{error}"),
    }
}

/// An event with visitors in every state, so that every script has something to do.
async fn busy() -> Fixture {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held(visitors[1], &[9]).await;
    event.accept(visitors[1], &[9]).await;
    event.entered(20).await;
    event.pass(1_500_000).await;
    event
}

#[test]
fn no_script_is_forgotten_here() {
    let mut known: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
    known.retain(|name| !matches!(*name, "5_event_forget" | "5_event_restore" | "event_read" | "ranking_set"));
    known.sort_unstable();
    assert_eq!(known, OTHERS);
}

#[tokio::test]
async fn without_meta_or_without_the_line_no_script_does_anything() {
    for lost in [Key::Meta, Key::Line] {
        let event = busy().await;
        let _: () = event.conn().del(event.key(lost)).await.unwrap();
        let dump = event.dump().await;
        assert_eq!(call_all(&event).await, OTHERS, "without {lost:?}");
        assert_eq!(event.dump().await, dump, "without {lost:?}");
    }
}

#[tokio::test]
async fn an_event_that_was_never_built_stays_unbuilt() {
    let event = Fixture::new().await;
    let _: () = redis::cmd("FLUSHALL").query_async(&mut event.conn()).await.unwrap();
    assert_eq!(call_all(&event).await, OTHERS);
    let keys: u32 = redis::cmd("DBSIZE").query_async(&mut event.conn()).await.unwrap();
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn an_empty_line_needs_no_key() {
    let event = busy().await;
    event.set_policy("batch", 1000).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(18), "20 seats, two inside");
    assert_eq!((event.leave(20).await, event.leave(21).await), (Leave::Left, Leave::Left));
    assert_eq!(event.meta("waiting").await, 0);
    let _: () = event.conn().del(event.key(Key::Line)).await.unwrap();
    assert!(call_all(&event).await.is_empty());
    event.check().await;
}

#[tokio::test]
async fn a_script_that_redis_forgot_is_loaded_again_by_the_call() {
    let event = busy().await;
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut event.conn()).await.unwrap();
    assert!(call_all(&event).await.is_empty());
}

/// When the clock of Redis is set back, time stays at the last write and continues from there.
#[tokio::test]
async fn every_write_is_dated() {
    for name in OTHERS.into_iter().filter(|name| *name != "policy_set") {
        let event = busy().await;
        let (moment, dump) = (event.now().await + 200_000, event.dump().await);
        event.at(moment).await;
        assert!(!call(&event, name).await);
        assert_ne!(event.dump().await["meta"], dump["meta"]);
        assert_eq!(event.meta("now").await, moment, "{name}");
        let (clock, skew): ((i64, i64), i64) =
            redis::pipe().cmd("TIME").hget(event.key(Key::Meta), "skew").query_async(&mut event.conn()).await.unwrap();
        assert!(clock.0 * 1000 + clock.1 / 1000 + skew >= moment, "after {name} time stands still");
        event.check().await;
    }
}
