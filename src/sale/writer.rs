//! Writes accepted orders, oldest first, as many together as wait. If a server dies, another one begins with what was not
//! finished. To write an order again does nothing, so nothing is lost and nothing is bought twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::base::error::Error;
use crate::base::ids::OrderId;
use crate::base::request::Request;
use crate::event::Event;
use crate::sale::broker::Broker;
use crate::sale::seats::{Guest, Party};
use crate::sale::tickets::{Purchase, TIME_TO_PAY, Ticket, Tickets};
use crate::store::Stores;
use crate::store::db::outcomes::{self, Outcome, Why};
use crate::store::db::tickets::by_orders;
use crate::store::redis::lane::Lane;
use crate::store::redis::reads::{self, PendingOrder};
use crate::store::redis::scripts::{Finished, Hold, Holder, Take, Taken};

/// Orders written together.
const TOGETHER: usize = 200;
/// How often to look for orders that other servers accepted, while none is known.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The same for an event that nobody asks about: whoever asks about an order makes its event one that somebody asks about.
const LOOK_RARELY: Duration = Duration::from_secs(30);
/// An order that waits longer may have missed the broker.
const LONG: Duration = Duration::from_secs(30);
/// The clock of its place stands still for ten minutes; this is some minutes more.
const TOO_OLD: Duration = Duration::from_secs(900);

pub struct Writer {
    stores: Arc<Stores>,
    tickets: Arc<Tickets>,
    broker: Arc<dyn Broker>,
    lane: Lane,
}

/// How writing one order went.
enum Written {
    Paid,
    Ended(Why),
    /// Nobody knows yet: it is tried again.
    Again(Error),
}

impl Written {
    fn refused(error: &Error) -> Self {
        match serde_json::to_value(error.problem()) {
            Ok(problem) => Self::Ended(Why::Failed(problem)),
            Err(cause) => Self::Again(Error::internal(cause)),
        }
    }
}

/// Whether an order is too old to be sold: the clock of its place has long gone on, and how it ended may be forgotten.
fn too_old(event: &Event, order: OrderId) -> bool {
    event.order(order).is_some_and(|(_, age)| age > TOO_OLD)
}

impl Writer {
    pub fn new(stores: Arc<Stores>, tickets: Arc<Tickets>, broker: Arc<dyn Broker>) -> Result<Self, Error> {
        Ok(Self { lane: stores.lane()?, stores, tickets, broker })
    }

    /// One round: writes the oldest orders of an event, if no other server does. Returns when to look again.
    pub async fn step(&self, event: &Arc<Event>) -> Result<Duration, Error> {
        if event.check_database().is_err() {
            return Ok(LOOK_EVERY);
        }
        match self.broker.take(event, TOGETHER).await {
            Ok(Take::Taken(orders)) => {
                self.write(event, orders).await?;
                Ok(Duration::ZERO)
            }
            Ok(Take::None) => {
                self.look_after(event).await?;
                Ok(if event.hot() { LOOK_EVERY } else { LOOK_RARELY })
            }
            Err(Error::Unready) => Ok(LOOK_EVERY),
            Ok(Take::Busy { left }) => Ok(left),
            Err(error) => Err(error),
        }
    }

    /// Begins to receive orders.
    pub async fn start(&self) -> Result<(), Error> {
        self.broker.start().await
    }

    /// Lets other servers write.
    pub async fn stop(&self) {
        self.broker.stop().await;
    }

    /// Takes care of orders that have waited for long. They may never have reached the broker, or it lost them.
    async fn look_after(&self, event: &Arc<Event>) -> Result<(), Error> {
        let Some(snapshot) = event.snapshot.load_full().filter(|_| event.hot()) else { return Ok(()) };
        let waits_long = |order| event.order(order).is_some_and(|(_, age)| age > LONG);
        let orders = snapshot.frozen.iter().map(|(place, frozen)| (frozen.order, *place));
        let orders: Vec<_> = orders.filter(|(order, _)| waits_long(*order)).take(TOGETHER).collect();
        if orders.is_empty() {
            return Ok(());
        }
        let pending = reads::pending(&mut self.lane.call()?.link, &event.keys, &orders).await?;
        let mut old = Vec::new();
        for ((order, place), pending) in orders.into_iter().zip(pending) {
            let Some(PendingOrder { seats, person, .. }) = pending else { continue };
            let request = Request { order, place, seats, person };
            if too_old(event, order) {
                old.push(Taken { entry: None, request });
            } else {
                self.broker.keep_again(event, &request).await?;
            }
        }
        if old.is_empty() { Ok(()) } else { self.write(event, old).await }
    }

    async fn write(&self, event: &Arc<Event>, orders: Vec<Taken>) -> Result<(), Error> {
        let (old, orders): (Vec<_>, Vec<_>) = orders.into_iter().partition(|one| too_old(event, one.request.order));
        let (mut orders, decided) = self.begin(event, orders).await?;
        let mut written = self.sell(event, &orders).await?;
        written.extend(self.give_up(&old).await?);
        orders.extend(old);
        for (order, how) in decided {
            orders.push(order);
            written.push(how);
        }
        self.finish(event, &orders, written).await
    }

