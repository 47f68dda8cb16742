//! The outbox: what sales and cancels tell others.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use diesel_async::SimpleAsyncConnection;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use zticket::base::error::Error;
use zticket::house::outbox::{Channel, Outbox, Unsent};
use zticket::store::db;
use zticket::store::db::outbox::Letter;

use crate::support::TestApp;

/// Notes what it is given, and refuses some of it.
#[derive(Default)]
struct Listener {
    heard: Mutex<Vec<String>>,
    away: Mutex<HashSet<String>>,
    never: Mutex<HashSet<String>>,
}

/// Tells a listener.
struct ToListener(Arc<Listener>);

impl Channel for ToListener {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn send<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<(), Unsent>> {
        let text = letter.body["text"].as_str().unwrap().to_owned();
        let answer = if self.0.away.lock().unwrap().contains(&text) {
            Err(Unsent::Later(Error::Broker("away".to_owned())))
        } else if self.0.never.lock().unwrap().contains(&text) {
            Err(Unsent::Never("too long".to_owned()))
        } else {
            self.0.heard.lock().unwrap().push(text);
            Ok(())
        };
        async { answer }.boxed()
    }
}

impl Listener {
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.heard.lock().unwrap())
    }
}

async fn write(app: &TestApp, key: &str, text: &str) {
    let insert =
        format!("INSERT INTO outbox (channel, key, body) VALUES ('kafka', '{key}', '{{\"text\": \"{text}\"}}')");
    app.db.execute(&insert).await.unwrap();
}

async fn left(app: &TestApp) -> i64 {
    app.db.number("SELECT count(*) AS n FROM outbox WHERE problem IS NULL").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_one_key_wait_behind_one_that_was_not_sent() {
    let app = TestApp::by_hand(|_| {}).await;
    let listener = Arc::new(Listener::default());
    let outbox = Outbox::new(app.parts().stores.clone(), vec![Box::new(ToListener(listener.clone()))]);
    for (key, text) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3")] {
        write(&app, key, text).await;
    }
    listener.away.lock().unwrap().insert("a2".to_owned());
    let first = outbox.step().await.unwrap();
    assert_eq!(listener.heard(), ["a1", "b1"]);
    assert_eq!(left(&app).await, 2);
    let second = outbox.step().await.unwrap();
    assert_eq!(second, first * 2, "pauses grow");
    listener.heard();
    listener.away.lock().unwrap().clear();
    outbox.step().await.unwrap();
    assert_eq!((listener.heard(), left(&app).await), (vec!["a2".to_owned(), "a3".to_owned()], 0));
    write(&app, "c", "c1").await;
    listener.away.lock().unwrap().insert("c1".to_owned());
    assert_eq!(outbox.step().await.unwrap(), first, "and begin again");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_can_never_be_sent_holds_up_nothing() {
    let app = TestApp::by_hand(|_| {}).await;
    let listener = Arc::new(Listener::default());
    let outbox = Outbox::new(app.parts().stores.clone(), vec![Box::new(ToListener(listener.clone()))]);
    for text in ["a1", "a2"] {
        write(&app, "a", text).await;
    }
    listener.never.lock().unwrap().insert("a1".to_owned());
    outbox.step().await.unwrap();
    outbox.step().await.unwrap();
    assert_eq!(listener.heard(), ["a2"]);
    let given_up = "SELECT count(*) AS n FROM outbox WHERE problem = 'too long'";
    assert_eq!((left(&app).await, app.db.number(given_up).await.unwrap()), (0, 1), "and stays to be looked at");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_at_a_time_sends() {
    let app = TestApp::by_hand(|_| {}).await;
    let listener = Arc::new(Listener::default());
    let outbox = Outbox::new(app.parts().stores.clone(), vec![Box::new(ToListener(listener.clone()))]);
    write(&app, "a", "a1").await;
    let mut other = app.db.connect().await.unwrap();
    other.batch_execute("BEGIN").await.unwrap();
    assert!(db::outbox::may_send(&mut other).await.unwrap());
    outbox.step().await.unwrap();
    assert!(listener.heard().is_empty());
    drop(other);
    zticket_testkit::eventually("the other server is gone", async || {
        outbox.step().await.unwrap();
        (listener.heard() == ["a1"]).then_some(())
    })
    .await;
    app.finish().await;
}

/// What the outbox has, oldest first.
async fn facts(app: &TestApp) -> Vec<Value> {
    let mut conn = app.db.connect().await.unwrap();
    let letters = db::outbox::oldest(&mut conn, db::outbox::KAFKA, 100).await.unwrap();
    letters.into_iter().map(|letter| letter.body).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_and_a_cancel_are_facts_where_they_are_wanted_and_cost_nothing_elsewhere() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let person = app.rich("Kim", 1_000_000).await;
    let visitors = app.inside_of(event, 2).await;
    app.pay(&visitors[0], &person, &[1]).await;
    assert_eq!(facts(&app).await, [] as [Value; 0], "nobody wants to know");

    let wanted = format!("ALTER DATABASE {} SET zticket.facts = 'on'", app.db.name());
    app.db.execute(&wanted).await.unwrap();
    let mut app = app;
    app.restart().await;
    let (_, order) = app.pay(&visitors[1], &person, &[3, 2]).await;
    let ticket = &order["tickets"][0];
    let path = format!("/api/tickets/{}", ticket["ticketId"].as_str().unwrap());
    assert_eq!(crate::support::app::answer(app.as_person(&person, reqwest::Method::DELETE, &path)).await.0, 200);
    let [sold, cancelled] = facts(&app).await.try_into().unwrap();
    assert_eq!((&sold["type"], &sold["orderId"]), (&"ORDER_PAID".into(), &order["orderId"]));
    assert_eq!((&sold["userId"], &sold["total"]), (&person.id.clone().into(), &order["total"]));
    let seats: Vec<u64> =
        sold["tickets"].as_array().unwrap().iter().map(|ticket| ticket["seatNumber"].as_u64().unwrap()).collect();
    assert_eq!(seats, [2, 3]);
    assert_eq!((&cancelled["type"], &cancelled["ticketId"]), (&"TICKET_CANCELLED".into(), &ticket["ticketId"]));
    assert_eq!((&cancelled["orderId"], &cancelled["refunded"]), (&order["orderId"], &ticket["price"]));
    app.finish().await;
}
