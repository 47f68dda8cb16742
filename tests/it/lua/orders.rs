//! `4_order_accept`, `4_order_take` and `4_order_finish`: orders that are written later.

use std::time::Duration;

use redis::AsyncCommands;
use uuid::Uuid;
use zticket::base::ids::{OrderId, PersonId, Place};
use zticket::base::request::Request;
use zticket::store::redis::keys::Key;
use zticket::store::redis::reads::{self, PendingOrder};
use zticket::store::redis::scripts::{Accept, Finished, Hold, Holder, Leave, Take, Taken};

use super::fixture::{Fixture, numbers};

const FREEZE: i64 = 600_000;
const LEASE: i64 = 10_000;
const PERSON: PersonId = PersonId(Uuid::from_u128(77));

/// An order of this place for these seats. The same place and seats have the same number.
pub fn request(place: u32, seats: &[u32]) -> Request {
    let number = seats.iter().fold(u128::from(place) + 1, |number, seat| (number << 20) | u128::from(*seat));
    let person = Some(PERSON);
    Request { order: OrderId(Uuid::from_u128(number)), place: Place(place), seats: numbers(seats), person }
}

pub fn finished(place: u32, seats: &[u32], paid: bool) -> Finished {
    Finished { order: request(place, seats).order, place: Place(place), paid, entry: None }
}

impl Fixture {
    /// Held by the person whose orders these are.
    async fn held_by_buyer(&self, place: u32, seats: &[u32]) {
        let held = self.hold_as(Some(PERSON), place, 0, seats).await;
        assert!(matches!(held, Hold::Held { .. }), "{place} wanted {seats:?}: {held:?}");
    }

    pub async fn accept(&self, place: u32, seats: &[u32]) -> Accept {
        self.accept_of(place, seats, 100, true).await
    }

    async fn accept_of(&self, place: u32, seats: &[u32], most: usize, to_stream: bool) -> Accept {
        let (request, freeze) = (request(place, seats), Duration::from_millis(FREEZE as u64));
        self.scripts.accept(&mut self.conn(), &self.keys, &request, freeze, most, to_stream).await.unwrap()
    }

    async fn take(&self, writer: &str, most: usize) -> Take {
        let lease = Duration::from_millis(LEASE as u64);
        self.scripts.take(&mut self.conn(), &self.keys, writer, lease, most).await.unwrap()
    }

    async fn taken(&self, writer: &str, most: usize) -> Vec<Taken> {
        match self.take(writer, most).await {
            Take::Taken(taken) => taken,
            other => panic!("{other:?}"),
        }
    }

    async fn finish(&self, orders: &[Finished]) -> u64 {
        self.scripts.finish(&mut self.conn(), &self.keys, orders).await.unwrap()
    }

    async fn pending(&self, place: u32, seats: &[u32]) -> Option<PendingOrder> {
        let order = (request(place, seats).order, Place(place));
        reads::pending(&mut self.conn(), &self.keys, &[order]).await.unwrap().remove(0)
    }

    async fn pass_of(&self, place: u32) -> Option<i64> {
        self.conn().zscore(self.keys.get(Key::Passes), place).await.unwrap()
    }

    async fn limit_of(&self, place: u32) -> i64 {
        self.conn().hget(self.keys.get(Key::Limits), place).await.unwrap()
    }

    async fn nothing_is_pending(&self) {
        for key in [Key::Requests, Key::Pending, Key::Working, Key::Frozen] {
            let left: usize = match key {
                Key::Requests => {
                    redis::cmd("XLEN").arg(self.keys.get(key)).query_async(&mut self.conn()).await.unwrap()
                }
                Key::Pending => self.conn().zcard(self.keys.get(key)).await.unwrap(),
                Key::Working => self.conn().scard(self.keys.get(key)).await.unwrap(),
                _ => self.conn().hlen(self.keys.get(key)).await.unwrap(),
            };
            assert_eq!(left, 0, "{}", key.name());
        }
    }
}

