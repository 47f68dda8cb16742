//! How much memory a line takes, and what still works when Redis is full.

use std::collections::BTreeMap;

use zticket::base::error::Error;
use zticket::base::ids::{Place, SeatNumber};
use zticket::store::redis::keys::Key;
use zticket::store::redis::reads::{self, Hash, LinePart, Wanted};
use zticket::store::redis::scripts::{Admit, Holder, Leave, PolicySet, Release, SOURCES, Sweep};

use super::fixture::{Fixture, change};

#[tokio::test]
async fn a_million_polling_visitors_take_less_than_two_megabytes() {
    let event = Fixture::new().await;
    for _ in 0..10 {
        event.entered(100_000).await;
    }
    for _ in 0..6 {
        assert_eq!(event.turn().await, Sweep::Swept(0));
        event.pulse_dense(0, &[0xff; 125_000], &[]).await;
    }
    assert_eq!(event.meta("waiting").await, 1_000_000);
    let mut bytes = 0;
    for key in Key::ALL {
        let mut ask = redis::cmd("MEMORY");
        ask.arg("USAGE").arg(event.key(*key)).arg("SAMPLES").arg(0);
        bytes += ask.query_async::<Option<u64>>(&mut event.conn()).await.unwrap().unwrap_or(0);
    }
    assert!(bytes > 6 * 125_000, "a line and five slices: {bytes} bytes");
    assert!(bytes < 2_000_000, "{bytes} bytes");
    event.check().await;
}

#[tokio::test]
async fn a_full_redis_still_frees_and_settles_but_takes_nobody() {
    let event = Fixture::new().await;
    let visitors = event.inside(3).await;
    event.held(visitors[0], &[1, 2]).await;
    event.entered(10).await;
    event.pass(1_500_000).await;
    event.asked().await;
    let limit = async |bytes: u32| {
        let mut limit = redis::cmd("CONFIG");
        let _: () = limit.arg("SET").arg("maxmemory").arg(bytes).query_async(&mut event.conn()).await.unwrap();
    };
    limit(1).await;

    let (scripts, keys, conn) = (&event.scripts, &event.keys, &mut event.conn());
    let dump = event.dump().await;
    let refused = |outcome: Result<(), Error>| match outcome {
        Err(Error::Redis(error)) => assert!(error.to_string().contains("OOM"), "{error}"),
        other => panic!("{other:?}"),
    };
    refused(scripts.enter(conn, keys, 1).await.map(drop));
    refused(scripts.pulse(conn, keys, 0, &[], &[5]).await.map(drop));
    refused(scripts.admit(conn, keys).await.map(drop));
    // Nobody's pulse arrives, so nobody may be swept for silence.
    refused(scripts.sweep(conn, keys).await.map(drop));
    let party = Holder { place: Place(visitors[1]), person: None, seats: &[SeatNumber(5)] };
    refused(scripts.hold(conn, keys, 0, &party).await.map(drop));
    assert_eq!(event.dump().await, dump, "a refusal writes nothing");

    assert_eq!(event.release(visitors[0], &[1]).await, Release::Released(1));
    assert_eq!(event.expire(10).await, 1);
    assert_eq!(event.leave(4).await, Leave::Left);
    assert_eq!(event.settle(&[change(3, 1, true, visitors[1])]).await, 1);
    assert_eq!(event.change(&[("state", "paused")]).await, PolicySet::Ok);
    limit(0).await;
    event.check().await;
}

#[tokio::test]
async fn a_full_redis_is_read_as_any_other() {
    let event = Fixture::new().await;
    event.entered(100_000).await;
    assert_eq!(event.admit_now().await, Admit::Admitted(10));
    event.held(0, &[1, 2]).await;
    event.settle(&[change(3, 1, true, 1)]).await;
    let read = async || {
        let conn = &mut event.conn();
        let (meta, has_line) = reads::meta(conn, &event.keys).await.unwrap();
        let wanted = |line| Wanted { line, passes: true, seats: true, policy: true, buyers: true };
        let (block, life) = reads::block(conn, &event.keys).await.unwrap().unwrap();
        let seats = reads::seats(conn, &event.keys).await.unwrap();
        let mut parts = Vec::new();
        for line in [LinePart::Whole, LinePart::Ends { front: 0..1, tail: 8000 }, LinePart::Nothing] {
            let read = reads::parts(conn, &event.keys, &wanted(line)).await.unwrap();
            let sorted = |hash: Hash| hash.into_iter().collect::<BTreeMap<_, _>>();
            let passes = read.passes.map(|passes| (passes.deadlines, passes.limits.len()));
            let owners = read.owners.map(|owners| owners.into_iter().collect::<BTreeMap<_, _>>());
            parts.push((read.line, passes, read.seats, read.policy.map(sorted), owners));
        }
        format!("{:?}", (meta.meta.get("waiting"), has_line, block.next, life, seats.0, parts))
    };
    let before = read().await;
    let mut limit = redis::cmd("CONFIG");
    let _: () = limit.arg("SET").arg("maxmemory").arg(1).query_async(&mut event.conn()).await.unwrap();
    assert_eq!(read().await, before);
}

#[test]
fn the_scripts_that_free_things_or_pause_are_allowed_when_redis_is_full() {
    let allowed = SOURCES.iter().filter(|source| source.text.starts_with("#!lua flags=allow-oom\n"));
    let mut allowed: Vec<&str> = allowed.map(|source| source.name).collect();
    allowed.sort_unstable();
    let expected = [
        "1_line_leave",
        "3_seat_expire",
        "3_seat_release",
        "4_order_finish",
        "4_ticket_settle",
        "5_event_forget",
        "policy_set",
    ];
    assert_eq!(allowed, expected);
}
