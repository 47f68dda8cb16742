//! Blocks of places: who gets which, and that no place is told to two visitors.

use zticket::base::ids::{EventId, Fetched, Place};
use zticket::store::db::events::{self, Block, PLACES, SMALLEST_BLOCK};
use zticket::store::db::pool::Conn;
use zticket::store::redis::keys::Key;

use redis::AsyncCommands;

use crate::support::TestApp;

const SIZE: i64 = SMALLEST_BLOCK;

async fn conn(app: &TestApp) -> Conn {
    app.parts().stores.db.get().await.unwrap()
}

fn fetched(block: &Block) -> Fetched {
    Fetched { start: block.start, fetch: block.fetch }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_block_is_fetched_again_and_a_used_one_never() {
    let app = TestApp::by_hand(|_| {}).await;
    let (mut conn, event) = (conn(&app).await, EventId::new(1).unwrap());
    let first = app.db.number("SELECT ceiling AS n FROM events").await.unwrap();
    // Redis has the first block, so it is not fetched again, though nobody has a place of it.
    let second = events::fetch_block(&mut conn, event, first, SIZE).await.unwrap();
    assert_eq!(second, Block { start: first, end: first + SIZE, fetch: 1 });
    for fetch in 2..50 {
        let again = events::fetch_block(&mut conn, event, first, SIZE * 4).await.unwrap();
        assert_eq!(again, Block { fetch, ..second }, "the same block, however often it is asked for");
    }
    assert!(!events::use_block(&mut conn, event, fetched(&second)).await.unwrap(), "only the last fetch counts");
    let last = Fetched { start: second.start, fetch: 49 };
    assert!(events::use_block(&mut conn, event, last).await.unwrap());
    assert!(events::use_block(&mut conn, event, last).await.unwrap(), "saying it again is fine");
    let third = events::fetch_block(&mut conn, event, 0, SIZE).await.unwrap();
    assert_eq!(third, Block { start: second.end, end: second.end + SIZE, fetch: 1 });
    assert!(!events::use_block(&mut conn, event, last).await.unwrap(), "places of an old block are told to nobody");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_whose_block_was_fetched_again_is_told_to_nobody() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.event();
    // Another server fetched the block again, as if Redis had been wiped, before a place of it was told to anyone.
    events::fetch_block(&mut conn(&app).await, event.id, 0, SIZE).await.unwrap();
    let (first, second) = (app.enter().await, app.enter().await);
    let start = u32::try_from(app.db.number("SELECT block_start AS n FROM events").await.unwrap()).unwrap();
    assert!(first.place() >= Place(start) && start > 0, "the visitor got a place of a new block");
    assert!(second.place() > first.place());
    assert_eq!(app.db.number("SELECT block_used::int::bigint AS n FROM events").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_nobody_joined_costs_no_block_however_often_redis_is_wiped() {
    let app = TestApp::by_hand(|_| {}).await;
    let ceiling = async || app.db.number("SELECT ceiling AS n FROM events").await.unwrap();
    let before = ceiling().await;
    for _ in 0..5 {
        let _: () = redis::cmd("FLUSHALL").query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
        app.parts().restorer.ready(&app.event()).await.unwrap();
    }
    assert_eq!(ceiling().await, before);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_place_a_token_can_name_is_given_out_and_then_the_line_is_full() {
    let mut app = TestApp::by_hand(|config| config.policy.max_active = 0).await;
    let left = SIZE * 3 / 2;
    let far =
        format!("UPDATE events SET ceiling = {PLACES} - {left}, undecided = {PLACES} - {left}, block_used = true");
    app.db.execute(&far).await.unwrap();
    app.restart_redis_empty().await;
    app.parts().restorer.ready(&app.event()).await.unwrap();
    let mut conn = app.redis.connect().await.unwrap();
    // All but the last two places.
    for end in [SIZE, left] {
        let next = PLACES - left + end - 2;
        let _: () = conn.hset(app.key(Key::Meta), "next", next).await.unwrap();
        app.parts().restorer.ready(&app.event()).await.unwrap();
    }
    let (before, last) = (app.enter().await, app.enter().await);
    assert_eq!((before.place(), last.place()), (Place(u32::MAX - 1), Place(u32::MAX)));
    app.look().await;
    assert_eq!(app.status(&last).await.1["rank"], 2);
    let (status, body) = app.join().await;
    assert_eq!((status.as_u16(), &body["code"]), (429, &"QUEUE_FULL".into()));
    app.pulse().await;
    // It can still be rebuilt.
    let _: () = redis::cmd("FLUSHALL").query_async(&mut conn).await.unwrap();
    app.parts().restorer.ready(&app.event()).await.unwrap();
    app.look().await;
    assert_eq!(
        (app.status(&before).await.1["rank"].as_u64(), app.status(&last).await.1["rank"].as_u64()),
        (Some(1), Some(2))
    );
    assert_eq!(app.join().await.0, 429);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_were_taken_and_told_to_nobody_do_not_spoil_a_rebuilt_event() {
    let mut app = TestApp::by_hand(|_| {}).await;
    app.crash().await;
    // The database was away while they were taken, and then somebody saw that all of them were decided.
    app.db.execute("UPDATE events SET undecided = block_start + 100").await.unwrap();
    app.restart_redis_empty().await;
    app.start_again().await;
    let (first, second) = (app.enter().await, app.enter().await);
    assert!(first.place() < second.place());
    app.look().await;
    assert_eq!(app.status(&second).await.1["rank"], 2);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_cannot_record_a_block_joining_takes_no_places() {
    let app = TestApp::by_hand(|_| {}).await;
    app.db.execute("ALTER TABLE events RENAME COLUMN block_used TO block_hidden").await.unwrap();
    for _ in 0..20 {
        assert_eq!(app.join().await.0, 503);
    }
    let entered = app.meta("entered").await;
    assert!(entered <= 1, "{entered} places were taken and told to nobody");
    app.db.execute("ALTER TABLE events RENAME COLUMN block_hidden TO block_used").await.unwrap();
    app.enter().await;
    app.finish().await;
}
