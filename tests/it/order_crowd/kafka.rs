//! The same with orders that wait in Kafka. `make test-kafka` runs these.

use reqwest::Client;
use serde_json::json;
use zticket_testkit::{Kafka, eventually};

use super::{Crowd, buy_and_check, lose_a_server, lose_redis, nothing_is_sold};
use crate::process::terminate;

async fn crowd(kafka: &Kafka) -> Crowd {
    Crowd::inside_with(&kafka.url("crowd")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_accepted_and_told() {
    let kafka = Kafka::start().await.unwrap();
    buy_and_check(crowd(&kafka).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_survive_the_server_that_took_them() {
    let kafka = Kafka::start().await.unwrap();
    lose_a_server(crowd(&kafka).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_survive_the_death_of_redis() {
    let kafka = Kafka::start().await.unwrap();
    lose_redis(crowd(&kafka).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_start_without_kafka_and_take_orders_once_it_is_there() {
    let mut kafka = Kafka::start().await.unwrap();
    kafka.kill().unwrap();
    let crowd = crowd(&kafka).await;
    kafka.restart().await.unwrap();
    buy_and_check(crowd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_survive_the_death_of_kafka() {
    let mut kafka = Kafka::start().await.unwrap();
    let crowd = crowd(&kafka).await;
    let locked = nothing_is_sold(&crowd.db).await;
    let orders = crowd.order().await;
    kafka.restart().await.unwrap();
    drop(locked);
    let outcomes = crowd.decided(&orders).await;
    crowd.check(&outcomes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_move_to_another_server_when_theirs_stops() {
    let kafka = Kafka::start().await.unwrap();
    let mut crowd = crowd(&kafka).await;
    let locked = nothing_is_sold(&crowd.db).await;
    let orders = crowd.order().await;
    let mut leaving = crowd.servers.remove(0);
    crowd.urls.remove(0);
    leaving.signal("TERM").unwrap();
    drop(locked);
    let outcomes = crowd.decided(&orders).await;
    terminate(&mut leaving).await;
    crowd.check(&outcomes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_kafka_does_not_keep_is_refused_and_never_sold() {
    let mut kafka = Kafka::start().await.unwrap();
    let crowd = crowd(&kafka).await;
    kafka.kill().unwrap();
    let url = &crowd.urls[0];
    let order = async |client: &Client| {
        let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", &crowd.tokens[0]);
        request.header("Prefer", "respond-async").json(&json!({ "seatNumber": 1 })).send().await.unwrap()
    };
    assert_eq!(order(&crowd.client).await.status(), 503);
    kafka.restart().await.unwrap();
    let paid = eventually("the buyer can try again", async || {
        let answer = order(&crowd.client).await;
        (answer.status() == 202).then_some(answer)
    })
    .await;
    let order = paid.json::<serde_json::Value>().await.unwrap()["orderId"].as_str().unwrap().to_owned();
    assert_eq!(crowd.decided(&[order]).await.keys().collect::<Vec<_>>(), ["PAID"]);
    let failed = "SELECT count(*) AS n FROM outcomes WHERE problem IS NOT NULL";
    assert!(crowd.db.number(failed).await.unwrap() >= 1);
    assert_eq!(crowd.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 1);
}
