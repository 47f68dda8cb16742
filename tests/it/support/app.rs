//! The real server on port 0, and visitors that speak to it over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use zticket::base::ids::{EventId, Place};
use zticket::base::token::Claim;
use zticket::event::Event;
use zticket::event::snapshot::Snapshot;
use zticket::server::config::Config;
use zticket::server::parts::Parts;
use zticket::server::run::{self, Background, Server};
use zticket::store::redis::keys::{Key, Keys};
use zticket::web::limits::LimitSettings;
use zticket_testkit::{Database, Redis, eventually};

use super::contract::{self, Seen};
use super::{check_promises, database, start_redis};

pub struct TestApp {
    pub server: Option<Server>,
    pub redis: Redis,
    pub db: Database,
    pub client: Client,
    config: Config,
    background: Background,
}

/// A visitor, known by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visitor(pub String);

impl Visitor {
    /// The place the token carries, read without its key.
    pub fn place(&self) -> Place {
        let bits = uuid::Uuid::parse_str(&self.0).unwrap().as_u128();
        Place(((bits >> 80) as u32 & 0xff_ffff) << 8 | (bits >> 68) as u32 & 0xff)
    }
}

pub type Answer = (StatusCode, Value);

impl TestApp {
    /// As configured by default, its loops running.
    pub async fn start() -> Self {
        Self::start_with(Background::Running, |_| {}).await
    }

    /// Without its loops: the test calls their steps.
    pub async fn by_hand(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with(Background::ByHand, change).await
    }

    pub async fn start_with(background: Background, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(start_redis().await, background, change).await
    }

    pub async fn start_on(redis: Redis, background: Background, change: impl FnOnce(&mut Config)) -> Self {
        let db = database().await;
        let config = config(&db.url, &redis.url(), change);
        let server = run::start(&config, background).await.unwrap();
        // Shorter than the server keeps an idle connection, or it might close it just as it is used again.
        let client = Client::builder().pool_idle_timeout(config.request_time / 2).build().unwrap();
        Self { server: Some(server), redis, db, client, config, background }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn parts(&self) -> &Arc<Parts> {
        &self.server.as_ref().unwrap().parts
    }

    /// The default event.
    pub fn event(&self) -> Arc<Event> {
        self.parts().catalogue.known(EventId::new(1).unwrap()).unwrap()
    }

    /// One more server on the same Redis and database.
    pub async fn another(&self, background: Background) -> Server {
        run::start(&self.config, background).await.unwrap()
    }

    /// Stops the server cleanly and starts it again.
    pub async fn restart(&mut self) {
        self.server.take().unwrap().stop().await;
        self.start_again().await;
    }

    /// Ends the server as a crash would. Nothing runs until [`TestApp::start_again`].
    pub async fn crash(&mut self) {
        self.server.take().unwrap().crash().await;
    }

    pub async fn start_again(&mut self) {
        self.server = Some(run::start(&self.config, self.background).await.unwrap());
    }

    /// After a stop: waits until the server's connections to the database are closed.
    pub async fn parts_are_gone(&self) {
        let others = "SELECT count(*) AS n FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        eventually("nobody is connected", async || (self.db.number(others).await.unwrap() == 0).then_some(())).await;
    }

    /// Redis comes back, from what was saved if anything.
    pub async fn restart_redis(&mut self) {
        self.redis.restart().await.unwrap();
        self.reach_redis().await;
    }

    /// Redis comes back with nothing.
    pub async fn restart_redis_empty(&mut self) {
        self.redis.restart_empty().await.unwrap();
        self.reach_redis().await;
    }

    /// Waits until the loops of the server reach it. A first call may find a broken connection.
    async fn reach_redis(&self) {
        if let Some(server) = &self.server {
            reach_redis(&server.parts).await;
        }
    }

    /// After `redis` was replaced: the next start uses the new one.
    pub fn use_redis(&mut self) {
        self.config.redis_url = self.redis.url();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.as_ref().unwrap().addr)
    }

