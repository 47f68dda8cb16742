//! A crowd buys later, all at once, from real servers. Then the servers, Redis or Kafka are killed while the orders wait.
//! `ZT_ORDERS` is how many people it has.

#[cfg(feature = "kafka")]
mod kafka;

use std::collections::BTreeMap;
use std::time::Duration;

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::{StreamExt, stream};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use zticket_testkit::redis::Options;
use zticket_testkit::{Database, Redis, Server, within};

use crate::process::{terminate, zticket};
use crate::support::{check_promises, empty_database};

const PEOPLE: usize = 600;
/// Of the people, one in this many gets a seat.
const RIVALS: usize = 20;
const SERVERS: usize = 2;
const DB_CONNECTIONS: usize = 10;
/// Requests under way.
const AT_ONCE: usize = 200;
/// Until a crowd of any size is served, here and there by a single server.
const PATIENCE: Duration = Duration::from_secs(180);

struct Crowd {
    db: Database,
    redis: Redis,
    servers: Vec<Server>,
    urls: Vec<String>,
    client: Client,
    /// Of the people, all inside.
    tokens: Vec<String>,
}

impl Crowd {
    async fn inside() -> Self {
        Self::inside_with("redis").await
    }

    /// The same, with another broker.
    async fn inside_with(broker: &str) -> Self {
        let people = std::env::var("ZT_ORDERS").map_or(PEOPLE, |people| people.parse().unwrap());
        let db = empty_database().await;
        let redis = Redis::single(Options { tcp: true, append_only: true, ..Options::default() }).await.unwrap();
        let mut crowd =
            Self { db, redis, servers: Vec::new(), urls: Vec::new(), client: Client::new(), tokens: Vec::new() };
        for _ in 0..SERVERS {
            let mut server = zticket(&crowd.db.url, &crowd.redis.url())
                .without_limits()
                .set("ZTICKET_BROKER", broker)
                .set("ZTICKET_DB_CONNECTIONS", DB_CONNECTIONS)
                .set("ZTICKET_SEAT_TOTAL_COUNT", people)
                .set("ZTICKET_ADMISSION_INTERVAL_MS", 20)
                .set("ZTICKET_ADMISSION_BATCH_SIZE", people)
                .set("ZTICKET_ADMISSION_MAX_ACTIVE_USERS", people)
                .start()
                .unwrap();
            crowd.urls.push(server.url().await.unwrap());
            crowd.servers.push(server);
        }
        let enter = async |_| {
            let entered = crowd.ask(0, |client, url| client.post(format!("{url}/api/queues/tokens"))).await;
            let token = entered["uuid"].as_str().unwrap().to_owned();
            let let_in = async || {
                let poll = |client: &Client, url: &str| client.get(format!("{url}/api/queues/tokens/{token}"));
                Ok((crowd.ask(0, poll).await["status"] == "ACTIVE").then_some(()))
            };
            within(PATIENCE, "admission", let_in).await.unwrap();
            token
        };
        let tokens = stream::iter(0..people).map(enter).buffered(AT_ONCE).collect().await;
        crowd.tokens = tokens;
        crowd
    }

    fn seats_wanted(&self) -> usize {
        self.tokens.len() / RIVALS
    }

    /// The body of the answer of a server, which may be away for a while: then it is asked again.
    async fn ask(&self, at: usize, request: impl Fn(&Client, &str) -> RequestBuilder) -> Value {
        let ask = async || {
            let Ok(answer) = request(&self.client, &self.urls[at % self.urls.len()]).send().await else {
                return Ok(None);
            };
            let status = answer.status();
            match answer.json::<Value>().await {
                Ok(_) if status == 503 => Ok(None),
                Ok(body) if status.is_success() => Ok(Some(body)),
                Ok(body) => Err(format!("{status}: {body}").into()),
                Err(_) => Ok(None),
            }
        };
        within(PATIENCE, "an answer", ask).await.unwrap()
    }

