//! A database with a long history: no query of the server may read a large table as a whole.
//!
//! `ZT_TICKETS` says how many tickets that history has; `make test-long` takes a million.

use reqwest::Method;
use serde_json::json;
use zticket::base::hall::MOST_SEATS;
use zticket::server::loops;
use zticket_testkit::{Database, PATIENCE, within};

use crate::support::TestApp;
use crate::support::app::answer;

const TABLES: &str = "('tickets', 'orders', 'seats', 'payments', 'ledger', 'users', 'person_tickets')";
/// Every seat of an old event was sold four times and given back three times.
const SALES: i64 = 4;

fn ticket_count() -> i64 {
    std::env::var("ZT_TICKETS").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// Fills the database with old events, and people who bought ten tickets each.
async fn fill(db: &Database) {
    let events = (ticket_count() / SALES / MOST_SEATS as i64).max(20);
    let seats = ticket_count() / events / SALES;
    let id = |kind: u32, number: &str| {
        format!("(format('{kind:08x}-0000-7000-8000-%s', lpad(to_hex({number}), 12, '0')))::uuid")
    };
    let (order, person, ticket) = (id(1, "n"), id(2, "n / 10"), id(3, "n"));
    let history = format!(
        "SET session_replication_role = replica;
         INSERT INTO concerts (title, opens_at, closes_at)
         SELECT 'Old ' || c, now() - interval '2 days', now() + interval '1 day' FROM generate_series(1, {events}) AS c;
         INSERT INTO events (id, title, concert_id, starts_at, ceiling, undecided)
         SELECT 100 + id, title, id, now() + interval '30 days', 16384 * 1024, 16384 * 1024 FROM concerts;
         INSERT INTO sections SELECT 100 + id, 1, '', array_fill(50, ARRAY[{seats} / 50]) FROM concerts;
         CREATE TEMP TABLE sales AS
         SELECT n, 101 + n / ({SALES} * {seats}) AS event, 1 + n % ({SALES} * {seats}) / {SALES} AS seat, n % {SALES} AS nth
         FROM generate_series(0::bigint, {events} * {SALES} * {seats} - 1) AS n;
         INSERT INTO seats (event_id, number, label, price, version, place)
         SELECT event, seat, 'S' || seat, 1000, 2 * {SALES} - 1, n FROM sales WHERE nth = {SALES} - 1;
         INSERT INTO users (id, name, key_hash)
         SELECT {person}, 'P', decode(lpad(to_hex(n), 64, '0'), 'hex') FROM sales WHERE n % 10 = 0;
         INSERT INTO orders (id, event_id, place, user_id) SELECT {order}, event, n, {person} FROM sales;
         INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, status, queue_token, settled_at)
         SELECT {ticket}, {order}, event, seat, CASE WHEN nth < {SALES} - 1 THEN 2 * nth + 2 ELSE 2 * nth + 1 END, 1000,
                CASE WHEN nth < {SALES} - 1 THEN 'CANCELLED' ELSE 'SYNCED' END, {ticket}, now() FROM sales;
         INSERT INTO payments (order_id, user_id, amount, refunded)
         SELECT {order}, {person}, 1000, CASE WHEN nth < {SALES} - 1 THEN 1000 ELSE 0 END FROM sales;
         INSERT INTO ledger (user_id, kind, amount, balance, order_id)
         SELECT {person}, 'PAYMENT', -1000, 0, {order} FROM sales;
         INSERT INTO person_tickets (user_id, event_id, living)
         SELECT {person}, event, count(*) FILTER (WHERE nth = {SALES} - 1) FROM sales GROUP BY 1, 2;
         ANALYZE;"
    );
    db.execute(&history).await.unwrap();
}

/// How often each large table was read as a whole so far.
async fn whole_reads(db: &Database) -> String {
    let sql = format!(
        "SELECT string_agg(format('%s %s', relname, seq_scan), ', ' ORDER BY relname) AS answer
         FROM pg_stat_user_tables WHERE relname IN {TABLES}"
    );
    db.text(&sql).await.unwrap()
}

/// Everything the server asks the database in the course of a sale.
async fn sale(app: &TestApp) {
    let free = app.inside().await;
    assert_eq!(app.buy(&free, 7).await.0, 200);
    let event = app.priced_event().await;
    let visitors = app.inside_of(event, 2).await;
    let person = app.rich("A", 100_000).await;
    assert_eq!(app.hold_seats_as(&visitors[0], &person, &[1, 2]).await.0, 200);
    let (status, order) = app.pay(&visitors[0], &person, &[1, 2]).await;
    assert_eq!(status, 200, "{order}");
    assert_eq!(app.pay(&visitors[0], &person, &[1, 2]).await.1, order, "the same again");
    assert_eq!(app.pay(&visitors[1], &person, &[2]).await.0, 409);
    assert_eq!(app.pay(&visitors[1], &person, &[3, 4]).await.0, 402);
    app.settle().await;
    assert_eq!(app.cancel(&person, &order["tickets"][0]["ticketId"]).await.0, 200);
    app.settle().await;
    for path in ["", "/balance", "/balance/movements", "/tickets", "/payments"] {
        app.get_as(&person, &format!("/api/users/me{path}")).await;
    }
    let ticket = format!("/api/tickets/{}", order["ticketId"].as_str().unwrap_or_default());
    answer(app.as_person(&person, Method::GET, &ticket)).await;
    for path in
        ["/api/rankings/best-selling", "/api/rankings/sold-out", "/api/concerts", "/api/concerts/1", "/", "/account"]
    {
        assert_eq!(app.request(Method::GET, path).send().await.unwrap().status(), 200, "{path}");
    }
    app.parts().rankings.step().await.unwrap();
    assert_eq!(app.best_as(&visitors[0], &person, json!({ "count": 1 })).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_query_reads_a_large_table_as_a_whole() {
    let mut app = TestApp::by_hand(|_| {}).await;
    app.crash().await;
    fill(&app.db).await;
    let before = whole_reads(&app.db).await;

    // A start with an empty Redis, a sale, an audit of everything, and a Redis that lost something.
    app.restart_redis_empty().await;
    app.start_again().await;
    // Again until all are ready, as its loop does: fifty large halls keep Redis busy.
    let ready = async || Ok(loops::catalogue_step(app.parts()).await.ok());
    within(PATIENCE, "every event is ready", ready).await.unwrap();
    sale(&app).await;
    for event in app.parts().catalogue.all() {
        app.parts().settler.audit_step(&event).await.unwrap();
    }
    app.redis.save().await.unwrap();
    app.restart_redis().await;
    for event in app.parts().catalogue.all() {
        app.parts().restorer.ready(&event).await.unwrap();
        app.parts().seats.expire_step(&event).await.unwrap();
    }
    app.parts().restorer.tick_step().await.unwrap();
    // Connections report what they did when they end.
    app.server.take().unwrap().stop().await;
    app.parts_are_gone().await;
    assert_eq!(whole_reads(&app.db).await, before);
    // Nor through an index from end to end. Rankings count the living tickets of concerts that are on sale.
    let read = "SELECT sum(idx_tup_read)::bigint AS n FROM pg_stat_user_indexes
         WHERE relname IN ('orders', 'payments', 'ledger', 'users')";
    let read = app.db.number(read).await.unwrap();
    assert!(read < ticket_count() / 10, "{read} entries of indexes were read");
    app.db.remove().await.unwrap();
}