    pub fn management_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.as_ref().unwrap().management_addr)
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// Asks for a place in line.
    pub async fn join(&self) -> Answer {
        answer(self.request(Method::POST, "/api/queues/tokens")).await
    }

    pub async fn enter(&self) -> Visitor {
        let (status, body) = self.join().await;
        assert_eq!(status, 200, "{body}");
        Visitor(body["uuid"].as_str().unwrap().to_owned())
    }

    /// Enters, and tries again after a 503.
    pub async fn enter_patiently(&self) -> Visitor {
        eventually("entering works", async || {
            let (status, body) = self.join().await;
            assert!(matches!(status.as_u16(), 200 | 503), "{body}");
            (status == 200).then(|| Visitor(body["uuid"].as_str().unwrap().to_owned()))
        })
        .await
    }

    pub async fn status(&self, visitor: &Visitor) -> Answer {
        answer(self.request(Method::GET, &format!("/api/queues/tokens/{}", visitor.0))).await
    }

    pub async fn leave(&self, visitor: &Visitor) -> StatusCode {
        answer(self.request(Method::DELETE, &format!("/api/queues/tokens/{}", visitor.0))).await.0
    }

    pub async fn hold(&self, visitor: &Visitor, seat: u32) -> Answer {
        let request = self.request(Method::POST, &format!("/api/seats/{seat}/hold"));
        answer(request.header("X-Queue-Token", &visitor.0)).await
    }

    pub async fn release(&self, visitor: &Visitor, seat: u32) -> Answer {
        let request = self.request(Method::DELETE, &format!("/api/seats/{seat}/hold"));
        answer(request.header("X-Queue-Token", &visitor.0)).await
    }

    pub async fn buy(&self, visitor: &Visitor, seat: u32) -> Answer {
        let request = self.request(Method::POST, "/api/tickets").header("X-Queue-Token", &visitor.0);
        answer(request.json(&json!({ "seatNumber": seat }))).await
    }

    /// Buys like a visitor who tries again on a 503: after a restart of Redis, the first call of each web worker finds a
    /// broken connection.
    pub async fn buy_patiently(&self, visitor: &Visitor, seat: u32) -> Answer {
        eventually("buying works", async || {
            Some(self.buy(visitor, seat).await).filter(|(status, _)| *status != StatusCode::SERVICE_UNAVAILABLE)
        })
        .await
    }

    pub async fn seats(&self, visitor: Option<&Visitor>) -> Vec<Value> {
        let mut request = self.request(Method::GET, "/api/seats");
        if let Some(visitor) = visitor {
            request = request.header("X-Queue-Token", &visitor.0);
        }
        let (status, body) = answer(request).await;
        assert_eq!(status, 200);
        body.as_array().unwrap().clone()
    }

    /// A visitor that was let in, with the loops by hand.
    pub async fn inside(&self) -> Visitor {
        let visitor = self.enter().await;
        self.admit().await;
        self.look().await;
        let (_, body) = self.status(&visitor).await;
        assert_eq!(body["status"], "ACTIVE", "{body}");
        visitor
    }

    /// Waits until the running loops have let a visitor in.
    pub async fn wait_inside(&self, visitor: &Visitor) {
        eventually("the visitor is inside", async || {
            (self.status(visitor).await.1["status"] == "ACTIVE").then_some(())
        })
        .await;
    }

    /// One round of admission to every event, however short the time since the last one.
    pub async fn admit(&self) {
        for event in self.parts().catalogue.all() {
            let mut conn = self.redis.connect_for(&event.keys).await.unwrap();
            let _: () = conn.hset(event.keys.get(Key::Meta), "admitted_at", 0).await.unwrap();
        }
        for event in self.parts().catalogue.all() {
            self.parts().admission.step(&event).await.unwrap();
        }
    }

    /// Takes a snapshot of every event now. Returns that of the default one.
    pub async fn look(&self) -> Arc<Snapshot> {
        for event in self.parts().catalogue.all() {
            event.refresh(&self.parts().stores, Instant::now()).await.unwrap();
        }
        self.event().snapshot.load_full().unwrap()
    }

    /// Sends the gathered pulses now.
    pub async fn pulse(&self) {
        for event in self.parts().catalogue.all() {
            self.parts().site.line.pulse_step(&event).await.unwrap();
        }
    }

    pub async fn sweep(&self) {
        for event in self.parts().catalogue.all() {
            self.parts().site.line.sweep_step(&event).await.unwrap();
        }
    }

    pub async fn expire(&self) {
        for event in self.parts().catalogue.all() {
            self.parts().seats.expire_step(&event).await.unwrap();
        }
    }

    pub async fn settle(&self) {
        self.parts().settler.step().await.unwrap();
    }

    /// Takes back every ticket in the database. Redis hears of it when it is settled.
    pub async fn cancel_all(&self) {
        self.db
            .execute(
                "UPDATE seats SET version = version + 1 WHERE version % 2 = 1;
                 UPDATE person_tickets SET living = 0;
                 UPDATE tickets SET status = 'CANCELLED', seat_version = seat_version + 1, settled_at = NULL",
            )
            .await
            .unwrap();
    }

    pub fn key(&self, key: Key) -> String {
        self.event().keys.get(key).to_owned()
    }

    pub async fn meta(&self, field: &str) -> i64 {
        self.redis.connect().await.unwrap().hget(self.key(Key::Meta), field).await.unwrap()
    }

    /// Lets time pass for the event: everything recorded moves that far into the past.
    pub async fn pass_time(&self, time: Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap();
        let mut conn = self.redis.connect().await.unwrap();
        let _: () = conn.hincr(self.key(Key::Meta), "skew", ms).await.unwrap();
    }

    /// The same, while servers ask for sweeps.
    pub async fn pass_time_served(&self, time: Duration) {
        self.pass_time(time).await;
        let later = i64::MAX / 10_000;
        let _: () = self.redis.connect().await.unwrap().hset(self.key(Key::Meta), "asked", later).await.unwrap();
    }

    /// What must be true at the end of every test: seats and people add up, the database sold what Redis says, and every
    /// won is where the ledger says.
    pub async fn finish(mut self) {
        self.settle().await;
        for event in self.parts().catalogue.all() {
            let mut conn = self.redis.connect_for(&event.keys).await.unwrap();
            check_redis(&mut conn, &event.keys).await;
            let states: Vec<u8> = conn.get(event.keys.get(Key::Seats)).await.unwrap();
            let sold = states.iter().filter(|state| **state == b's').count();
            let live =
                format!("SELECT count(*) AS n FROM tickets WHERE event_id = {} AND status <> 'CANCELLED'", event.id);
            assert_eq!(self.db.number(&live).await.unwrap(), sold as i64, "the database sold what Redis says");
        }
        check_promises(&self.db).await;
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        self.db.remove().await.unwrap();
    }
}

