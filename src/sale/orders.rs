//! Orders: of every purchase, and those that are accepted first and written later. An accepted order stops the clock of its
//! place and waits in a broker. `writer.rs` writes it; here it is accepted, looked up and taken back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::base::error::{Error, Problem};
use crate::base::ids::{EventId, OrderId, PersonId, Place, SeatNumber};
use crate::base::order_number::OrderNumber;
use crate::base::paging::{Page, PageOf};
use crate::base::request::Request;
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::sale::broker::Broker;
use crate::sale::seats::{Guest, Party, check_person};
use crate::sale::tickets::{Buyer, Purchase, Ticket, Tickets};
use crate::store::Stores;
use crate::store::db::outcomes::{self, Outcome, Why};
use crate::store::db::pool::Conn;
use crate::store::db::tickets::{TicketRow, by_orders, orders_of};
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::redis::lane::Lane;
use crate::store::redis::reads::{self, PendingOrder};
use crate::store::redis::scripts::{Accept, Finished};

/// How long the clock of a place stands still at most while its order waits.
pub const LONGEST_FREEZE: Duration = Duration::from_secs(600);
/// Orders of one event that may wait. The last of them is written within a minute or two.
const MOST_PENDING: usize = 100_000;
/// A buyer at a page waits this long before the order is written later.
const A_MOMENT: Duration = Duration::from_secs(1);
/// An accepted order that nobody knows after this time is lost.
const LOST_AFTER: Duration = Duration::from_secs(30);
const SOONEST_POLL_MS: u64 = 500;
const LATEST_POLL_MS: u64 = 5000;
/// How often old outcomes are deleted, and how many in one statement.
const FORGET_EVERY: Duration = Duration::from_secs(60);
const FORGOTTEN_TOGETHER: usize = 5000;
/// Orders that are looked up together, and look-ups that wait for their turn.
const LOOKED_UP_TOGETHER: usize = 500;
const LOOK_UPS_WAITING: usize = 20_000;

pub struct Orders {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    tickets: Arc<Tickets>,
    broker: Arc<dyn Broker>,
    look_up: Gather<LookUp, State>,
    currency: String,
}

/// An order as its buyer reads it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = OrderStatus)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OrderView {
    /// Accepted, and not written yet.
    #[serde(rename_all = "camelCase")]
    Pending {
        order_id: OrderId,
        event_id: EventId,
        /// How many orders were accepted before it and are not decided; null while nobody can tell.
        #[schema(required)]
        ahead_count: Option<u64>,
        seat_numbers: Vec<SeatNumber>,
        poll_after_ms: u64,
    },
    /// Being written.
    #[serde(rename_all = "camelCase")]
    Processing { order_id: OrderId, event_id: EventId, seat_numbers: Vec<SeatNumber>, poll_after_ms: u64 },
    /// Bought.
    #[serde(rename_all = "camelCase")]
    Paid {
        order_id: OrderId,
        event_id: EventId,
        total: i64,
        currency: String,
        /// For the buyer.
        #[serde(skip_serializing_if = "Option::is_none")]
        tickets: Option<Vec<Ticket>>,
    },
    /// Nothing was bought. The code is what buying at once would have answered.
    #[serde(rename_all = "camelCase")]
    Failed {
        order_id: OrderId,
        event_id: EventId,
        #[serde(flatten)]
        problem: Problem,
    },
}

impl OrderView {
    pub fn id(&self) -> OrderId {
        match self {
            Self::Pending { order_id, .. }
            | Self::Processing { order_id, .. }
            | Self::Paid { order_id, .. }
            | Self::Failed { order_id, .. } => *order_id,
        }
    }

    pub fn event(&self) -> EventId {
        match self {
            Self::Pending { event_id, .. }
            | Self::Processing { event_id, .. }
            | Self::Paid { event_id, .. }
            | Self::Failed { event_id, .. } => *event_id,
        }
    }

    /// How it ended: a status, or why it failed.
    pub fn code(&self) -> &str {
        match self {
            Self::Pending { .. } => "PENDING",
            Self::Processing { .. } => "PROCESSING",
            Self::Paid { .. } => "PAID",
            Self::Failed { problem, .. } => &problem.code,
        }
    }

