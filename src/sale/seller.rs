//! Purchases that arrive together share one statement and one commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use crate::base::error::Error;
use crate::event::Event;
use crate::event::tally::Count;
use crate::sale::settle::Settler;
use crate::store::Stores;
use crate::store::db::changes::Unsettled;
use crate::store::db::pool::{self, Conn, Pool};
use crate::store::db::sell::{self, Failure, NewOrder, Sold};
use crate::store::gather::{Batch, Capacity, Gather};

/// Most purchases in one statement.
const TOGETHER: usize = 200;
/// A second statement works while the first one waits for its commit to reach the disk.
const AT_ONCE: usize = 2;
/// How often a purchase is tried alone whose buyer gets tickets elsewhere at the same moment.
const TRIES: usize = 5;

/// Something to sell, and until when that may be tried.
#[derive(Clone)]
pub struct Sale {
    pub event: Arc<Event>,
    pub order: NewOrder,
    pub deadline: Instant,
}

pub struct Seller(Gather<Sale, Sold>);

impl Seller {
    /// Starts the loop that sells. `most_waiting`: purchases beyond that are refused at once.
    pub fn start(stores: &Arc<Stores>, settler: Arc<Settler>, most_waiting: usize) -> Self {
        let gathered = stores.metrics.gathered.with_label_values(&["sell"]);
        let capacity = Capacity { waiting: most_waiting, together: TOGETHER, at_once: AT_ONCE };
        let served = stores.clone();
        let (gather, work) = Gather::new("buying", capacity, move |mut batch: Batch<Sale, Sold>| {
            gathered.observe(batch.len() as f64);
            let (stores, settler) = (served.clone(), settler.clone());
            async move {
                while !batch.is_empty() {
                    let (together, later) = without_conflicts(batch);
                    sell_together(&stores, &settler, together).await;
                    batch = later;
                }
            }
        });
        stores.spawn(work);
        Self(gather)
    }

    pub async fn sell(&self, sale: Sale) -> Result<Sold, Error> {
        self.0.ask(sale).await
    }
}

/// Splits off each sale that shares a seat, a place or a person with an earlier one in the batch: one statement could not
/// tell them apart.
fn without_conflicts(batch: Batch<Sale, Sold>) -> (Batch<Sale, Sold>, Batch<Sale, Sold>) {
    let (mut seats, mut places, mut people) = (HashSet::new(), HashSet::new(), HashSet::new());
    batch.into_iter().partition(|(sale, _)| {
        let order = &sale.order;
        let wanted = || order.seats.iter().map(|(_, seat)| (order.event, *seat));
        let place = (order.event, order.place);
        let clash = wanted().any(|seat| seats.contains(&seat))
            || places.contains(&place)
            || order.person.is_some_and(|person| people.contains(&person));
        if !clash {
            seats.extend(wanted());
            places.insert(place);
            people.extend(order.person);
        }
        !clash
    })
}

async fn sell_together(stores: &Stores, settler: &Settler, batch: Batch<Sale, Sold>) {
    let now = Instant::now();
    // No insert is sent after the deadline of its hold.
    let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(sale, _)| sale.deadline > now);
    late.into_iter().for_each(|(_, answer)| drop(answer.send(Err(Error::NotActive))));
    let asked: Vec<NewOrder> = batch.iter().map(|(sale, _)| sale.order.clone()).collect();
    for ((sale, answer), outcome) in batch.into_iter().zip(insert(&stores.db, &asked).await) {
        if let Ok(Sold::Sold(rows)) = &outcome {
            sale.event.tally.add(Count::TicketsSold, "", rows.len() as u64);
            settler.submit(rows.iter().filter_map(Unsettled::of).collect());
        }
        let _ = answer.send(outcome);
    }
}

/// Sells what can be sold, and says for each order how it went. If another server sold at the same moment, or one of the
/// orders is refused, each is tried alone.
async fn insert(connections: &Pool, asked: &[NewOrder]) -> Vec<Result<Sold, Error>> {
    let for_all = |error: Error| asked.iter().map(|_| Err(error.clone())).collect::<Vec<_>>();
    if asked.is_empty() {
        return Vec::new();
    }
    let mut conn = match connections.get().await {
        Ok(conn) => conn,
        Err(error) => return for_all(error),
    };
    let outcomes = match sell::sell(&mut conn, asked).await {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(Failure::Conflict | Failure::LimitPassed | Failure::Refused(_)) => one_by_one(&mut conn, asked).await,
        Err(failure) => for_all(error_of(failure)),
    };
    // Its connection is dead, though it may not show yet: a repeat must not get it.
    if outcomes.iter().any(|outcome| matches!(outcome, Err(Error::OutcomeUnknown(_)))) {
        pool::discard(conn);
    }
    outcomes
}

async fn one_by_one(conn: &mut Conn, asked: &[NewOrder]) -> Vec<Result<Sold, Error>> {
    let mut sold = Vec::with_capacity(asked.len());
    for one in asked {
        match alone(conn, one).await {
            Ok(outcome) => sold.extend(outcome.into_iter().map(Ok)),
            Err(Failure::Conflict) => sold.push(Ok(Sold::Refused)),
            Err(failure) => sold.push(Err(error_of(failure))),
        }
    }
    sold
}

/// Sells to one buyer. If they got tickets elsewhere at that moment, the next try knows of those.
async fn alone(conn: &mut Conn, one: &NewOrder) -> Result<Vec<Sold>, Failure> {
    for _ in 1..TRIES {
        match sell::sell(conn, std::slice::from_ref(one)).await {
            Err(Failure::LimitPassed) => {}
            outcome => return outcome,
        }
    }
    sell::sell(conn, std::slice::from_ref(one)).await
}

fn error_of(failure: Failure) -> Error {
    match failure {
        Failure::ReadOnly(cause) => Error::Database(cause),
        Failure::Refused(cause) => Error::SaleRefused(cause),
        Failure::Unknown(cause) => Error::OutcomeUnknown(cause),
        Failure::LimitPassed => Error::Overloaded("purchases of one person"),
        Failure::Conflict => Error::OutcomeUnknown("a conflict".to_owned()),
    }
}
