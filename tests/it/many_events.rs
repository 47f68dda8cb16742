//! Many events at once: those that people ask about come first.

use redis::AsyncCommands;
use reqwest::Method;
use zticket::base::ids::EventId;
use zticket::server::loops;
use zticket::server::run::Background;
use zticket::store::db;
use zticket::store::db::events::Tick;
use zticket::store::redis::keys::Key;
use zticket_testkit::{PATIENCE, eventually, within};

use crate::support::TestApp;
use crate::support::app::answer;

const EVENTS: usize = 120;

/// How many events Redis has.
async fn in_redis(app: &TestApp) -> usize {
    let mut conn = app.redis.connect().await.unwrap();
    let mut ask = redis::cmd("EXISTS");
    app.parts().catalogue.all().iter().for_each(|event| drop(ask.arg(event.keys.get(Key::Meta)).clone()));
    ask.query_async(&mut conn).await.unwrap()
}

async fn all_are_there(app: &TestApp) {
    let all = async || Ok((in_redis(app).await == EVENTS + 1).then_some(()));
    within(PATIENCE, "all events in Redis", all).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_loss_events_that_people_ask_about_are_rebuilt_first() {
    let redis = crate::support::single_redis().await;
    let app = TestApp::start_on(redis, Background::Running, |config| config.policy.interval_ms = 1000).await;
    let make = format!(
        "INSERT INTO events (title) SELECT 'E' || n FROM generate_series(1, {EVENTS}) AS n;
         INSERT INTO sections SELECT id, 1, '', '{{10}}' FROM events WHERE id > 1;
         INSERT INTO seats (event_id, number, label) SELECT id, n, 'A' || n FROM events, generate_series(1, 10) AS n
         WHERE id > 1"
    );
    app.db.execute(&make).await.unwrap();
    // Many new events can keep all connections to Redis busy: then the server tries again, too.
    eventually("the events are known", async || loops::catalogue_step(app.parts()).await.ok()).await;
    all_are_there(&app).await;
    let visitor = app.enter().await;
    app.wait_inside(&visitor).await;

    let last = app.parts().catalogue.all().iter().map(|event| event.id).max().unwrap();
    let () = redis::cmd("FLUSHALL").query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
    app.enter_patiently().await;
    // Somebody asks about an idle one that waits for its turn.
    let path = format!("/api/events/{last}/queues/tokens");
    eventually("that one comes next", async || (answer(app.request(Method::POST, &path)).await.0 == 200).then_some(()))
        .await;
    all_are_there(&app).await;
    let mut order = Vec::new();
    for event in app.parts().catalogue.all() {
        let mut conn = app.redis.connect().await.unwrap();
        // The pulse ring of an event starts when it is rebuilt, and its first slice is not over yet.
        let rebuilt: i64 = conn.hget(event.keys.get(Key::Meta), "turned").await.unwrap();
        order.push((rebuilt, event.id));
    }
    order.sort_unstable();
    let rank = |id| order.iter().position(|(_, event)| *event == id).unwrap();
    let (first, second) = (rank(app.event().id), rank(last));
    assert!(first < EVENTS / 4, "{first} events were rebuilt before the one that somebody asked about");
    assert!(second < EVENTS * 3 / 4, "{second} events were rebuilt before the one that somebody asked about next");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_save_many_events_at_once_do_not_lock_each_other_out() {
    let app = TestApp::by_hand(|_| {}).await;
    let events = "INSERT INTO events (id, title) SELECT n, 'Event ' || n FROM generate_series(100, 299) n";
    app.db.execute(events).await.unwrap();
    let pool = &app.parts().stores.db;
    let save = async |backwards: bool| {
        let mut conn = pool.get().await.unwrap();
        for time in 1..40 {
            let tick =
                |id| Tick { event: EventId::new(id).unwrap(), time: time * 2 + i64::from(backwards), undecided: time };
            let mut ticks: Vec<Tick> = (100..300).map(tick).collect();
            if backwards {
                ticks.reverse();
            }
            db::events::save_ticks(&mut conn, &ticks).await.unwrap();
            let figures = |tick: &Tick| db::figures::Figures {
                event: tick.event,
                waiting: 1,
                inside: 1,
                held: 1,
                sold: 1,
                entered: 1,
                admitted: 1,
                swept: 1,
            };
            db::figures::save(&mut conn, &ticks.iter().map(figures).collect::<Vec<_>>()).await.unwrap();
        }
    };
    tokio::join!(save(false), save(true), save(false), save(true));
    assert_eq!(app.db.number("SELECT min(tick) AS n FROM events WHERE id >= 100").await.unwrap(), 79);
    app.finish().await;
}