    /// How soon it is worth asking again.
    pub fn poll_after(&self) -> Duration {
        match self {
            Self::Pending { poll_after_ms, .. } | Self::Processing { poll_after_ms, .. } => {
                Duration::from_millis(*poll_after_ms)
            }
            Self::Paid { .. } | Self::Failed { .. } => Duration::ZERO,
        }
    }

    /// Whether nothing about it will change.
    pub fn is_decided(&self) -> bool {
        matches!(self, Self::Paid { .. } | Self::Failed { .. })
    }
}

/// How a request to buy later was answered.
pub enum Accepted {
    Later(OrderView),
    /// The place has bought these seats.
    Bought(Vec<Ticket>),
}

struct LookUp {
    event: Arc<Event>,
    order: OrderId,
    place: Place,
}

/// What the stores know about an order.
#[derive(Debug, Clone)]
enum State {
    Pending(PendingOrder),
    Sold(Vec<TicketRow>),
    Decided(Why),
    Unknown,
}

impl Orders {
    /// Starts the loop that looks orders up.
    pub fn start(
        stores: &Arc<Stores>,
        catalogue: Arc<Catalogue>,
        tickets: Arc<Tickets>,
        broker: Arc<dyn Broker>,
        currency: String,
    ) -> Self {
        let capacity = Capacity { waiting: LOOK_UPS_WAITING, together: LOOKED_UP_TOGETHER, at_once: 2 };
        let served = stores.clone();
        let (look_up, work) = Gather::new("looking up orders", capacity, move |batch| {
            let stores = served.clone();
            async move { look_up_together(&stores, batch).await }
        });
        stores.spawn(work);
        Self { stores: stores.clone(), catalogue, tickets, broker, look_up, currency }
    }

    /// Buys at once if that takes a moment. If it takes longer, the same order is accepted and written later.
    pub async fn buy_soon(
        &self,
        lane: &Lane,
        event: &Arc<Event>,
        guest: Guest,
        party: &Party,
    ) -> Result<Accepted, Error> {
        let order = event.new_order(guest.token.place());
        let purchase = Purchase { order, guest, party };
        match timeout(A_MOMENT, self.tickets.buy(lane, event, &purchase)).await {
            Ok(bought) => bought.map(Accepted::Bought),
            // Both write the same order, so it is written once.
            Err(_) => event.tally.heed(self.accept_party(lane, event, &purchase).await),
        }
    }

    /// Accepts an order of a visitor inside. It holds nothing: who gets a seat is decided when the order is written. The same
    /// request again gives the same order.
    pub async fn accept(
        &self,
        lane: &Lane,
        event: &Arc<Event>,
        guest: Guest,
        party: &Party,
    ) -> Result<Accepted, Error> {
        let purchase = Purchase { order: event.new_order(guest.token.place()), guest, party };
        event.tally.heed(self.accept_party(lane, event, &purchase).await)
    }

    async fn accept_party(&self, lane: &Lane, event: &Arc<Event>, purchase: &Purchase<'_>) -> Result<Accepted, Error> {
        let Purchase { order, guest: guest @ Guest { token, person }, party } = *purchase;
        check_person(event, person, party)?;
        event.asked();
        event.check_database()?;
        let mut seats = party.seats().to_vec();
        seats.sort_unstable();
        let request = Request { order, place: token.place(), seats, person };
        let scripts = &self.stores.scripts;
        let to_stream = self.broker.in_redis();
        let accepted = scripts
            .accept(&mut lane.call()?.link, &event.keys, &request, LONGEST_FREEZE, MOST_PENDING, to_stream)
            .await;
        event.own_writes.note(token.place());
        let (order_id, ahead_count) = match accepted? {
            Accept::Accepted { ahead } => (request.order, Some(ahead)),
            Accept::Known(order) => (order, None),
            Accept::Other(_) => return Err(Error::OrderPending),
            Accept::Another => return Err(Error::PlaceOfAnother),
            Accept::NoPass => {
                let before = self.tickets.bought_before(event, guest, party).await?;
                return before.map(Accepted::Bought).ok_or(Error::NotActive);
            }
            Accept::Full => return Err(Error::Overloaded("orders")),
        };
        let request = Request { order: order_id, ..request };
        self.keep(event, &request, ahead_count.is_some()).await?;
        event.order_waits.notify_one();
        Ok(Accepted::Later(pending(order_id, event.id, ahead_count, request.seats)))
    }