#[tokio::test]
async fn orders_are_taken_in_the_order_they_came() {
    let event = Fixture::new().await;
    let visitors = event.inside(3).await;
    for (ahead, place) in (0..).zip([visitors[2], visitors[0], visitors[1]]) {
        assert_eq!(event.accept(place, &[5, 6]).await, Accept::Accepted { ahead });
    }
    assert_eq!(event.pending(visitors[1], &[5, 6]).await.map(|order| (order.ahead, order.working)), Some((2, false)));
    let taken = event.taken("a", 2).await;
    let requests: Vec<Request> = taken.iter().map(|taken| taken.request.clone()).collect();
    assert_eq!(requests, [request(visitors[2], &[5, 6]), request(visitors[0], &[5, 6])]);
    assert_eq!(event.pending(visitors[0], &[5, 6]).await.map(|order| (order.ahead, order.working)), Some((1, true)));
    assert_eq!(event.pending(visitors[1], &[5, 6]).await.map(|order| (order.ahead, order.working)), Some((2, false)));

    assert_eq!(event.taken("a", 2).await, taken, "what is not finished is taken again");
    let entry = taken[0].entry.clone();
    assert_eq!(event.finish(&[Finished { entry, ..finished(visitors[2], &[5, 6], true) }]).await, 1);
    assert_eq!(event.taken("a", 1).await, taken[1..]);
    assert_eq!(event.finish(&[finished(visitors[0], &[5, 6], false), finished(visitors[1], &[5, 6], false)]).await, 2);
    assert_eq!(event.take("a", 9).await, Take::None);
    event.nothing_is_pending().await;
    event.check().await;
}

#[tokio::test]
async fn a_place_has_one_order_at_a_time() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let order = request(place, &[5, 6]).order;
    assert_eq!(event.accept(place, &[5, 6]).await, Accept::Accepted { ahead: 0 });
    assert_eq!(event.accept(place, &[5, 6]).await, Accept::Known(order));
    assert_eq!(event.accept(place, &[5]).await, Accept::Other(order));
    let nobody_pays = Request { person: None, ..request(place, &[5, 6]) };
    let freeze = Duration::from_millis(FREEZE as u64);
    let other = event.scripts.accept(&mut event.conn(), &event.keys, &nobody_pays, freeze, 100, true).await.unwrap();
    assert_eq!(other, Accept::Other(order), "somebody else would pay");
    assert_eq!(event.taken("a", 9).await.len(), 1);
    event.finish(&[finished(place, &[5, 6], false)]).await;
    assert_eq!(event.accept(place, &[5]).await, Accept::Accepted { ahead: 0 });
}

#[tokio::test]
async fn a_place_orders_for_the_person_who_uses_it() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let (buyer, other) = (request(place, &[5]).person, Some(PersonId(Uuid::from_u128(99))));
    assert!(matches!(event.hold_as(other, place, 0, &[7]).await, Hold::Held { .. }));
    let dump = event.dump().await;
    assert_eq!(event.accept(place, &[5]).await, Accept::Another);
    assert_eq!(event.dump().await, dump, "a refusal writes nothing");
    event.leave(place).await;

    let place = event.inside(1).await[0];
    assert_eq!(event.accept(place, &[5]).await, Accept::Accepted { ahead: 0 });
    assert_eq!(event.hold_as(other, place, 0, &[7]).await, Hold::Another, "the person who ordered first buys");
    assert!(matches!(event.hold_as(buyer, place, 0, &[7]).await, Hold::Held { .. }));
}

#[tokio::test]
async fn who_is_not_inside_orders_nothing() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let waiting = event.entered(1).await;
    let before = event.dump().await;
    assert_eq!(event.accept(waiting, &[5]).await, Accept::NoPass);
    assert_eq!(event.accept(waiting + 9, &[5]).await, Accept::NoPass);
    event.pass(2_000_000).await;
    assert_eq!(event.accept(place, &[5]).await, Accept::NoPass, "the time is over");
    event.pass(-2_000_000).await;
    assert_eq!(event.accept_of(place, &[5], 0, true).await, Accept::Full);
    assert_eq!(event.dump().await, before, "a refusal writes nothing");
}

#[tokio::test]
async fn the_clock_of_a_place_stands_still_while_its_order_waits() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let now = event.now().await + 50;
    event.at(now).await;
    event.held_by_buyer(place, &[7]).await;
    event.at(now + 900_000).await;
    event.held_by_buyer(place, &[8]).await;
    let (pass, limit, holds) =
        (event.pass_of(place).await.unwrap(), event.limit_of(place).await, event.hold_ends().await);
    event.at(now + 980_000).await;
    assert_eq!(event.accept(place, &[7, 8, 9]).await, Accept::Accepted { ahead: 0 });
    assert_eq!(event.hold_ends().await[&7], now + 980_000 + FREEZE, "20 s were left");
    assert_eq!(event.hold_ends().await[&8], holds[&8], "it had more time anyway");
    event.check().await;

    event.at(now + 1_280_000).await;
    event.held_by_buyer(place, &[9]).await;
    event.at(now + 1_280_000).await;
    event.finish(&[finished(place, &[7, 8, 9], false)]).await;
    let after = event.hold_ends().await;
    assert_eq!((after[&7], after[&8]), (holds[&7] + 300_000, holds[&8] + 300_000), "it has the time that it had");
    assert_eq!(event.limit_of(place).await, limit + 300_000);
    assert_eq!(event.pass_of(place).await, Some((pass + 300_000).max(after[&9])));
    event.check().await;
    event.nothing_is_pending().await;
}