    /// Everyone orders one of a few seats. Returns the numbers of the orders, all of them accepted.
    async fn order(&self) -> Vec<String> {
        let order = async |(at, token): (usize, &String)| {
            let body = json!({ "seatNumbers": [at % self.seats_wanted() + 1] });
            let buy = |client: &Client, url: &str| {
                let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", token);
                request.header("Prefer", "respond-async").json(&body)
            };
            let accepted = self.ask(at, buy).await;
            assert_eq!(accepted["status"], "PENDING", "{accepted}");
            accepted["orderId"].as_str().unwrap().to_owned()
        };
        stream::iter(self.tokens.iter().enumerate()).map(order).buffered(AT_ONCE).collect().await
    }

    /// How many orders ended in which way, once all have.
    async fn decided(&self, orders: &[String]) -> BTreeMap<String, usize> {
        let end = async |(at, order): (usize, &String)| {
            let look = async || {
                let look = |client: &Client, url: &str| client.get(format!("{url}/api/orders/{order}"));
                let order = self.ask(at, look).await;
                let word = order["code"].as_str().or(order["status"].as_str()).unwrap().to_owned();
                Ok((!["PENDING", "PROCESSING"].contains(&word.as_str())).then_some(word))
            };
            within(PATIENCE, "an order is decided", look).await.unwrap()
        };
        let ends: Vec<String> = stream::iter(orders.iter().enumerate()).map(end).buffered(AT_ONCE).collect().await;
        let mut outcomes = BTreeMap::new();
        for word in ends {
            *outcomes.entry(word).or_default() += 1;
        }
        outcomes
    }

    /// Every seat that was wanted is sold, once, and everyone else was told why not.
    async fn check(mut self, outcomes: &BTreeMap<String, usize>) {
        let wanted = self.seats_wanted();
        assert_eq!(outcomes.get("PAID"), Some(&wanted), "{outcomes:?}");
        let known = ["PAID", "SEAT_ALREADY_HELD", "SEAT_ALREADY_SOLD"];
        assert!(outcomes.keys().all(|word| known.contains(&word.as_str())), "{outcomes:?}");
        assert_eq!(outcomes.values().sum::<usize>(), self.tokens.len());
        for server in &mut self.servers {
            terminate(server).await;
        }
        let sold = self.db.number("SELECT count(*) AS n FROM tickets WHERE status = 'SYNCED'").await.unwrap();
        assert_eq!(sold, i64::try_from(wanted).unwrap());
        check_promises(&self.db).await;
        self.db.remove().await.unwrap();
    }
}

/// While this connection is open, nothing is sold: all orders wait.
async fn nothing_is_sold(db: &Database) -> AsyncPgConnection {
    let mut conn = db.connect().await.unwrap();
    conn.batch_execute("BEGIN; LOCK TABLE tickets IN EXCLUSIVE MODE").await.unwrap();
    conn
}

/// All are accepted, and the connections to the database stay within the setting.
async fn buy_and_check(crowd: Crowd) {
    let connections = "SELECT count(*) AS n FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    let most = i64::try_from(SERVERS * DB_CONNECTIONS).unwrap();
    let watch = async {
        loop {
            let open = crowd.db.number(connections).await.unwrap();
            assert!(open <= most, "{open} connections");
        }
    };
    let buy = async { crowd.decided(&crowd.order().await).await };
    let outcomes = tokio::select! {
        outcomes = buy => outcomes,
        () = watch => unreachable!("it watches on"),
    };
    crowd.check(&outcomes).await;
}

/// The server dies that took half of the orders.
async fn lose_a_server(mut crowd: Crowd) {
    let locked = nothing_is_sold(&crowd.db).await;
    let orders = crowd.order().await;
    crowd.servers.remove(0).kill().unwrap();
    crowd.urls.remove(0);
    drop(locked);
    let outcomes = crowd.decided(&orders).await;
    crowd.check(&outcomes).await;
}

async fn lose_redis(mut crowd: Crowd) {
    let locked = nothing_is_sold(&crowd.db).await;
    let orders = crowd.order().await;
    crowd.redis.kill();
    crowd.redis.restart().await.unwrap();
    drop(locked);
    let outcomes = crowd.decided(&orders).await;
    crowd.check(&outcomes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_wants_the_same_seats_is_accepted_and_told() {
    buy_and_check(Crowd::inside().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_wait_survive_the_server_that_took_them() {
    lose_a_server(Crowd::inside().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_wait_survive_the_death_of_redis() {
    lose_redis(Crowd::inside().await).await;
}
