//! People who want a seat: each goes the whole way, tries again when something fails, and remembers its answers.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::stage::QUEUE_TTL;
use crate::world::{End, PASSED_ON, Poll, Rule, Shared, Story, Told, World, lock};

const NAP: Duration = Duration::from_millis(100);
/// While nothing is broken, an order is decided within this time.
const LONGEST_ORDER: Duration = Duration::from_secs(30);
const LONGEST_NAP: Duration = Duration::from_secs(2);

pub struct Visitor {
    world: Arc<World>,
    rng: fastrand::Rng,
    number: u32,
    event: i32,
    priced: bool,
    token: String,
    key: Option<String>,
    user: Option<Uuid>,
    charged: i64,
    charges: u32,
    /// Whether purchases are accepted first and written later.
    later: bool,
    began: Instant,
}

struct Answer {
    status: StatusCode,
    body: Value,
    poll: Poll,
}

impl Answer {
    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

impl Visitor {
    pub fn new(world: Arc<World>, seed: u64, number: u32, events: &[(i32, bool)]) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ (u64::from(number) << 32));
        let (event, priced) = rng.choice(events).copied().unwrap_or((1, false));
        let (token, key, user) = (String::new(), None, None);
        let (later, began) = (rng.bool(), Instant::now());
        Self { world, rng, number, event, priced, token, key, user, charged: 0, charges: 0, later, began }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(..100) < percent
    }

    /// Goes the whole way. `None` on the way: the run is over, or the visit is void.
    pub async fn visit(mut self) {
        self.began = Instant::now();
        if self.priced && self.sign_up().await.is_none() {
            return;
        }
        let Some(story) = self.enter().await else { return };
        let end = match self.live(&story).await {
            _ if self.is_void() => End::Voided,
            end => end.unwrap_or(End::StillWaiting),
        };
        let mut story = lock(&story);
        story.waiting = false;
        story.charged = self.charged;
        story.end = Some(end);
    }

    /// One try.
    async fn send(&mut self, method: &Method, path: &str, body: &Value) -> Option<Answer> {
        let Some(server) = self.world.pick_server(&mut self.rng) else {
            // As a balancer without a server would answer.
            self.world.counts.unanswered.fetch_add(1, Relaxed);
            return None;
        };
        let url = format!("{}{path}", self.world.stage.server_url(server));
        if path.ends_with("/queues/tokens") {
            self.world.counts.joins.fetch_add(1, Relaxed);
        }
        let request = self.dressed(self.world.http.request(method.clone(), url), body);
        let counts = &self.world.counts;
        let sent = Instant::now();
        let answer = match request.send().await {
            Ok(answer) => {
                let status = answer.status();
                answer.bytes().await.ok().map(|bytes| (status, bytes))
            }
            Err(_) => None,
        };
        let Some((status, bytes)) = answer else {
            counts.unanswered.fetch_add(1, Relaxed);
            self.world.shun(server);
            return None;
        };
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match status.as_u16() {
            200..=299 => counts.answered.fetch_add(1, Relaxed),
            // 408: this program was too slow to send it.
            408 | 503 => {
                counts.unavailable.fetch_add(1, Relaxed);
                return None;
            }
            500.. => {
                let what = format!("{method} {path} answered {status}: {body}");
                self.world.violated(Rule::NoOtherFault, what);
                return None;
            }
            _ => counts.refused.fetch_add(1, Relaxed),
        };
        Some(Answer { status, body, poll: Poll { sent, answered: Instant::now(), server } })
    }

    fn dressed(&self, mut request: RequestBuilder, body: &Value) -> RequestBuilder {
        if !self.token.is_empty() {
            request = request.header("X-Queue-Token", &self.token);
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key).header("Idempotency-Key", format!("c{}", self.charges));
        }
        if self.later {
            request = request.header("Prefer", "respond-async");
        }
        if body.is_null() { request } else { request.json(body) }
    }

    fn is_void(&self) -> bool {
        self.world.is_void(self.began)
    }

    /// Tries until there is an answer other than a 503.
    async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Option<Answer> {
        let mut nap = NAP;
        while !self.world.is_over() && !self.is_void() {
            let answer = self.send(&method, path, body).await;
            if answer.is_some() && !self.is_void() {
                return answer;
            }
            // As browsers do: a crowd that asks again at once would keep everything down, this program first.
            tokio::time::sleep(nap + Duration::from_millis(self.rng.u64(..200))).await;
            nap = (nap * 2).min(LONGEST_NAP);
        }
        None
    }

    async fn sign_up(&mut self) -> Option<()> {
        let name = json!({ "name": format!("Visitor {}", self.number) });
        let answer = self.ask(Method::POST, "/api/users", &name).await?;
        self.user = answer.body["userId"].as_str().and_then(|id| id.parse().ok());
        self.key = answer.body["apiKey"].as_str().map(str::to_owned);
        if self.key.is_none() {
            self.world.violated(Rule::NoOtherFault, format!("signing up answered {}", answer.body));
            return None;
        }
        // Half of them learn when they pay that they need more.
        let amount = if self.chance(50) { 200_000 } else { 10_000 };
        self.charge(amount).await
    }

    async fn charge(&mut self, amount: i64) -> Option<()> {
        let answer = self.ask(Method::POST, "/api/users/me/balance/charges", &json!({ "amount": amount })).await?;
        self.charges += 1;
        if answer.status.is_success() {
            self.charged += amount;
        } else {
            self.world.violated(Rule::MoneyIsConserved, format!("a charge was refused: {}", answer.body));
        }
        Some(())
    }

    /// If the answer is lost, nobody polls for the place, and it is swept.
    async fn enter(&mut self) -> Option<Shared<Story>> {
        let path = format!("/api/events/{}/queues/tokens", self.event);
        let answer = self.ask(Method::POST, &path, &Value::Null).await?;
        if !answer.status.is_success() {
            if answer.code() != "SOLD_OUT" {
                self.world.violated(Rule::NoOtherFault, format!("entering was refused: {}", answer.body));
            }
            return None;
        }
        self.token = answer.body["uuid"].as_str()?.to_owned();
        let now = Instant::now();
        let story = Arc::new(Mutex::new(Story {
            event: self.event,
            place: place_of(&self.token)?,
            began: self.began,
            entered: now,
            waiting: true,
            polls: VecDeque::from([answer.poll]),
            user: self.user,
            charged: 0,
            tickets: Vec::new(),
            end: None,
        }));
        self.world.entered(&story);
        Some(story)
    }

    async fn live(&mut self, story: &Shared<Story>) -> Option<End> {
        if self.chance(8) {
            // Goes away without leaving the line.
            return Some(End::Gone);
        }
        let leaves = self.chance(4);
        let path = format!("/api/queues/tokens/{}", self.token);
        loop {
            let answer = self.ask(Method::GET, &path, &Value::Null).await?;
            if !answer.status.is_success() {
                return Some(self.expired(story, &answer));
            }
            match answer.body["status"].as_str() {
                Some("ACTIVE") => break,
                Some("SOLD_OUT") => return Some(End::SoldOut),
                _ => self.heard(story, answer.poll),
            }
            if leaves && self.chance(20) {
                lock(story).waiting = false;
                self.ask(Method::DELETE, &path, &Value::Null).await?;
                return Some(End::Gone);
            }
            let wait = answer.body["pollAfterMs"].as_u64().unwrap_or(1000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        lock(story).waiting = false;
        self.shop(story).await
    }

    fn heard(&self, story: &Shared<Story>, poll: Poll) {
        let mut story = lock(story);
        story.polls.push_back(poll);
        if story.polls.len() > 8 {
            story.polls.pop_front();
        }
    }

    fn expired(&self, story: &Shared<Story>, answer: &Answer) -> End {
        self.heard(story, answer.poll);
        let story = lock(story);
        if lock(&self.world.admitted).contains(&(story.event, story.place)) {
            // Let in, and out of time before a poll could say so.
            return End::RanOut;
        }
        // A poll may have been answered from a snapshot of ten seconds ago.
        let known = story.polls.iter().rev().nth(1).map_or(story.entered, |poll| poll.sent);
        if self.world.blind_since(known - Duration::from_secs(10)) {
            return End::Unseen;
        }
        // At least one of its polls must have reached Redis lately.
        let heard =
            |poll: &Poll| poll.sent.elapsed() < QUEUE_TTL - QUEUE_TTL / 4 - PASSED_ON && self.world.passed_on(poll);
        if !story.polls.iter().rev().skip(1).any(heard) {
            return End::Silent;
        }
        let what = format!(
            "place {} of event {} was answered {} after {:?} of waiting, polls {:?} ago (sent, answered, server)",
            story.place,
            story.event,
            answer.code(),
            story.entered.elapsed(),
            story.polls.iter().map(|poll| poll.before(Instant::now())).collect::<Vec<_>>()
        );
        self.world.violated(Rule::PollingGetsIn, what);
        End::Expired
    }

    /// Inside.
    async fn shop(&mut self, story: &Shared<Story>) -> Option<End> {
        if self.chance(10) {
            return self.linger().await;
        }
        let mut party = *self.rng.choice(&[1, 1, 2, 2, 3, 4]).unwrap_or(&1);
        for _ in 0..30 {
            let seats = match self.hold(party).await? {
                Ok(seats) => seats,
                Err(answer) if matches!(answer.code(), "NOT_ACTIVE_USER" | "QUEUE_TOKEN_EXPIRED") => {
                    return Some(End::RanOut);
                }
                Err(_) => {
                    party = 1;
                    tokio::time::sleep(NAP * 3).await;
                    continue;
                }
            };
            // People look before they pay.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(100..2500))).await;
            if self.chance(10) {
                let path = format!("/api/events/{}/seats/hold", self.event);
                self.ask(Method::DELETE, &path, &json!({ "seatNumbers": seats })).await?;
                continue;
            }
            return self.buy(story, &seats).await;
        }
        Some(End::SoldOut)
    }

    /// Only watches until the time inside is over.
    async fn linger(&mut self) -> Option<End> {
        let path = format!("/api/queues/tokens/{}", self.token);
        let began = Instant::now();
        loop {
            let answer = self.ask(Method::GET, &path, &Value::Null).await?;
            if !answer.status.is_success() || answer.body["status"] != "ACTIVE" {
                return Some(End::RanOut);
            }
            if began.elapsed() > Duration::from_secs(20) && !self.world.any_hurt_since(began) {
                let what = format!("place {:?} of event {} is inside for 20 s", place_of(&self.token), self.event);
                self.world.violated(Rule::NothingOutlivesItsDeadline, what);
                return Some(End::RanOut);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn hold(&mut self, party: usize) -> Option<Result<Vec<i64>, Answer>> {
        let event = self.event;
        if self.chance(50) {
            let path = format!("/api/events/{event}/seats/best");
            let answer = self.ask(Method::POST, &path, &json!({ "count": party })).await?;
            let numbers = answer.body["seatNumbers"].as_array();
            let numbers = numbers.map(|numbers| numbers.iter().filter_map(Value::as_i64).collect());
            return Some(numbers.ok_or(answer));
        }
        let map = self.ask(Method::GET, &format!("/api/events/{event}/seats"), &Value::Null).await?;
        let free = |seat: &Value| (seat["status"] == "available").then(|| seat["seatNumber"].as_i64()).flatten();
        let free: Vec<i64> = map.body.as_array().into_iter().flatten().filter_map(free).collect();
        let wanted = self.rng.choose_multiple(free, party);
        if wanted.is_empty() {
            return Some(Err(map));
        }
        if self.chance(10) {
            // Some pay at once.
            return Some(Ok(wanted));
        }
        let body = json!({ "seatNumbers": wanted });
        let answer = self.ask(Method::POST, &format!("/api/events/{event}/seats/hold"), &body).await?;
        Some(if answer.status.is_success() { Ok(wanted) } else { Err(answer) })
    }

    async fn buy(&mut self, story: &Shared<Story>, seats: &[i64]) -> Option<End> {
        let path = format!("/api/events/{}/tickets", self.event);
        let body = json!({ "seatNumbers": seats });
        if self.chance(3) {
            let wait = Duration::from_millis(self.rng.u64(1..30));
            let _ = tokio::time::timeout(wait, self.send(&Method::POST, &path, &body)).await;
            return Some(End::Vanished);
        }
        loop {
            let mut answer = self.ask(Method::POST, &path, &body).await?;
            if answer.status == StatusCode::ACCEPTED {
                answer = self.decided(answer).await?;
            }
            match (answer.status.as_u16(), answer.code()) {
                // Lost with Redis: nothing was bought.
                (200, "SERVICE_UNAVAILABLE") => {}
                (200, "INSUFFICIENT_BALANCE") => self.charge(200_000).await?,
                (200, code) if !code.is_empty() => return Some(End::RanOut),
                (200, _) => {
                    let told = |ticket: &Value| {
                        Some(Told {
                            id: ticket["ticketId"].as_str()?.parse().ok()?,
                            seat: ticket["seatNumber"].as_i64()? as i32,
                            price: ticket["price"].as_i64()?,
                            cancelled: false,
                        })
                    };
                    let tickets: Vec<Told> =
                        answer.body["tickets"].as_array().into_iter().flatten().filter_map(told).collect();
                    if tickets.len() != seats.len() {
                        let what = format!("{seats:?} of event {} sold as {}", self.event, answer.body);
                        self.world.violated(Rule::NoTicketLost, what);
                    }
                    lock(story).tickets = tickets;
                    lock(&self.world.sales).push(Instant::now());
                    break;
                }
                (402, _) => self.charge(200_000).await?,
                (403 | 409 | 410, _) => return Some(End::RanOut),
                // A hold whose answer was lost counts too, so the visitor may be at the limit already.
                (400, "INVALID_REQUEST") => return Some(End::RanOut),
                _ => {
                    self.world.violated(Rule::NoOtherFault, format!("a purchase was answered {}", answer.body));
                    return Some(End::RanOut);
                }
            }
        }
        if self.chance(15) {
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..4000))).await;
            self.cancel(story).await?;
        }
        Some(End::Bought)
    }

    /// Asks until an accepted order is bought or failed.
    async fn decided(&mut self, mut answer: Answer) -> Option<Answer> {
        let order = answer.body["orderId"].as_str().unwrap_or_default().to_owned();
        let accepted = Instant::now();
        while matches!(answer.body["status"].as_str(), Some("PENDING" | "PROCESSING")) {
            if accepted.elapsed() > LONGEST_ORDER && !self.world.any_hurt_since(accepted) {
                let what = format!("order {order} is {} after {:?}", answer.body["status"], accepted.elapsed());
                self.world.violated(Rule::OrdersEnd, what);
            }
            tokio::time::sleep(NAP * 3).await;
            answer = self.ask(Method::GET, &format!("/api/orders/{order}"), &Value::Null).await?;
        }
        Some(answer)
    }

    async fn cancel(&mut self, story: &Shared<Story>) -> Option<()> {
        let id = lock(story).tickets.first().map(|ticket| ticket.id)?;
        let answer = self.ask(Method::DELETE, &format!("/api/tickets/{id}"), &Value::Null).await?;
        if answer.body["status"] == "CANCELLED" {
            if let Some(ticket) = lock(story).tickets.first_mut() {
                ticket.cancelled = true;
            }
        } else {
            self.world.violated(Rule::NoTicketLost, format!("a cancel was answered {}", answer.body));
        }
        Some(())
    }
}

/// The place a token carries, read without its key.
fn place_of(token: &str) -> Option<u32> {
    let bits = Uuid::parse_str(token).ok()?.as_u128();
    Some(((bits >> 80) as u32 & 0xff_ffff) << 8 | (bits >> 68) as u32 & 0xff)
}