/// Waits until a server reaches Redis on all its connections.
pub async fn reach_redis(parts: &Parts) {
    let key = parts.catalogue.default().unwrap().keys.get(Key::Meta).to_owned();
    eventually("the server reaches Redis again", async || {
        for _ in 0..8 {
            parts.stores.redis.get().await.ok()?.exists::<_, bool>(&key).await.ok()?;
        }
        Some(())
    })
    .await;
}

/// The promises the headers of the scripts make about the stored state. All of it is read at one moment: loops may be
/// at work.
pub async fn check_redis(conn: &mut MultiplexedConnection, keys: &Keys) {
    type Hash<T> = BTreeMap<u32, T>;
    let key = |key: Key| keys.get(key);
    let (meta, waiting, states): (BTreeMap<String, String>, u64, Vec<u8>);
    let (ends, lists, owners): (Vec<u32>, Hash<String>, Hash<u32>);
    let (inside, limits, temporary): (Vec<u32>, Hash<u64>, bool);
    (meta, waiting, states, ends, lists, owners, inside, limits, temporary) = redis::pipe()
        .atomic()
        .hgetall(key(Key::Meta))
        .add_command(redis::cmd("BITCOUNT").arg(key(Key::Line)).clone())
        .get(key(Key::Seats))
        .zrange(key(Key::HoldEnds), 0, -1)
        .hgetall(key(Key::Held))
        .hgetall(key(Key::Owners))
        .zrange(key(Key::Passes), 0, -1)
        .hgetall(key(Key::Limits))
        .exists(key(Key::Tmp))
        .query_async(conn)
        .await
        .unwrap();
    let number = |field: &str| meta[field].parse::<u64>().unwrap();
    assert_eq!(number("waiting"), waiting, "waiting is the number of bits in the line");

    let count = |wanted: u8| states.iter().filter(|state| **state == wanted).count() as u64;
    assert_eq!(count(b'a') + count(b'h') + count(b's'), number("seats"), "available + held + sold = seats");
    assert_eq!(count(b's'), number("sold"));

    let held: Vec<u32> = (1..).zip(&states).filter(|(_, state)| **state == b'h').map(|(seat, _)| seat).collect();
    assert_eq!(sorted(ends), held, "a seat is in hold_ends exactly when its byte says held");
    let mut listed: Vec<u32> = Vec::new();
    for (place, seats) in lists {
        for seat in seats.split(' ').map(|seat| seat.parse::<u32>().unwrap()) {
            assert_eq!(owners[&seat], place, "a held seat is listed by its owner");
            listed.push(seat);
        }
    }
    assert_eq!(sorted(listed), held);
    assert_eq!(owners.len() as u64, count(b'h') + count(b's'), "a seat has an owner exactly when it is not available");

    assert_eq!(sorted(inside), limits.into_keys().collect::<Vec<_>>(), "every pass has a limit");
    assert!(!temporary, "no temporary key is left");
}