#[tokio::test]
async fn a_seat_got_while_the_clock_stood_still_makes_no_stay_longer() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    let limit = event.limit_of(place).await;
    event.at(limit - 1_050_000).await;
    event.held_by_buyer(place, &[9]).await;
    event.at(limit - 100_000).await;
    event.accept(place, &[7]).await;
    event.at(limit + 100_000).await;
    event.held_by_buyer(place, &[7]).await;
    assert_eq!(event.hold_ends().await[&7], limit - 100_000 + FREEZE);
    event.at(limit + 100_000).await;
    event.finish(&[finished(place, &[7], false)]).await;
    assert_eq!(event.limit_of(place).await, limit + 200_000);
    assert_eq!(
        event.hold_ends().await[&7],
        limit + 210_000,
        "ten seconds more than the longest stay, as for any payment"
    );
    event.check().await;
}

#[tokio::test]
async fn all_orders_of_a_place_stop_its_clock_no_longer_than_one_may() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.held_by_buyer(place, &[7]).await;
    let (limit, hold) = (event.limit_of(place).await, event.hold_ends().await[&7]);
    let mut now = event.now().await + 50;
    for _ in 0..3 {
        event.at(now).await;
        assert_eq!(event.accept(place, &[8]).await, Accept::Accepted { ahead: 0 });
        assert!(event.limit_of(place).await <= limit + FREEZE);
        now += FREEZE / 2;
        event.at(now).await;
        event.finish(&[finished(place, &[8], false)]).await;
    }
    assert_eq!((event.limit_of(place).await, event.hold_ends().await[&7]), (limit + FREEZE, hold + FREEZE));
    event.check().await;
    event.at(limit + FREEZE).await;
    event.accept(event.inside(1).await[0], &[9]).await;
    let known: Vec<u32> = event.conn().zrange(event.keys.get(Key::Latest), 0, -1).await.unwrap();
    assert!(!known.contains(&place), "when its stay is over, it is forgotten");
}

#[tokio::test]
async fn a_clock_stands_still_for_a_limited_time() {
    let event = Fixture::with(|setup| setup.policy.active_ttl_ms = 100_000).await;
    let place = event.inside(1).await[0];
    event.held_by_buyer(place, &[7]).await;
    event.accept(place, &[7]).await;
    event.pass(1_100_000).await;
    assert_eq!(event.hold_as(Some(PERSON), place, 0, &[7]).await, Hold::NoPass);
    event.admit_now().await;
    event.scripts.expire(&mut event.conn(), &event.keys, 10).await.unwrap();
    assert_eq!(event.pass_of(place).await, None);
    event.finish(&[finished(place, &[7], false)]).await;
    assert_eq!(event.pass_of(place).await, None, "what is over stays over");
    event.check().await;
    event.nothing_is_pending().await;
}

#[tokio::test]
async fn seats_given_back_meanwhile_are_not_touched() {
    let event = Fixture::new().await;
    let visitors = event.inside(2).await;
    event.held_by_buyer(visitors[0], &[7]).await;
    event.accept(visitors[0], &[7]).await;
    assert_eq!(event.leave(visitors[0]).await, Leave::Left);
    event.held_by_buyer(visitors[1], &[7]).await;
    let holds = event.hold_ends().await;
    event.finish(&[finished(visitors[0], &[7], false)]).await;
    assert_eq!(event.hold_ends().await, holds);
    event.check().await;
    event.nothing_is_pending().await;
}

