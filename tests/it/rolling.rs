//! Real servers on one Redis and one PostgreSQL: restarted one after the other, or killed, while people buy.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use zticket_testkit::{Database, PATIENCE, Redis, Server, eventually, ports, within};

use crate::process::{terminate, zticket};
use crate::support::{Visitor, check_promises, empty_database, plan, start_redis};

const BUYERS: usize = 12;
const SEATS: usize = 20_000;

/// Spreads requests over the servers, and tries the next server if one fails.
struct Balancer {
    client: Client,
    servers: Vec<String>,
    /// Which servers say that they are ready.
    ready: Vec<AtomicBool>,
    next: AtomicUsize,
    /// Connections that were refused or broke.
    broken: Mutex<Vec<String>>,
    /// Answers of 503.
    refused: Mutex<Vec<String>>,
}

impl Balancer {
    fn new(servers: Vec<String>) -> Self {
        let ready = servers.iter().map(|_| AtomicBool::new(true)).collect();
        // Shorter than the servers keep an idle connection, or they might close it just as it is used again.
        let client = Client::builder().pool_idle_timeout(Duration::from_secs(2)).build().unwrap();
        Self {
            client,
            servers,
            ready,
            next: AtomicUsize::default(),
            broken: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Asks a server again and again whether it is ready.
    async fn watch(&self, at: usize, management: u16) {
        let url = format!("http://127.0.0.1:{management}/actuator/health");
        loop {
            let answer = self.client.get(&url).send().await;
            self.ready[at].store(answer.is_ok_and(|answer| answer.status() == 200), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn ask(&self, request: impl Fn(&Client, &str) -> RequestBuilder) -> (StatusCode, Value) {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(30), "no server answers");
            let at = self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len();
            if !self.ready[at].load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            match whole(request(&self.client, &self.servers[at])).await {
                Ok((StatusCode::SERVICE_UNAVAILABLE, body)) => {
                    self.refused.lock().unwrap().push(format!("server {at} after {:?}: {body}", started.elapsed()));
                }
                Ok((status, body)) => {
                    assert!(!status.is_server_error(), "{status}: {body}");
                    return (status, body);
                }
                Err(error) => {
                    self.broken.lock().unwrap().push(format!("server {at} after {:?}: {error:?}", started.elapsed()));
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// If something was refused, notes what this server logged about it.
    fn why_refused(&self, server: &Server) {
        let (log, mut refused) = (server.log().unwrap(), self.refused.lock().unwrap());
        if !refused.is_empty() {
            refused.extend(log.lines().filter(|line| line.contains("a request failed")).map(str::to_owned));
        }
    }

    /// Polls until the visitor is inside.
    async fn let_in(&self, token: &str) {
        within(PATIENCE, "admission", async || {
            let poll = |client: &Client, url: &str| client.get(format!("{url}/api/queues/tokens/{token}"));
            let (status, body) = self.ask(poll).await;
            assert_eq!(status, 200, "{body}");
            Ok((body["status"] == "ACTIVE").then_some(()))
        })
        .await
        .unwrap();
    }

    /// One visit: from the line to a ticket.
    async fn visit(&self, seat: usize) -> (Visitor, Value) {
        let (status, entered) = self.ask(|client, url| client.post(format!("{url}/api/queues/tokens"))).await;
        assert_eq!(status, 200, "{entered}");
        let token = entered["uuid"].as_str().unwrap();
        self.let_in(token).await;
        let buy = |client: &Client, url: &str| {
            let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", token);
            request.json(&json!({ "seatNumber": seat }))
        };
        let (status, ticket) = self.ask(buy).await;
        assert_eq!((status.as_u16(), &ticket["seatNumber"]), (200, &seat.into()), "{ticket}");
        let (status, again) = self.ask(buy).await;
        assert_eq!((status.as_u16(), &again["ticketId"]), (200, &ticket["ticketId"]), "the same again: {again}");
        (Visitor(token.to_owned()), ticket)
    }
}

/// The whole answer; an answer that is cut off is an error.
async fn whole(request: RequestBuilder) -> reqwest::Result<(StatusCode, Value)> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// A server on these ports, once it serves.
async fn start(db: &Database, redis: &Redis, (port, management): (u16, u16), drain_ms: u32) -> Server {
    let mut server = zticket(&db.url, &redis.url())
        .on(port, management)
        .without_limits()
        .set("ZTICKET_DRAIN_MS", drain_ms)
        .set("ZTICKET_SEAT_TOTAL_COUNT", SEATS)
        .set("ZTICKET_ADMISSION_INTERVAL_MS", 20)
        .set("ZTICKET_ADMISSION_BATCH_SIZE", 100)
        .set("ZTICKET_ADMISSION_MAX_ACTIVE_USERS", 1000)
        .start()
        .unwrap();
    server.url().await.unwrap();
    server
}

/// For visitors, and for the balancer.
fn free_ports() -> (u16, u16) {
    (ports::free().unwrap(), ports::free().unwrap())
}

/// Restarts three servers one after the other while people buy. Returns the balancer, for what it saw.
async fn restart_all(watchful: bool) -> Balancer {
    let (db, redis) = (empty_database().await, start_redis().await);
    let drain_ms = if watchful { 3000 } else { 0 };
    let ports: Vec<(u16, u16)> = (0..3).map(|_| free_ports()).collect();
    let mut servers = Vec::new();
    for port in &ports {
        servers.push(start(&db, &redis, *port, drain_ms).await);
    }
    let balancer = Balancer::new(ports.iter().map(|(port, _)| format!("http://127.0.0.1:{port}")).collect());
    let (restarting, seats) = (AtomicBool::new(true), AtomicUsize::new(0));
    let buyers = join_all((0..BUYERS).map(|_| async {
        let mut visits = Vec::new();
        while restarting.load(Ordering::Relaxed) {
            visits.push(balancer.visit(seats.fetch_add(1, Ordering::Relaxed) + 1).await);
        }
        visits
    }));
    let some_buy = async || {
        let enough = seats.load(Ordering::Relaxed) + 2 * BUYERS;
        eventually("people buy", async || (seats.load(Ordering::Relaxed) >= enough).then_some(())).await;
    };
    let restarts = async {
        for (server, port) in servers.iter_mut().zip(&ports) {
            some_buy().await;
            let stopping = Instant::now();
            terminate(server).await;
            balancer.why_refused(server);
            assert!(stopping.elapsed() < Duration::from_secs(25), "stopping took {:?}", stopping.elapsed());
            *server = start(&db, &redis, *port, drain_ms).await;
        }
        some_buy().await;
        restarting.store(false, Ordering::Relaxed);
    };
    let watching = join_all(ports.iter().enumerate().map(|(at, port)| balancer.watch(at, port.1)));
    let visits = tokio::select! {
        (visits, ()) = async { tokio::join!(buyers, restarts) } => visits,
        _ = watching, if watchful => unreachable!("it watches on"),
    };
    let visits: Vec<(Visitor, Value)> = visits.into_iter().flatten().collect();

    let sold = visits.len();
    assert!(sold > BUYERS, "{sold}");
    let places: HashSet<_> = visits.iter().map(|(visitor, _)| visitor.place()).collect();
    let tickets: HashSet<_> = visits.iter().map(|(_, ticket)| ticket["ticketId"].to_string()).collect();
    assert_eq!((places.len(), tickets.len()), (sold, sold), "a place and a ticket each");
    for server in &mut servers {
        terminate(server).await;
        balancer.why_refused(server);
    }
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), sold as i64);
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets WHERE status <> 'SYNCED'").await.unwrap(), 0);
    check_promises(&db).await;
    db.remove().await.unwrap();
    balancer
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_restarted_one_after_the_other_cost_no_buyer_anything() {
    let balancer = restart_all(false).await;
    assert!(!balancer.broken.lock().unwrap().is_empty(), "each server was away for a while");
    assert_eq!(
        balancer.refused.into_inner().unwrap(),
        [""; 0],
        "a server that stops or starts refuses nothing it takes"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_balancer_with_health_checks_nobody_notices_a_restart() {
    let balancer = restart_all(true).await;
    let broken = balancer.broken.into_inner().unwrap();
    assert!(broken.is_empty(), "no connection breaks: {broken:?}");
    assert_eq!(balancer.refused.into_inner().unwrap(), [""; 0], "nothing is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_during_200_purchases_sells_and_charges_once() {
    // Fewer than buyers, so that some want the same seat.
    const SEATS_WANTED: usize = 150;
    let (db, redis) = (empty_database().await, start_redis().await);
    let port = free_ports();
    let mut server = start(&db, &redis, port, 0).await;
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "name": "R", "price": 50_000, "rows": 20, "seatsPerRow": 10 }] });
    let pool = zticket::store::db::pool::pool(&db.url, 1).unwrap();
    zticket::house::setup::add(&pool, &serde_json::from_value(hall).unwrap()).await.unwrap();
    let event = db.number("SELECT max(id)::bigint AS n FROM events").await.unwrap();
    let balancer = Balancer::new(vec![format!("http://127.0.0.1:{}", port.0)]);

    let people = join_all((0..200).map(|_| async {
        let (_, person) =
            balancer.ask(|client, url| client.post(format!("{url}/api/users")).json(&json!({ "name": "A" }))).await;
        let key = person["apiKey"].as_str().unwrap().to_owned();
        let charge = |client: &Client, url: &str| {
            let request = client.post(format!("{url}/api/users/me/balance/charges")).bearer_auth(&key);
            request.header("Idempotency-Key", "first").json(&json!({ "amount": 120_000 }))
        };
        assert_eq!(balancer.ask(charge).await.0, 200);
        let enter = |client: &Client, url: &str| client.post(format!("{url}/api/events/{event}/queues/tokens"));
        let token = balancer.ask(enter).await.1["uuid"].as_str().unwrap().to_owned();
        balancer.let_in(&token).await;
        (key, token)
    }))
    .await;

    let buying = join_all(people.iter().enumerate().map(|(at, (key, token))| {
        let buy = move |client: &Client, url: &str| {
            let request = client.post(format!("{url}/api/tickets")).bearer_auth(key).header("X-Queue-Token", token);
            request.json(&json!({ "seatNumber": at % SEATS_WANTED + 1 }))
        };
        balancer.ask(buy)
    }));
    let killing = async {
        eventually("some have bought", async || {
            (db.number("SELECT count(*) AS n FROM tickets").await.unwrap() > 0).then_some(())
        })
        .await;
        server.kill().unwrap();
        start(&db, &redis, port, 0).await
    };
    let (answers, mut server) = tokio::join!(buying, killing);

    let refused = |(status, body): &&(StatusCode, Value)| *status == 409 && body["code"] == "SEAT_ALREADY_SOLD";
    let held = |(status, body): &&(StatusCode, Value)| *status == 409 && body["code"] == "SEAT_ALREADY_HELD";
    let bought: HashSet<String> =
        answers.iter().filter(|(status, _)| *status == 200).map(|(_, ticket)| ticket["ticketId"].to_string()).collect();
    let clean = answers.iter().filter(refused).count() + answers.iter().filter(held).count();
    assert_eq!(bought.len() + clean, 200, "a ticket or a clean refusal: {answers:?}");
    assert_eq!(bought.len(), SEATS_WANTED);
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), SEATS_WANTED as i64);
    for (balance, count) in [(70_000, SEATS_WANTED), (120_000, 200 - SEATS_WANTED)] {
        let people = db.number(&format!("SELECT count(*) AS n FROM users WHERE balance = {balance}")).await.unwrap();
        assert_eq!(people, count as i64, "people with {balance} left");
    }
    terminate(&mut server).await;
    check_promises(&db).await;
    drop(pool);
    db.remove().await.unwrap();
}