fn sorted(mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_unstable();
    numbers
}

pub fn config(database_url: &str, redis_url: &str, change: impl FnOnce(&mut Config)) -> Config {
    let vars = [
        ("DATABASE_URL", database_url),
        ("REDIS_URL", redis_url),
        ("ZTICKET_BIND", "127.0.0.1:0"),
        ("ZTICKET_MANAGEMENT_BIND", "127.0.0.1:0"),
        ("ZTICKET_SNAPSHOT_INTERVAL_MS", "50"),
        ("ZTICKET_ADMISSION_INTERVAL_MS", "50"),
    ];
    let vars = vars.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut config = Config::from_vars(vars.into()).unwrap();
    // All visitors of a test have the same address.
    config.limits = LimitSettings::OFF;
    config.drain = Duration::ZERO;
    change(&mut config);
    config
}

/// Status and JSON body; null if the body is empty. It must be an answer that the description of the API allows.
pub async fn answer(request: RequestBuilder) -> Answer {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().to_string(), request.url().path().to_owned());
    let response = client.execute(request).await.unwrap();
    let status = response.status();
    let headers = response.headers().clone();
    let content_type = headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
    let text = response.text().await.unwrap();
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::String(text)) };
    contract::check(&Seen {
        method: &method,
        path: &path,
        status: status.as_u16(),
        content_type: content_type.split(';').next().unwrap_or_default(),
        body: Some(&body),
        has_header: &|name| headers.contains_key(name),
    });
    (status, body)
}

/// The text of a token of this event and place, as the server would sign it.
pub fn token_of(event: &Event, place: u32) -> String {
    let token = event.sign(Place(place)).uuid().to_string();
    assert!(Claim::parse(&token).is_some());
    token
}