    /// Gives an accepted order to the broker. If that fails, nobody knows whether the broker has it, so it must not be sold.
    async fn keep(&self, event: &Arc<Event>, request: &Request, new: bool) -> Result<(), Error> {
        let Err(error) = self.broker.keep(event, request).await else { return Ok(()) };
        if !new {
            return Err(error);
        }
        match self.fail(event, request.order, request.place, &Error::OrderLost).await? {
            State::Decided(Why::Failed(_)) => Err(error),
            _ => Ok(()),
        }
    }

    /// An order. Whoever knows the number of an accepted one may ask how it stands; tickets are for its buyer.
    pub async fn find(&self, buyer: &Buyer, order: OrderId) -> Result<OrderView, Error> {
        match self.numbered(order).await? {
            Some((event, number, age)) => {
                if buyer.event.is_some_and(|named| named != event.id) {
                    return Err(Error::OrderNotFound);
                }
                let state = match self.state(&event, order, number.place).await? {
                    State::Unknown if age > outcomes::KEPT => return Err(Error::OrderNotFound),
                    State::Unknown if age > LOST_AFTER => {
                        self.fail(&event, order, number.place, &Error::OrderLost).await?
                    }
                    state => state,
                };
                self.view(buyer, &event, order, state).await
            }
            None => self.find_written(buyer, order).await,
        }
    }

    /// Takes an order back that is not decided yet, for its buyer.
    pub async fn cancel(&self, buyer: &Buyer, order: OrderId) -> Result<OrderView, Error> {
        let Some((event, number, age)) = self.numbered(order).await? else {
            // Written at once, so there is nothing to take back but its tickets.
            self.find_written(buyer, order).await?;
            return Err(Error::OrderNotPending);
        };
        let state = self.state(&event, order, number.place).await?;
        if age > outcomes::KEPT && matches!(state, State::Unknown) {
            return Err(Error::OrderNotFound);
        }
        let by_place = || {
            let token = |claim: &_| event.verify(*claim);
            buyer.claims.iter().filter_map(token).any(|token| token.place() == number.place)
        };
        let may_ask = match &state {
            State::Pending(PendingOrder { person: Some(person), .. }) => buyer.person == Some(*person),
            State::Pending(_) | State::Unknown => by_place(),
            // Nothing changes any more, and whoever has the number may know how it ended.
            State::Sold(_) | State::Decided(_) => true,
        };
        if buyer.event.is_some_and(|named| named != event.id) || !may_ask {
            return Err(Error::OrderNotFound);
        }
        let cancelled = Error::OrderCancelled;
        let state = match state {
            State::Pending(_) | State::Unknown => self.fail(&event, order, number.place, &cancelled).await?,
            state => state,
        };
        match &state {
            State::Decided(Why::Failed(problem)) if problem["code"] == cancelled.code() => {
                self.view(buyer, &event, order, state).await
            }
            _ => Err(Error::OrderNotPending),
        }
    }

