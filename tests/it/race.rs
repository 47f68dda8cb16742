//! Many at once: one seat is sold once, one interval lets in one batch.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use futures_util::future::join_all;
use redis::AsyncCommands;
use reqwest::Method;
use serde_json::Value;
use zticket::server::run::Background;
use zticket::store::redis::keys::Key;
use zticket_testkit::{eventually, within};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor};

async fn crowd(app: &TestApp, count: usize) -> Vec<Visitor> {
    let visitors = join_all((0..count).map(|_| app.enter())).await;
    app.admit().await;
    app.look().await;
    visitors
}

fn tally(answers: &[(reqwest::StatusCode, Value)]) -> HashMap<String, usize> {
    let mut tally = HashMap::new();
    for (status, body) in answers {
        let word = if *status == 200 { "sold" } else { body["code"].as_str().unwrap_or("no code") };
        *tally.entry(word.to_owned()).or_default() += 1;
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_buyers_of_one_seat_one_gets_it() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_active = 1000;
        config.policy.batch = 1000;
        config.seat_count = 300;
    })
    .await;
    let visitors = crowd(&app, 200).await;
    let answers = join_all(visitors.iter().map(|visitor| app.buy(visitor, 1))).await;
    let tally = tally(&answers);
    assert_eq!(tally["sold"], 1, "{tally:?}");
    let refused = ["SEAT_ALREADY_HELD", "SEAT_ALREADY_SOLD"].iter().filter_map(|word| tally.get(*word)).sum::<usize>();
    assert_eq!(refused, 199, "{tally:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_buyers_get_fifty_seats() {
    let app = TestApp::by_hand(|config| {
        config.policy.max_active = 1000;
        config.policy.batch = 1000;
        config.seat_count = 500;
    })
    .await;
    // Fifty seats wanted by ten people each: 500 seats exist so that all 500 are let in.
    let visitors = crowd(&app, 500).await;
    let buys = visitors.iter().enumerate().map(|(at, visitor)| app.buy(visitor, (at % 50) as u32 + 1));
    let answers = join_all(buys).await;
    let tally = tally(&answers);
    assert_eq!(tally["sold"], 50, "{tally:?}");
    let known = ["sold", "SEAT_ALREADY_HELD", "SEAT_ALREADY_SOLD"];
    assert!(tally.keys().all(|word| known.contains(&word.as_str())), "{tally:?}");
    let seats: HashSet<u64> = answers.iter().filter_map(|(_, body)| body["seatNumber"].as_u64()).collect();
    assert_eq!(seats.len(), 50);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_seats_go_to_five_hundred_visitors_in_order_of_the_line() {
    let app = TestApp::start().await;
    let visitors = join_all((0..500).map(|_| app.enter())).await;
    // Everyone polls until they are inside or all is sold, and takes any free seat.
    let outcomes = join_all(visitors.iter().map(|visitor| async {
        let bought = async || {
            let (_, status) = app.status(visitor).await;
            match status["status"].as_str() {
                Some("SOLD_OUT") => return Some(None),
                Some("ACTIVE") => {}
                _ => return None,
            }
            let free = app.seats(None).await.into_iter().filter(|seat| seat["status"] == "available");
            let free: Vec<u64> = free.filter_map(|seat| seat["seatNumber"].as_u64()).collect();
            let seat = *free.get(visitor.place().0 as usize % free.len().max(1))?;
            let (status, ticket) = app.buy(visitor, seat as u32).await;
            assert!(matches!(status.as_u16(), 200 | 403 | 409), "{ticket}");
            (status == 200).then(|| Some(ticket["seatNumber"].as_u64().unwrap()))
        };
        // Five hundred who ask without a pause keep a small machine busy.
        within(Duration::from_secs(60), "bought or sold out", async || Ok(bought().await)).await.unwrap()
    }))
    .await;
    let sold: HashSet<u64> = outcomes.iter().flatten().copied().collect();
    assert_eq!(sold.len(), 50, "every seat is sold");
    let buyers = visitors.iter().zip(&outcomes).filter(|(_, seat)| seat.is_some()).map(|(visitor, _)| visitor.place());
    let (mut buyers, mut line): (Vec<_>, Vec<_>) = (buyers.collect(), visitors.iter().map(Visitor::place).collect());
    buyers.sort_unstable();
    line.sort_unstable();
    assert_eq!(buyers, line[..50], "the first fifty in line have bought");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_buyer_twice_at_the_same_moment_gets_one_ticket() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let answers = join_all((0..20).map(|_| app.buy(&visitor, 3))).await;
    let tickets: HashSet<String> = answers
        .into_iter()
        .map(|(status, ticket)| {
            assert_eq!(status, 200, "{ticket}");
            ticket["ticketId"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(tickets.len(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_pass_buys_one_order_however_many_seats_it_tries_at_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    let answers = join_all((1..=4).map(|seat| app.buy(&visitor, seat))).await;
    let tally = tally(&answers);
    assert_eq!(tally["sold"], 1, "{tally:?}");
    assert_eq!(tally.get("NOT_ACTIVE_USER"), Some(&3), "{tally:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_let_in_no_more_than_one_would() {
    let app = TestApp::by_hand(|config| {
        config.policy.interval_ms = 3_600_000;
        config.policy.batch = 10;
        config.policy.max_active = 25;
    })
    .await;
    let others = join_all((0..2).map(|_| app.another(Background::ByHand))).await;
    join_all((0..60).map(|_| app.enter())).await;
    let passes = async || app.redis.connect().await.unwrap().zcard::<_, u64>(app.key(Key::Passes)).await.unwrap();

    for expected in [10, 20, 25, 25] {
        // All three ask many times within one interval: one batch.
        let event = app.event();
        let servers = [app.parts(), &others[0].parts, &others[1].parts];
        let rounds = (0..30).map(|round| servers[round % 3].admission.step(&event));
        join_all(rounds).await.into_iter().for_each(|round| assert!(round.is_ok()));
        assert_eq!(passes().await, expected);
        app.pass_time(std::time::Duration::from_secs(3600)).await;
        // Their passes would have run out by now: make them last.
        let mut conn = app.redis.connect().await.unwrap();
        let places: Vec<u32> = conn.zrange(app.key(Key::Passes), 0, -1).await.unwrap();
        for place in places {
            let _: () = conn.zadd(app.key(Key::Passes), place, 9_000_000_000_000_u64).await.unwrap();
        }
    }
    for other in others {
        other.stop().await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_start_together_share_one_event_and_one_key() {
    let mut app = TestApp::by_hand(|_| {}).await;
    app.crash().await;
    app.db
        .execute("DELETE FROM seats; DELETE FROM sections; DELETE FROM events; DELETE FROM signing_keys")
        .await
        .unwrap();
    app.restart_redis_empty().await;
    let config = app.config();
    let start = || zticket::server::run::start(config, Background::ByHand);
    let (first, second, third) = tokio::join!(start(), start(), start());
    let (first, second, third) = (first.unwrap(), second.unwrap(), third.unwrap());
    app.server = Some(first);
    let visitor = app.enter().await;
    for other in [second, third] {
        let url = format!("http://{}/api/queues/tokens/{}", other.addr, visitor.0);
        let status = app.client.get(url).send().await.unwrap().status();
        assert_eq!(status, 200, "a token of one server is good at all");
        other.stop().await;
    }
    assert_eq!(app.db.number("SELECT count(*) AS n FROM events").await.unwrap(), 1);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM seats").await.unwrap(), 50);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM signing_keys").await.unwrap(), 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_settle_the_same_sale_settle_it_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let other = app.another(Background::ByHand).await;
    let visitors = crowd(&app, 20).await;
    join_all(visitors.iter().zip(1..).map(|(visitor, seat)| app.buy(visitor, seat))).await;
    let (first, second) = tokio::join!(app.parts().settler.step(), other.parts.settler.step());
    first.unwrap();
    second.unwrap();
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets WHERE status = 'SYNCED'").await.unwrap(), 20);
    assert_eq!(app.meta("sold").await, 20);
    other.stop().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sales_gather_while_redis_hears_of_the_last_ones() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = crowd(&app, 40).await;
    let tickets = join_all(visitors.iter().zip(1..).map(|(visitor, seat)| app.buy(visitor, seat))).await;
    let unsettled = async || app.db.number("SELECT count(*) AS n FROM tickets WHERE settled_at IS NULL").await.unwrap();
    eventually("all settled", async || (unsettled().await == 0).then_some(())).await;
    let rounds = || app.parts().stores.metrics.scripts.with_label_values(&["4_ticket_settle", "SETTLED"]).get();
    let before = rounds();

    // Redis takes no writes for a while. Cancels need only the database; news of them waits for Redis.
    let mut conn = app.redis.connect_for(&app.event().keys).await.unwrap();
    let _: () = redis::cmd("CLIENT").arg(&["PAUSE", "60000", "WRITE"]).query_async(&mut conn).await.unwrap();
    let cancelled = join_all(visitors.iter().zip(&tickets).map(|(visitor, (_, ticket))| {
        let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
        answer(app.request(Method::DELETE, &path).header("X-Queue-Token", &visitor.0))
    }));
    assert!(cancelled.await.iter().all(|(status, _)| *status == 200));
    let _: () = redis::cmd("CLIENT").arg("UNPAUSE").query_async(&mut conn).await.unwrap();
    // A slow machine may leave some to the sweep.
    app.settle().await;
    assert_eq!(unsettled().await, 0);
    assert!(rounds() - before <= 4, "Redis heard of 40 cancels in {} rounds", rounds() - before);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purchase_is_one_script_call_and_one_statement_or_shares_them() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors = crowd(&app, 41).await;
    let holds = || app.parts().stores.metrics.scripts.with_label_values(&["3_seat_hold", "HELD"]).get();
    let statements = || app.parts().stores.metrics.gathered.with_label_values(&["sell"]).get_sample_count();
    assert_eq!(app.buy(&visitors[0], 50).await.0, 200);
    assert_eq!((holds(), statements()), (1, 1));

    // While the table is locked, purchases gather behind the first one.
    let mut conn = app.db.connect().await.unwrap();
    conn.batch_execute("BEGIN; LOCK TABLE tickets IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let buys = join_all(visitors[1..].iter().zip(1..).map(|(visitor, seat)| app.buy(visitor, seat)));
    let unlock = async {
        eventually("all hold their seats", async || (holds() == 41).then_some(())).await;
        conn.batch_execute("COMMIT").await.unwrap();
    };
    let (answers, ()) = tokio::join!(buys, unlock);
    assert!(answers.iter().all(|(status, _)| *status == 200));
    let commits = app.db.number("SELECT count(DISTINCT xmin::text) AS n FROM tickets").await.unwrap();
    assert!(statements() <= 10, "{} statements for 40 purchases", statements() - 1);
    assert!(commits <= 10, "{commits} commits for 41 tickets");
    app.finish().await;
}
