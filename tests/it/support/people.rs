//! People with keys and money, and concerts they buy for.

use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use zticket::base::ids::{ConcertId, EventId};
use zticket::event::snapshot::Snapshot;
use zticket::house::setup::{self, ConcertPlan};
use zticket::server::loops;
use zticket::store::redis::keys::Key;

use super::app::{Answer, answer};
use super::{TestApp, Visitor};

/// A person with an API key.
#[derive(Debug, Clone)]
pub struct Person {
    pub id: String,
    pub key: String,
}

/// A concert that can be booked for a day, with one date next month, in a hall of one row of ten at 50,000 and two rows of
/// ten at 30,000.
pub fn plan() -> Value {
    json!({
        "title": "Night Train",
        "bookingOpensAt": Utc::now() - TimeDelta::minutes(10),
        "bookingClosesAt": Utc::now() + TimeDelta::days(1),
        "dates": [{ "startsAt": Utc::now() + TimeDelta::days(30) }],
        "layout": { "sections": [
            { "name": "R", "price": 50_000, "rows": [10] },
            { "name": "S", "price": 30_000, "rows": 2, "seatsPerRow": 10 },
        ] },
    })
}

impl TestApp {
    pub async fn sign_up(&self, name: &str) -> Person {
        let (status, body) = answer(self.request(Method::POST, "/api/users").json(&json!({ "name": name }))).await;
        assert_eq!(status, 200, "{body}");
        let text = |field: &str| body[field].as_str().unwrap().to_owned();
        Person { id: text("userId"), key: text("apiKey") }
    }

    /// A person with this balance.
    pub async fn rich(&self, name: &str, amount: i64) -> Person {
        let person = self.sign_up(name).await;
        let (status, body) = self.charge(&person, "first", amount).await;
        assert_eq!((status.as_u16(), &body["balance"]), (200, &amount.into()), "{body}");
        person
    }

    pub fn as_person(&self, person: &Person, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).bearer_auth(&person.key)
    }

    pub async fn get_as(&self, person: &Person, path: &str) -> Value {
        let (status, body) = answer(self.as_person(person, Method::GET, path)).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub async fn balance(&self, person: &Person) -> i64 {
        self.get_as(person, "/api/users/me/balance").await["balance"].as_i64().unwrap()
    }

    pub async fn charge(&self, person: &Person, key: &str, amount: i64) -> Answer {
        let request = self.as_person(person, Method::POST, "/api/users/me/balance/charges");
        answer(request.header("Idempotency-Key", key).json(&json!({ "amount": amount }))).await
    }

    /// Sets up a concert. Returns it and its dates.
    pub async fn concert(&self, plan: &Value) -> (ConcertId, Vec<EventId>) {
        let plan: ConcertPlan = serde_json::from_value(plan.clone()).unwrap();
        let concert = setup::add(&self.parts().stores.db, &plan).await.unwrap();
        loops::catalogue_step(self.parts()).await.unwrap();
        (concert, self.parts().catalogue.concerts()[&concert].dates.clone())
    }

    /// One with a single date.
    pub async fn priced_event(&self) -> EventId {
        self.concert(&plan()).await.1[0]
    }

    /// Reads the catalogue again after a test changed the database.
    pub async fn learn(&self) {
        self.parts().catalogue.refresh().await.unwrap();
    }

    pub async fn enter_as(&self, event: EventId, person: Option<&Person>) -> Answer {
        let mut request = self.request(Method::POST, &format!("/api/events/{event}/queues/tokens"));
        if let Some(person) = person {
            request = request.bearer_auth(&person.key);
        }
        answer(request).await
    }

    /// Visitors that were let in to an event, with the loops by hand.
    pub async fn inside_of(&self, event: EventId, count: usize) -> Vec<Visitor> {
        let enter = async |_| {
            let (status, body) = self.enter_as(event, None).await;
            assert_eq!(status, 200, "{body}");
            Visitor(body["uuid"].as_str().unwrap().to_owned())
        };
        let visitors = join_all((0..count).map(enter)).await;
        self.admit().await;
        self.look().await;
        visitors
    }

    pub async fn hold_seats(&self, visitor: &Visitor, seats: &[u32]) -> Answer {
        let request = self.request(Method::POST, "/api/seats/hold").header("X-Queue-Token", &visitor.0);
        answer(request.json(&json!({ "seatNumbers": seats }))).await
    }

    pub async fn hold_seats_as(&self, visitor: &Visitor, person: &Person, seats: &[u32]) -> Answer {
        let request = self.as_person(person, Method::POST, "/api/seats/hold").header("X-Queue-Token", &visitor.0);
        answer(request.json(&json!({ "seatNumbers": seats }))).await
    }

    /// A snapshot of this event, taken now.
    pub async fn look_at(&self, event: EventId) -> Arc<Snapshot> {
        self.look().await;
        self.parts().catalogue.known(event).unwrap().snapshot.load_full().unwrap()
    }

    /// The places of this event that a person uses.
    pub async fn people_of(&self, event: EventId) -> Vec<String> {
        let keys = self.parts().catalogue.known(event).unwrap().keys.clone();
        let mut conn = self.redis.connect_for(&keys).await.unwrap();
        let mut places: Vec<String> =
            redis::cmd("HKEYS").arg(keys.get(Key::People)).query_async(&mut conn).await.unwrap();
        places.sort();
        places
    }

    pub async fn best(&self, visitor: &Visitor, wish: Value) -> Answer {
        let request = self.request(Method::POST, "/api/seats/best").header("X-Queue-Token", &visitor.0);
        answer(request.json(&wish)).await
    }

    pub async fn best_as(&self, visitor: &Visitor, person: &Person, wish: Value) -> Answer {
        let request = self.as_person(person, Method::POST, "/api/seats/best").header("X-Queue-Token", &visitor.0);
        answer(request.json(&wish)).await
    }

    pub async fn pay(&self, visitor: &Visitor, person: &Person, seats: &[u32]) -> Answer {
        let request = self.as_person(person, Method::POST, "/api/tickets").header("X-Queue-Token", &visitor.0);
        answer(request.json(&json!({ "seatNumbers": seats }))).await
    }

    pub async fn cancel(&self, person: &Person, ticket: &Value) -> Answer {
        answer(self.as_person(person, Method::DELETE, &format!("/api/tickets/{}", ticket.as_str().unwrap()))).await
    }
}