    /// The orders of a person that were bought, newest first.
    pub async fn of_person(&self, person: PersonId, page: &Page) -> Result<PageOf<OrderView>, Error> {
        let (cursor, most) = (page.before_order()?, page.most());
        let (ids, rows) = self
            .stores
            .query(move |conn| {
                async move {
                    let ids = orders_of(conn, person, cursor, most).await?;
                    let rows = by_orders(conn, &ids).await?;
                    Ok((ids, rows))
                }
                .boxed()
            })
            .await?;
        let mut by_order: HashMap<OrderId, Vec<TicketRow>> = HashMap::new();
        for row in rows {
            by_order.entry(OrderId(row.order_id)).or_default().push(row);
        }
        let mut orders = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(rows) = by_order.remove(&id) {
                orders.push((id, self.paid(rows, true).await?));
            }
        }
        let page = page.of(orders, |(id, _)| id.to_string());
        let items = page.items.into_iter().map(|(_, order)| order).collect();
        Ok(PageOf { items, next_cursor: page.next_cursor })
    }

    /// Forgets how orders ended that were decided long ago.
    pub async fn forget_step(&self) -> Result<Duration, Error> {
        let forgotten = outcomes::forget_old(&mut self.stores.db.get().await?, FORGOTTEN_TOGETHER).await?;
        Ok(if forgotten == FORGOTTEN_TOGETHER { Duration::ZERO } else { FORGET_EVERY })
    }

    /// What the number of an accepted order says, with its event. `None`: it is not such a number.
    async fn numbered(&self, order: OrderId) -> Result<Option<(Arc<Event>, OrderNumber, Duration)>, Error> {
        let Some(number) = OrderNumber::read(order) else { return Ok(None) };
        let event = self.catalogue.get(number.event).await.map_err(|error| match error {
            Error::EventNotFound => Error::OrderNotFound,
            error => error,
        })?;
        let (number, age) = event.order(order).ok_or(Error::OrderNotFound)?;
        Ok(Some((event, number, age)))
    }

    async fn find_written(&self, buyer: &Buyer, order: OrderId) -> Result<OrderView, Error> {
        if buyer.claims.is_empty() && buyer.person.is_none() {
            return Err(Error::OrderNotFound);
        }
        let rows = self.rows(order).await?;
        let mine = rows.first().is_some_and(|row| self.tickets.owns(buyer, row));
        if mine { self.paid(rows, true).await } else { Err(Error::OrderNotFound) }
    }

    async fn rows(&self, order: OrderId) -> Result<Vec<TicketRow>, Error> {
        self.stores.query(move |conn| async move { by_orders(conn, &[order]).await }.boxed()).await
    }

    async fn state(&self, event: &Arc<Event>, order: OrderId, place: Place) -> Result<State, Error> {
        event.asked();
        self.look_up.ask(LookUp { event: event.clone(), order, place }).await
    }

    /// Writes down that nothing is bought, unless the order is decided already. Returns what became of it.
    async fn fail(&self, event: &Arc<Event>, order: OrderId, place: Place, why: &Error) -> Result<State, Error> {
        let problem = serde_json::to_value(why.problem()).map_err(Error::internal)?;
        let outcome = Outcome { order, why: Why::Failed(problem) };
        let state = self
            .stores
            .query(move |conn| {
                async move {
                    outcomes::write(conn, std::slice::from_ref(&outcome)).await?;
                    Ok(decided(conn, &[order]).await?.pop().unwrap_or(State::Unknown))
                }
                .boxed()
            })
            .await?;
        let paid = match &state {
            State::Unknown | State::Pending(_) => return Ok(state),
            State::Decided(Why::Failed(_)) => false,
            State::Sold(_) | State::Decided(Why::SameAs(_)) => true,
        };
        let (stores, event) = (self.stores.clone(), event.clone());
        let finished = self.stores.run(async move {
            let finished = Finished { order, place, paid, entry: None };
            stores.scripts.finish(&mut stores.redis.get().await?, &event.keys, &[finished]).await
        });
        if let Err(error) = finished.await {
            // It cannot be sold any more. Whoever writes orders finds that out.
            tracing::debug!(%error, "an order that was decided waits for its writer");
        }
        Ok(state)
    }

    async fn view(&self, buyer: &Buyer, event: &Event, order_id: OrderId, state: State) -> Result<OrderView, Error> {
        let event_id = event.id;
        match state {
            State::Pending(PendingOrder { seats: seat_numbers, working: true, .. }) => {
                let poll_after_ms = SOONEST_POLL_MS;
                Ok(OrderView::Processing { order_id, event_id, seat_numbers, poll_after_ms })
            }
            State::Pending(PendingOrder { seats: seat_numbers, ahead, .. }) => {
                Ok(pending(order_id, event_id, Some(ahead), seat_numbers))
            }
            State::Unknown => Ok(pending(order_id, event_id, None, Vec::new())),
            State::Sold(rows) => {
                let mine = rows.first().is_some_and(|row| self.tickets.owns(buyer, row));
                self.paid(rows, mine).await
            }
            State::Decided(Why::SameAs(order)) => {
                let rows = self.rows(order).await?;
                let mine = rows.first().is_some_and(|row| self.tickets.owns(buyer, row));
                self.paid(rows, mine).await
            }
            State::Decided(Why::Failed(problem)) => {
                let problem = serde_json::from_value(problem).map_err(Error::internal)?;
                Ok(OrderView::Failed { order_id, event_id, problem })
            }
        }
    }

    async fn paid(&self, rows: Vec<TicketRow>, with_tickets: bool) -> Result<OrderView, Error> {
        let first = rows.first().ok_or(Error::OrderNotFound)?;
        let (order_id, event) = (OrderId(first.order_id), self.tickets.event_of(first).await?);
        let total = rows.iter().map(|row| row.price).sum();
        let tickets = with_tickets.then(|| rows.into_iter().map(|row| self.tickets.ticket(&event, row)).collect());
        Ok(OrderView::Paid { order_id, event_id: event.id, total, currency: self.currency.clone(), tickets })
    }
}

