//! The waiting time that visitors are told, on a real server.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor};

const TOKEN: &str = "the token of the house";
/// Rounds that most people stay inside. Every second one leaves a round earlier.
const STAY: usize = 8;
const ROUND_SECONDS: u64 = 5;

/// Twenty people inside, and a line in front of the door.
struct House {
    app: TestApp,
    inside: Vec<(usize, Visitor)>,
    waiting: Vec<Visitor>,
    round: usize,
}

impl House {
    async fn open() -> Self {
        let app = TestApp::by_hand(|config| {
            config.admin_token = Some(TOKEN.to_owned());
            (config.seat_count, config.policy.max_active, config.policy.batch) = (1000, 20, 20);
        })
        .await;
        let mut waiting = Vec::new();
        for _ in 0..150 {
            waiting.push(app.enter().await);
        }
        Self { app, inside: Vec::new(), waiting, round: 0 }
    }

    async fn next_round(&mut self) {
        self.round += 1;
        self.app.pass_time_served(Duration::from_secs(ROUND_SECONDS)).await;
        for (since, visitor) in std::mem::take(&mut self.inside) {
            if self.round - since >= STAY - usize::from(visitor.place().0.is_multiple_of(2)) {
                self.app.leave(&visitor).await;
            } else {
                self.inside.push((since, visitor));
            }
        }
        self.app.admit().await;
        let seen = self.app.look().await;
        let (let_in, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|visitor| seen.passes.contains_key(&visitor.place()));
        self.inside.extend(let_in.into_iter().map(|visitor| (self.round, visitor)));
        self.waiting = waiting;
        for visitor in &self.waiting {
            self.app.status(visitor).await;
        }
        self.app.pulse().await;
    }

    async fn told(&self, visitor: &Visitor) -> Value {
        self.app.status(visitor).await.1["estimatedWaitSeconds"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_let_in_within_the_time_they_are_told_and_the_server_keeps_score() {
    let mut house = House::open().await;
    let last = house.waiting[149].clone();
    house.next_round().await;
    assert!(house.told(&last).await.is_null(), "nobody can tell yet");
    while house.told(&last).await.is_null() {
        house.next_round().await;
        assert!(house.round < 30, "nothing was ever said");
    }
    let told = house.told(&last).await;
    let (low, high) = (told["low"].as_u64().unwrap(), told["high"].as_u64().unwrap());
    let began = house.round;
    while house.waiting.contains(&last) {
        house.next_round().await;
    }
    let waited = (house.round - began) as u64 * ROUND_SECONDS;
    assert!((low..=high).contains(&waited), "{low} to {high} s were told, it took {waited} s");
    // Those let in last are judged at the next look.
    house.next_round().await;
    let sale = house.app.request(Method::GET, "/api/admin/events/1").bearer_auth(TOKEN);
    let score = answer(sale).await.1["estimateScore"].as_f64().unwrap();
    assert!(score >= 0.8, "{score}");
    let metrics = house.app.client.get(house.app.management_url("/actuator/prometheus")).send().await.unwrap();
    assert!(metrics.text().await.unwrap().contains(r#"zticket_estimates_total{event="1",outcome="within"}"#));

    let pause = house.app.request(Method::POST, "/api/admin/events/1/pause").bearer_auth(TOKEN).json(&json!({}));
    assert_eq!(answer(pause).await.0, 200);
    let visitor = house.app.enter().await;
    house.app.pass_time_served(Duration::from_secs(2)).await;
    house.app.look().await;
    assert!(house.told(&visitor).await.is_null(), "nobody can tell during a pause");
    house.app.finish().await;
}
