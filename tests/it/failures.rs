//! A purchase stopped halfway, at every step: nothing is lost, sold twice or charged for nothing.

use std::time::Duration;

use redis::AsyncCommands;
use uuid::Uuid;
use zticket::base::ids::{EventId, OrderId, SeatNumber, TicketId};
use zticket::store::db::sell::{self, NewOrder, Sold};
use zticket::store::redis::keys::Key;
use zticket_testkit::eventually;

use crate::support::{TestApp, Visitor, empty_database};

/// What a server does up to the commit, as if it died right after it.
async fn commit_only(app: &TestApp, visitor: &Visitor, seat: u32) {
    let order = NewOrder {
        id: OrderId(Uuid::now_v7()),
        event: EventId::new(1).unwrap(),
        place: visitor.place(),
        token: Uuid::parse_str(&visitor.0).unwrap(),
        person: None,
        seats: vec![(TicketId(Uuid::now_v7()), SeatNumber(seat))],
        most: None,
    };
    let mut conn = app.parts().stores.db.get().await.unwrap();
    let sold = sell::sell(&mut conn, &[order]).await.unwrap();
    assert!(matches!(sold.as_slice(), [Sold::Sold(_)]), "{sold:?}");
}

async fn seat_state(app: &TestApp, seat: usize) -> String {
    app.look().await;
    app.seats(None).await[seat - 1]["status"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_the_database_refuses_costs_nothing_and_frees_the_seat() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    app.db.execute("ALTER TABLE tickets ADD CONSTRAINT not_7 CHECK (seat_number <> 7)").await.unwrap();
    let (status, body) = app.buy(&visitor, 7).await;
    assert_eq!((status.as_u16(), &body["code"]), (503, &"SERVICE_UNAVAILABLE".into()));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM orders").await.unwrap(), 0);
    assert_eq!(seat_state(&app, 7).await, "available");
    assert_eq!(app.buy(&visitor, 8).await.0, 200, "the visitor can buy another seat");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_connection_lost_at_commit_the_hold_stays_and_a_retry_succeeds() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    app.db
        .execute(
            "CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER hang_up AFTER INSERT ON tickets DEFERRABLE INITIALLY DEFERRED
               FOR EACH ROW EXECUTE FUNCTION hang_up()",
        )
        .await
        .unwrap();
    assert_eq!(app.buy(&visitor, 7).await.0, 503);
    assert_eq!(seat_state(&app, 7).await, "held", "nobody knows yet whether it was sold");
    app.db.execute("DROP TRIGGER hang_up ON tickets").await.unwrap();
    assert_eq!(app.buy(&visitor, 7).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_found_by_the_repeat() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.hold(&visitor, 7).await.0, 200);
    commit_only(&app, &visitor, 7).await;
    let (status, first) = app.buy(&visitor, 7).await;
    assert_eq!(status, 200);
    assert_eq!(app.buy(&visitor, 7).await.1, first);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_sweep_settles_what_a_dead_server_sold() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    assert_eq!(app.hold(&visitor, 7).await.0, 200);
    commit_only(&app, &visitor, 7).await;
    assert_eq!(seat_state(&app, 7).await, "held");
    app.settle().await;
    assert_eq!(seat_state(&app, 7).await, "sold");
    assert_eq!(app.status(&visitor).await.0, 410, "the visit is over");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets WHERE status = 'SYNCED'").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_could_not_be_marked_is_settled_again_without_effect() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    app.db
        .execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON tickets FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await
        .unwrap();
    commit_only(&app, &visitor, 7).await;
    assert!(app.parts().settler.step().await.is_err());
    assert_eq!(seat_state(&app, 7).await, "sold");
    let version = app.meta("seats_version").await;
    app.db.execute("DROP TRIGGER refuse ON tickets").await.unwrap();
    app.settle().await;
    assert_eq!(app.meta("seats_version").await, version, "the second message was no news");
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets WHERE status = 'SYNCED'").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_overrules_the_hold_of_someone_who_came_later() {
    let app = TestApp::by_hand(|_| {}).await;
    let first = app.inside().await;
    let second = app.inside().await;
    assert_eq!(app.hold(&first, 7).await.0, 200);
    // The hold of the first visitor runs out during the insert; the second visitor's pass still lasts.
    app.pass_time(Duration::from_secs(299)).await;
    let mut conn = app.redis.connect().await.unwrap();
    let later = app.look().await.event_time() + 300_000;
    let _: () = conn.zadd(app.key(Key::Passes), second.place().0, later).await.unwrap();
    app.pass_time(Duration::from_secs(2)).await;
    assert_eq!(app.hold(&second, 7).await.0, 200, "an overdue hold counts as free");
    commit_only(&app, &first, 7).await;

    let (status, body) = app.buy(&second, 7).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SEAT_ALREADY_SOLD".into()));
    app.settle().await;
    assert_eq!(app.buy(&first, 7).await.0, 200, "the buyer gets the ticket, hold and pass long gone");
    assert_eq!(app.buy(&second, 8).await.0, 200, "the other one buys another seat");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ticket_is_found_again_when_hold_and_pass_are_gone() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let (status, ticket) = app.buy(&visitor, 7).await;
    assert_eq!(status, 200);
    // Settled: the script answers that the seat is the buyer's.
    app.settle().await;
    assert_eq!(app.buy(&visitor, 7).await, (status, ticket.clone()));
    // Redis forgot even that: the database knows it.
    let mut conn = app.redis.connect().await.unwrap();
    let _: () = conn.hset(app.key(Key::Owners), 7, 999).await.unwrap();
    app.look().await;
    assert_eq!(app.buy(&visitor, 7).await, (status, ticket));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_the_hold_stays_for_a_retry() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let name = app.db.name();
    let other = empty_database().await;
    other
        .execute(&format!(
            "ALTER DATABASE {name} ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await
        .unwrap();
    let (status, body) = app.buy(&visitor, 7).await;
    assert_eq!((status.as_u16(), &body["code"]), (503, &"SERVICE_UNAVAILABLE".into()));
    assert_eq!(seat_state(&app, 7).await, "held");
    assert_eq!(app.status(&visitor).await.1["status"], "ACTIVE", "asking needs no database");
    let health = app.client.get(app.management_url("/actuator/health")).send().await.unwrap();
    assert_eq!(health.status(), 503);

    other.execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await.unwrap();
    eventually("the repeat sells", async || {
        let (status, body) = app.buy(&visitor, 7).await;
        assert!(matches!(status.as_u16(), 200 | 503), "{body}");
        (status == 200).then_some(())
    })
    .await;
    other.remove().await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sold_after_the_deadline_of_its_hold() {
    let app = TestApp::by_hand(|config| {
        config.policy.hold_ttl_ms = 20;
        config.policy.active_ttl_ms = 20;
        config.policy.sync_interval_ms = 10;
    })
    .await;
    let visitor = app.enter().await;
    app.admit().await;
    app.pass_time(Duration::from_millis(21)).await;
    let (status, body) = app.buy(&visitor, 7).await;
    assert_eq!((status.as_u16(), &body["code"]), (403, &"NOT_ACTIVE_USER".into()));
    assert_eq!(app.db.number("SELECT count(*) AS n FROM orders").await.unwrap(), 0);
    app.finish().await;
}