    /// Tells Redis that these orders are being written. Returns those to write, and those that are decided already: a broker
    /// other than Redis may bring an order twice. One that Redis does not know may also be lost there; it is written.
    async fn begin(&self, event: &Event, orders: Vec<Taken>) -> Result<(Vec<Taken>, Vec<(Taken, Written)>), Error> {
        if self.broker.in_redis() || orders.is_empty() {
            return Ok((orders, Vec::new()));
        }
        let ids: Vec<OrderId> = orders.iter().map(|one| one.request.order).collect();
        let unknown = self.stores.scripts.begin(&mut self.lane.call()?.link, &event.keys, &ids).await?;
        if unknown.is_empty() {
            return Ok((orders, Vec::new()));
        }
        let mut conn = self.stores.db.get().await?;
        let rows = by_orders(&mut conn, &unknown).await?;
        let mut known: HashMap<OrderId, Written> = outcomes::find(&mut conn, &unknown)
            .await?
            .into_iter()
            .map(|outcome| (outcome.order, Written::Ended(outcome.why)))
            .chain(rows.into_iter().map(|row| (OrderId(row.order_id), Written::Paid)))
            .collect();
        let (mut open, mut decided) = (Vec::new(), Vec::new());
        for one in orders {
            match known.remove(&one.request.order) {
                Some(how) => decided.push((one, how)),
                None => open.push(one),
            }
        }
        Ok((open, decided))
    }

    /// Orders that are too old to be sold. They may have been sold before.
    async fn give_up(&self, orders: &[Taken]) -> Result<Vec<Written>, Error> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<OrderId> = orders.iter().map(|one| one.request.order).collect();
        let rows = by_orders(&mut self.stores.db.get().await?, &ids).await?;
        let sold: HashSet<OrderId> = rows.into_iter().map(|row| OrderId(row.order_id)).collect();
        let give_up = |order| {
            if sold.contains(order) { Written::Paid } else { Written::refused(&Error::OrderLost) }
        };
        Ok(ids.iter().map(give_up).collect())
    }

    async fn sell(&self, event: &Arc<Event>, orders: &[Taken]) -> Result<Vec<Written>, Error> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let asked = Instant::now();
        let parties: Vec<Holder> = orders
            .iter()
            .map(|Taken { request, .. }| Holder { place: request.place, person: request.person, seats: &request.seats })
            .collect();
        let at_least_ms = u64::try_from(TIME_TO_PAY.as_millis()).unwrap_or(u64::MAX);
        let scripts = &self.stores.scripts;
        let holds = scripts.hold_in_turn(&mut self.lane.call()?.link, &event.keys, at_least_ms, &parties).await?;
        let write = orders.iter().zip(holds).map(|(Taken { request, .. }, hold)| async move {
            let party = match Party::new(request.seats.clone()) {
                Ok(party) => party,
                Err(error) => return self.written(request.order, false, Err(error)),
            };
            let token = event.sign(request.place);
            let purchase =
                Purchase { order: request.order, guest: Guest { token, person: request.person }, party: &party };
            let ends = match hold {
                Hold::Held { left_ms } => Some(asked + Duration::from_millis(left_ms)),
                _ => None,
            };
            let sold = self.tickets.sell_held(&self.lane, event, &purchase, hold, asked).await;
            let late = ends.is_some_and(|ends| ends <= Instant::now());
            let refused = sold.as_ref().err().cloned();
            let written = self.written(request.order, late, sold);
            if let (Written::Ended(Why::Failed(_)), Some(error)) = (&written, refused) {
                event.tally.refused(&error);
            }
            written
        });
        Ok(join_all(write).await)
    }

    fn written(&self, order: OrderId, late: bool, sold: Result<Vec<Ticket>, Error>) -> Written {
        match sold {
            Ok(tickets) => match tickets.first() {
                Some(ticket) if ticket.order_id != order => Written::Ended(Why::SameAs(ticket.order_id)),
                _ => Written::Paid,
            },
            // Too late for this hold; its place has time to get another.
            Err(error @ Error::NotActive) if late => Written::Again(error),
            Err(error) if error.is_fault() && !matches!(error, Error::SaleRefused(_)) => Written::Again(error),
            Err(error) => Written::refused(&error),
        }
    }

    /// Writes down what failed, then tells Redis what is decided.
    async fn finish(&self, event: &Event, orders: &[Taken], written: Vec<Written>) -> Result<(), Error> {
        let ended: Vec<Outcome> = orders
            .iter()
            .zip(&written)
            .filter_map(|(one, written)| match written {
                Written::Ended(why) => Some(Outcome { order: one.request.order, why: why.clone() }),
                _ => None,
            })
            .collect();
        let mut sold_all_the_same = HashSet::new();
        if !ended.is_empty() {
            let mut conn = self.stores.db.get().await?;
            let counted: HashSet<_> = outcomes::write(&mut conn, &ended).await?.into_iter().collect();
            // Decided before: by a writer that was thought dead, or by the buyer.
            let before: Vec<_> = ended.iter().map(|one| one.order).filter(|order| !counted.contains(order)).collect();
            if !before.is_empty() {
                let rows = by_orders(&mut conn, &before).await?;
                sold_all_the_same = rows.into_iter().map(|row| OrderId(row.order_id)).collect();
            }
        }
        let mut again = None;
        let (mut finished, mut done) = (Vec::with_capacity(orders.len()), Vec::with_capacity(orders.len()));
        for (one @ Taken { entry, request }, written) in orders.iter().zip(written) {
            let paid = match written {
                Written::Paid | Written::Ended(Why::SameAs(_)) => true,
                Written::Ended(Why::Failed(_)) => sold_all_the_same.contains(&request.order),
                Written::Again(error) => {
                    again = Some(error);
                    continue;
                }
            };
            if let Some((_, age)) = event.order(request.order) {
                let outcome = if paid { "paid" } else { "failed" };
                self.stores.metrics.order_seconds.with_label_values(&[outcome]).observe(age.as_secs_f64());
            }
            finished.push(Finished { order: request.order, place: request.place, paid, entry: entry.clone() });
            done.push(one);
        }
        if !finished.is_empty() {
            self.stores.scripts.finish(&mut self.lane.call()?.link, &event.keys, &finished).await?;
            self.broker.done(event.id, &done);
        }
        again.map_or(Ok(()), Err)
    }
}
