//! A database that was restored from a backup, or lost its last commits in a failover, knows less than Redis.

use std::time::Duration;

use redis::AsyncCommands;
use reqwest::Method;
use zticket::server::loops;
use zticket::server::repair::{Audit, Failure, after_restore_parts, audit_parts};
use zticket::store::redis::keys::Key;
use zticket_testkit::Database;

use crate::support::TestApp;
use crate::support::app::answer;

async fn back_up(app: &mut TestApp) -> Database {
    app.crash().await;
    app.parts_are_gone().await;
    let backup = app.db.back_up().await.unwrap();
    app.start_again().await;
    backup
}

async fn restore(app: &mut TestApp, backup: Database) {
    app.crash().await;
    app.db.restore(backup).await.unwrap();
}

async fn after_restore(app: &TestApp) -> String {
    let mut said = Vec::new();
    after_restore_parts(app.parts(), &mut said).await.unwrap();
    String::from_utf8(said).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_sells_nothing_until_it_is_made_safe_and_gives_no_token_twice() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let guest = app.inside().await;
    let (_, ticket) = app.buy(&guest, 1).await;
    app.settle().await;
    app.redis.save().await.unwrap();
    let backup = back_up(&mut app).await;
    // After the backup Redis begins a new life, with a block of places that the backup does not know.
    app.restart_redis().await;
    let before = app.enter().await;
    // Until then somebody who was lost in the restart could still come back.
    app.pass_time_served(Duration::from_secs(60)).await;
    app.admit().await;
    app.look().await;
    assert_eq!(app.buy(&before, 2).await.0, 200);
    app.settle().await;
    let waiting = app.enter().await;
    restore(&mut app, backup).await;

    app.start_again().await;
    app.look().await;
    for (method, path) in [(Method::POST, "/api/queues/tokens"), (Method::POST, "/api/seats/3/hold")] {
        let (status, body) = answer(app.request(method, path).header("X-Queue-Token", &waiting.0)).await;
        assert_eq!((status.as_u16(), &body["code"]), (503, &"SERVICE_UNAVAILABLE".into()), "{path}");
    }
    app.admit().await;
    app.look().await;
    assert_eq!(app.status(&waiting).await.1["status"], "WAITING", "nobody is let in");
    assert_eq!(app.seats(None).await.len(), 50, "looking is fine");

    let said = after_restore(&app).await;
    assert!(said.contains("event 1 seat A2: Redis has it as sold to place"), "{said}");
    // A server that runs meanwhile learns of it, and goes on refusing.
    loops::catalogue_step(app.parts()).await.unwrap();
    assert_eq!(app.join().await.0, 503);
    app.crash().await;
    app.start_again().await;
    app.look().await;
    let newcomer = app.enter().await;
    assert!(newcomer.place() > waiting.place() && newcomer.place() > before.place());
    for old in [&before, &waiting, &guest] {
        assert_eq!(app.status(old).await.0, 404, "a token from before is void");
        assert_eq!(app.hold(old, 3).await.0, 404);
    }
    let seats = app.seats(None).await;
    assert_eq!((&seats[0]["status"], &seats[1]["status"]), (&"sold".into(), &"available".into()));
    // The buyer whose ticket the backup has can still look at it.
    let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
    let (status, found) = answer(app.request(Method::GET, &path).header("X-Queue-Token", &guest.0)).await;
    assert_eq!((status.as_u16(), &found), (200, &ticket));
    assert_eq!(answer(app.request(Method::GET, &path).header("X-Queue-Token", &newcomer.0)).await.0, 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_notices_that_the_database_was_replaced_by_a_backup() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let backup = back_up(&mut app).await;
    app.redis.save().await.unwrap();
    app.restart_redis().await;
    app.enter_patiently().await;
    app.look().await;
    app.db.restore(backup).await.unwrap();
    zticket_testkit::eventually("it reads the list again", async || loops::catalogue_step(app.parts()).await.ok())
        .await;
    let (status, body) = app.join().await;
    assert_eq!(status.as_u16(), 503, "{body}");
    after_restore(&app).await;
    app.crash().await;
    app.start_again().await;
    app.enter().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_lacks_only_sales_is_noticed_too() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let buyer = app.inside().await;
    let backup = back_up(&mut app).await;
    app.look().await;
    assert_eq!(app.buy(&buyer, 2).await.0, 200);
    app.settle().await;
    restore(&mut app, backup).await;
    app.start_again().await;
    app.look().await;
    let (status, body) = app.join().await;
    assert_eq!(status.as_u16(), 503, "{body}");
    let said = after_restore(&app).await;
    assert!(said.contains("event 1 seat A2: Redis has it as sold"), "{said}");
    app.crash().await;
    app.start_again().await;
    app.enter().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_the_database_lost_can_be_seen_and_mended() {
    let app = TestApp::by_hand(|_| {}).await;
    let (lost, resold, kept) = (app.inside().await, app.inside().await, app.inside().await);
    for (visitor, seat) in [(&lost, 1), (&resold, 2), (&kept, 3)] {
        assert_eq!(app.buy(visitor, seat).await.0, 200);
    }
    app.settle().await;
    // A failover lost the first two sales. The second seat was sold again since, but Redis did not hear of it: to Redis
    // that version is old.
    let second = app.inside().await;
    app.db
        .execute(&format!(
            "DELETE FROM tickets WHERE seat_number IN (1, 2); DELETE FROM orders WHERE place IN ({}, {});
             UPDATE seats SET version = 0, place = NULL WHERE number = 1;
             UPDATE seats SET version = 1, place = {second} WHERE number = 2;
             INSERT INTO orders (id, event_id, place) VALUES (gen_random_uuid(), 1, {second});
             INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token)
             SELECT gen_random_uuid(), id, 1, 2, 1, 0, gen_random_uuid() FROM orders WHERE place = {second}",
            lost.place(),
            resold.place(),
            second = second.place()
        ))
        .await
        .unwrap();
    app.settle().await;
    app.parts().settler.audit_step(&app.event()).await.unwrap();
    assert_eq!(app.join().await.0, 503, "nothing is sold until somebody has looked at it");
    let owner = async |seat: u32| {
        let owner: Option<u32> = app.redis.connect().await.unwrap().hget(app.key(Key::Owners), seat).await.unwrap();
        owner
    };
    assert_eq!(owner(2).await, Some(resold.place().0), "Redis knows only the buyer of the lost sale");

    let run = async |mend| {
        let mut said = Vec::new();
        let outcome = audit_parts(app.parts(), &Audit { event: None, mend }, &mut said).await;
        (outcome, String::from_utf8(said).unwrap())
    };
    let (outcome, said) = run(false).await;
    assert!(matches!(outcome, Err(Failure::Differences(2))), "{outcome:?}: {said}");
    assert!(said.contains("event 1 seat A1: Redis has it as sold"), "{said}");
    let (outcome, said) = run(true).await;
    assert!(outcome.is_ok() && said.contains("2 seats mended"), "{outcome:?}: {said}");
    app.look().await;
    let seats = app.seats(None).await;
    assert_eq!((&seats[0]["status"], &seats[1]["status"]), (&"available".into(), &"sold".into()));
    assert_eq!(owner(2).await, Some(second.place().0));
    assert!(run(false).await.0.is_ok());

    // The seat can be sold, settled, cancelled and sold again as any other.
    for round in 0..2 {
        let buyer = app.inside().await;
        let (status, ticket) = app.buy(&buyer, 1).await;
        assert_eq!(status, 200, "round {round}: {ticket}");
        app.settle().await;
        app.look().await;
        assert_eq!(app.seats(None).await[0]["status"], "sold");
        let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
        assert_eq!(answer(app.request(Method::DELETE, &path).header("X-Queue-Token", &buyer.0)).await.0, 200);
        app.settle().await;
        app.look().await;
        assert_eq!(app.seats(None).await[0]["status"], "available");
    }
    app.finish().await;
}