#[tokio::test]
async fn one_server_writes_until_it_stops_or_dies() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.accept(place, &[5]).await;
    let now = event.now().await + 50;
    event.at(now).await;
    assert_eq!(event.taken("a", 9).await.len(), 1);
    event.at(now + LEASE - 1_000).await;
    assert_eq!(event.take("b", 9).await, Take::Busy { left: Duration::from_secs(1) });
    assert_eq!(event.taken("a", 9).await.len(), 1, "a asks again and stays the writer");
    event.at(now + LEASE).await;
    assert!(matches!(event.take("b", 9).await, Take::Busy { .. }));
    event.at(now + 2 * LEASE).await;
    assert_eq!(event.taken("b", 9).await.len(), 1, "a has not been heard of");
    assert!(matches!(event.take("a", 9).await, Take::Busy { .. }));
    assert!(matches!(event.take("a", 0).await, Take::Busy { .. }), "only the writer can stop");
    assert_eq!(event.take("b", 0).await, Take::None);
    assert_eq!(event.taken("a", 9).await.len(), 1, "b let others write");
}

#[tokio::test]
async fn a_writer_with_nothing_to_do_lets_others_write_at_once() {
    let event = Fixture::new().await;
    let places = event.inside(2).await;
    event.accept(places[0], &[5]).await;
    assert_eq!(event.taken("a", 9).await.len(), 1);
    assert_eq!(event.finish(&[finished(places[0], &[5], true)]).await, 1);
    event.accept(places[1], &[6]).await;
    assert!(matches!(event.take("b", 9).await, Take::Busy { .. }), "a has not looked yet");
    assert_eq!(event.finish(&[finished(places[1], &[6], true)]).await, 1);
    assert_eq!(event.take("a", 9).await, Take::None);
    event.accept(places[0], &[7]).await;
    assert_eq!(event.taken("b", 9).await.len(), 1);
}

#[tokio::test]
async fn finishing_again_does_nothing() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    event.accept(place, &[5]).await;
    assert_eq!(event.finish(&[finished(place, &[5], true)]).await, 1);
    event.accept(place, &[6]).await;
    assert_eq!(event.finish(&[finished(place, &[5], true)]).await, 0);
    assert!(event.pending(place, &[6]).await.is_some(), "the next order of the place is another one");
    assert_eq!(event.pending(place, &[5]).await, None);
}

#[tokio::test]
async fn an_order_for_another_broker_is_pending_and_not_in_the_stream() {
    let event = Fixture::new().await;
    let place = event.inside(1).await[0];
    assert_eq!(event.accept_of(place, &[5], 9, false).await, Accept::Accepted { ahead: 0 });
    assert_eq!(event.take("a", 9).await, Take::None);
    assert_eq!(event.pending(place, &[5]).await.unwrap().person, Some(PERSON));
    let orders = [request(place, &[5]).order, request(place, &[6]).order];
    let unknown = event.scripts.begin(&mut event.conn(), &event.keys, &orders).await.unwrap();
    assert_eq!(unknown, orders[1..], "it does not wait here");
    assert!(event.pending(place, &[5]).await.unwrap().working);
    assert_eq!(event.finish(&[finished(place, &[5], false)]).await, 1);
    event.nothing_is_pending().await;
}

#[tokio::test]
async fn an_entry_that_is_no_order_stops_no_other() {
    let event = Fixture::new().await;
    let [first, second] = event.inside(2).await[..] else { panic!() };
    event.accept(first, &[1]).await;
    let mut add = redis::cmd("XADD");
    add.arg(event.keys.get(Key::Requests)).arg("*");
    add.arg(["order", "17", "place", "x", "seats", "1;2", "buyer", "?"].as_slice());
    let _: String = add.query_async(&mut event.conn()).await.unwrap();
    event.accept(second, &[2]).await;
    let orders = |taken: Vec<Taken>| taken.into_iter().map(|one| one.request).collect::<Vec<_>>();
    let both = [request(first, &[1]), request(second, &[2])];
    assert_eq!(orders(event.taken("a", 10).await), both);
    assert_eq!(orders(event.taken("a", 10).await), both, "it is left out for good");
    event.finish(&[finished(first, &[1], true), finished(second, &[2], true)]).await;
    event.nothing_is_pending().await;
}

#[tokio::test]
async fn holds_in_turn_are_given_in_that_order() {
    let event = Fixture::new().await;
    let visitors = event.inside(20).await;
    let seats = numbers(&[4]);
    let parties: Vec<_> =
        visitors.iter().rev().map(|place| Holder { place: Place(*place), person: None, seats: &seats }).collect();
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut event.conn()).await.unwrap();
    let holds = event.scripts.hold_in_turn(&mut event.conn(), &event.keys, 10, &parties).await.unwrap();
    assert!(matches!(holds[0], Hold::Held { .. }));
    assert!(holds[1..].iter().all(|hold| matches!(hold, Hold::Taken(_))) && holds.len() == 20);
    event.check().await;
}