/// Whoever has many before them need not ask so often: thousands are written in a second.
fn pending(order_id: OrderId, event_id: EventId, ahead_count: Option<u64>, seat_numbers: Vec<SeatNumber>) -> OrderView {
    let poll_after_ms = (SOONEST_POLL_MS + ahead_count.unwrap_or(0)).min(LATEST_POLL_MS);
    OrderView::Pending { order_id, event_id, ahead_count, seat_numbers, poll_after_ms }
}

/// Asks Redis about the orders of each event, and the database about those that do not wait there.
async fn look_up_together(stores: &Stores, batch: Batch<LookUp, State>) {
    let mut by_event: HashMap<EventId, Batch<LookUp, State>> = HashMap::new();
    for one in batch {
        by_event.entry(one.0.event.id).or_default().push(one);
    }
    // An event whose part of Redis is away holds up no other.
    join_all(by_event.into_values().map(|batch| async move {
        match states(stores, &batch).await {
            Ok(states) => batch.into_iter().zip(states).for_each(|((_, answer), state)| drop(answer.send(state))),
            Err(error) => batch.into_iter().for_each(|(_, answer)| drop(answer.send(Err(error.clone())))),
        }
    }))
    .await;
}

/// Of orders of one event. If Redis does not answer, the database still knows those that are decided.
async fn states(stores: &Stores, batch: &Batch<LookUp, State>) -> Result<Vec<Result<State, Error>>, Error> {
    let Some((first, _)) = batch.first() else { return Ok(Vec::new()) };
    let asked: Vec<(OrderId, Place)> = batch.iter().map(|(one, _)| (one.order, one.place)).collect();
    let pending = async { reads::pending(&mut stores.redis.get().await?, &first.event.keys, &asked).await };
    let (waiting, away) = match pending.await {
        Ok(waiting) => (waiting, None),
        Err(error) => (vec![None; asked.len()], Some(error)),
    };
    let others: Vec<OrderId> =
        asked.iter().zip(&waiting).filter(|(_, found)| found.is_none()).map(|((order, _), _)| *order).collect();
    let mut others = match others.as_slice() {
        [] => Vec::new(),
        others => decided(&mut stores.db.get().await?, others).await?,
    }
    .into_iter();
    let other = |state: Option<State>| match (state.unwrap_or(State::Unknown), &away) {
        (State::Unknown, Some(error)) => Err(error.clone()),
        (state, _) => Ok(state),
    };
    Ok(waiting
        .into_iter()
        .map(|found| found.map_or_else(|| other(others.next()), |pending| Ok(State::Pending(pending))))
        .collect())
}

/// What the database knows about these orders.
async fn decided(conn: &mut Conn, orders: &[OrderId]) -> Result<Vec<State>, Error> {
    let mut sold: HashMap<OrderId, Vec<TicketRow>> = HashMap::new();
    for row in by_orders(conn, orders).await? {
        sold.entry(OrderId(row.order_id)).or_default().push(row);
    }
    let mut ended: HashMap<OrderId, Why> =
        outcomes::find(conn, orders).await?.into_iter().map(|outcome| (outcome.order, outcome.why)).collect();
    let state = |order: &OrderId| {
        let written = sold.remove(order).map(State::Sold);
        written.or_else(|| ended.remove(order).map(State::Decided)).unwrap_or(State::Unknown)
    };
    Ok(orders.iter().map(state).collect())
}
