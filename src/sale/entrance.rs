//! Where the visitors of one web worker enter: those that arrive together take their places by one script call.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::{EventId, PersonId, Place};
use crate::event::Event;
use crate::sale::restore::Restorer;
use crate::store::Stores;
use crate::store::gather::{Batch, Capacity, Gather};
use crate::store::redis::links::Link;
use crate::store::redis::scripts::{Enter, EnterReply, Scripts};

/// Most visitors in one call.
const TOGETHER: usize = 511;

/// The place of a visitor who entered.
#[derive(Debug, Clone, Copy)]
pub enum Entered {
    New {
        place: Place,
        rank: u64,
    },
    /// This person's place, taken earlier.
    Known(Place),
}

/// A visitor at the entrance: a person where each has one place, otherwise anyone.
type Entering = Gather<Option<PersonId>, Entered>;

/// What entering takes, for any event.
#[derive(Clone)]
pub struct Entry {
    pub stores: Arc<Stores>,
    pub restorer: Arc<Restorer>,
    /// Most visitors that wait in one web worker to enter an event. Further visitors are refused at once; those that wait
    /// are served within a second or two.
    pub most_waiting: usize,
}

/// One web worker's entrance to every event.
pub struct Entrance {
    entry: Entry,
    link: Link,
    events: RefCell<HashMap<EventId, Entering>>,
}

impl Entrance {
    pub fn new(entry: Entry, link: Link) -> Self {
        Self { entry, link, events: RefCell::default() }
    }

    pub async fn enter(&self, event: &Arc<Event>, person: Option<PersonId>) -> Result<Entered, Error> {
        let entering = self.entering(event);
        entering.ask(person).await
    }

    fn entering(&self, event: &Arc<Event>) -> Entering {
        let mut events = self.events.borrow_mut();
        let gather = events.entry(event.id).or_insert_with(|| {
            let (gather, work) = gather(self.entry.clone(), self.link.clone(), event.clone());
            tokio::task::spawn_local(work);
            gather
        });
        gather.clone()
    }
}

/// The loop that takes in the visitors of one worker, as many at once as there are.
fn gather(entry: Entry, link: Link, event: Arc<Event>) -> (Entering, impl Future<Output = ()>) {
    let gathered = entry.stores.metrics.gathered.with_label_values(&["enter"]);
    // One call at a time: two would only halve the batches.
    let capacity = Capacity { waiting: entry.most_waiting, together: TOGETHER, at_once: 1 };
    Gather::new("entering", capacity, move |batch: Batch<Option<PersonId>, Entered>| {
        gathered.observe(batch.len() as f64);
        let (entry, mut link, event) = (entry.clone(), link.clone(), event.clone());
        async move {
            // Whether an event asks for persons can change while visitors arrive.
            let (people, anyone): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(person, _)| person.is_some());
            if !anyone.is_empty() {
                let (outcome, _) = enter_together(&entry, &event, async |scripts| {
                    scripts.enter(&mut link, &event.keys, anyone.len()).await
                })
                .await;
                answer_anyone(anyone, &outcome);
            }
            if !people.is_empty() {
                let ids: Vec<PersonId> = people.iter().filter_map(|(person, _)| *person).collect();
                let (outcome, places) = enter_together(&entry, &event, async |scripts| {
                    scripts.enter_people(&mut link, &event.keys, &ids).await
                })
                .await;
                answer_people(people, &outcome, &places);
            }
        }
    })
}

/// Visitors who got new places, in order.
struct Newcomers {
    first: Place,
    count: u32,
    first_rank: u64,
}

impl Newcomers {
    fn nth(&self, at: u32) -> Option<Entered> {
        let (place, rank) = (Place(self.first.0.checked_add(at)?), self.first_rank + u64::from(at));
        (at < self.count).then_some(Entered::New { place, rank })
    }
}

/// If a visitor went away before the answer, the place is swept like that of anyone who goes away.
fn answer_anyone(batch: Batch<Option<PersonId>, Entered>, outcome: &Result<Newcomers, Error>) {
    for (at, (_, answer)) in (0..).zip(batch) {
        let entered = match outcome {
            Ok(newcomers) => newcomers.nth(at).ok_or(Error::QueueFull),
            Err(error) => Err(error.clone()),
        };
        let _ = answer.send(entered);
    }
}

/// A person who has a place hears of it, also where newcomers were refused.
fn answer_people(
    batch: Batch<Option<PersonId>, Entered>,
    outcome: &Result<Newcomers, Error>,
    places: &[Option<Place>],
) {
    let places = places.iter().copied().chain(std::iter::repeat(None));
    for ((_, answer), place) in batch.into_iter().zip(places) {
        let entered = match (outcome, place) {
            (Ok(newcomers), Some(place)) => {
                let at = place.0.checked_sub(newcomers.first.0);
                Ok(at.and_then(|at| newcomers.nth(at)).unwrap_or(Entered::Known(place)))
            }
            (Err(_), Some(place)) => Ok(Entered::Known(place)),
            (Ok(_), None) => Err(Error::QueueFull),
            (Err(error), None) => Err(error.clone()),
        };
        let _ = answer.send(entered);
    }
}

/// The outcome for newcomers, and the place each person has now.
type Together = (Result<Newcomers, Error>, Vec<Option<Place>>);

/// Calls the script. A refusal for want of places is repaired and tried again. A call that timed out is not, because it may
/// still be carried out.
async fn enter_together(
    entry: &Entry,
    event: &Arc<Event>,
    mut call: impl AsyncFnMut(&Scripts) -> Result<EnterReply, Error>,
) -> Together {
    let failed = |error| (Err(error), Vec::new());
    if let Err(error) = entry.restorer.blocks.check(event.id).await {
        return failed(error);
    }
    let mut used_up = false;
    for _ in 0..3 {
        used_up = false;
        match call(&entry.stores.scripts).await {
            Ok(EnterReply { outcome: Enter::NeedBlock, .. }) => used_up = true,
            Ok(EnterReply { outcome: Enter::Stale, .. }) | Err(Error::Unready) => {}
            Ok(EnterReply { outcome, places, block }) => {
                let may_be_told = match block {
                    Some(block) => entry.restorer.blocks.may_use(event.id, block).await,
                    None => Ok(true),
                };
                match may_be_told {
                    Ok(true) => return (newcomers(outcome), places),
                    // Nobody hears of these places, and the repair replaces the block.
                    Ok(false) => {}
                    Err(error) => return failed(error),
                }
            }
            Err(error) => return failed(error),
        }
        let (restorer, event) = (entry.restorer.clone(), event.clone());
        if let Err(error) = entry.stores.run(async move { restorer.ready(&event).await }).await {
            return failed(error);
        }
    }
    // A repaired event that has no place left has given out all that a token can name.
    failed(if used_up { Error::QueueFull } else { Error::Unready })
}

fn newcomers(outcome: Enter) -> Result<Newcomers, Error> {
    match outcome {
        Enter::Entered { first, count, first_rank } => Ok(Newcomers { first, count, first_rank }),
        Enter::Full => Err(Error::QueueFull),
        Enter::Closed => Err(Error::EventClosed),
        Enter::SoldOut => Err(Error::SoldOut),
        Enter::Stale | Enter::NeedBlock => Err(Error::Unready),
    }
}
