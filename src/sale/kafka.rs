//! Orders that wait in Kafka, in one topic for all events. Its key is the event and the lowest seat, so requests for one seat
//! keep their order. The servers share the partitions; what a server has received and not done comes again to the next one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::base::error::Error;
use crate::base::ids::{EventId, OrderId, Place};
use crate::base::lock;
use crate::base::request::{Request, buyer_word};
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::sale::broker::Broker;
use crate::store::Stores;
use crate::store::kafka::{Kafka, Received, Receiver, Shares};
use crate::store::redis::scripts::{Take, Taken};

/// Orders that a server keeps in memory, some 50 MB at most. The rest waits in Kafka. Partitions are shared by all events, so
/// this is more than may wait for one event: if that one cannot be written, the others still come through.
const MOST_IN_MEMORY: usize = 250_000;
/// An order that may have missed Kafka is sent once more, by each server at most this often.
const AGAIN_EVERY: Duration = Duration::from_secs(60);
const AFTER_FAILURE: Duration = Duration::from_millis(500);

pub struct KafkaBroker {
    kafka: Arc<Kafka>,
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    inlet: Arc<OnceLock<Arc<Inlet>>>,
    sent_again: Mutex<HashMap<OrderId, Instant>>,
    receiving: Mutex<Option<JoinHandle<()>>>,
}

/// Where orders come in.
struct Inlet {
    inbox: Arc<Inbox>,
    receiver: Receiver<Inbox>,
    catalogue: Arc<Catalogue>,
}

/// An order as a message.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    event: u32,
    order: OrderId,
    place: u32,
    /// As words of [`Request`].
    seats: String,
    buyer: String,
}

impl Message {
    fn new(event: EventId, request: &Request) -> Self {
        let (seats, buyer) = (request.seats_word(), buyer_word(request.person));
        Self { event: event.get(), order: request.order, place: request.place.0, seats, buyer }
    }

    fn read(payload: &[u8]) -> Option<(EventId, Request)> {
        let Self { event, order, place, seats, buyer } = serde_json::from_slice(payload).ok()?;
        let (seats, person) = (Request::parse_seats(&seats)?, Request::parse_buyer(&buyer)?);
        Some((EventId::new(event)?, Request { order, place: Place(place), seats, person }))
    }
}

impl KafkaBroker {
    pub fn new(kafka: Arc<Kafka>, stores: Arc<Stores>, catalogue: Arc<Catalogue>) -> Self {
        let (inlet, sent_again, receiving) = Default::default();
        Self { kafka, stores, catalogue, inlet, sent_again, receiving }
    }
}

impl Inlet {
    /// Waits for Kafka if it is away.
    async fn open(kafka: &Kafka, catalogue: Arc<Catalogue>) -> Arc<Self> {
        let mut failed = false;
        loop {
            let inbox = Arc::new(Inbox::default());
            let topics = kafka.make_topics().await;
            match topics.and_then(|()| kafka.receive(&kafka.address.requests(), inbox.clone())) {
                Ok(receiver) => return Arc::new(Self { inbox, receiver, catalogue }),
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "Kafka is not there yet, trying again");
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn receive(self: Arc<Self>) {
        let mut failed = false;
        loop {
            while self.inbox.is_full() {
                self.inbox.room.notified().await;
            }
            match self.receiver.next().await {
                Ok(received) => {
                    if std::mem::take(&mut failed) {
                        tracing::info!("orders come from Kafka again");
                    }
                    self.keep_in_mind(received).await;
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, "no orders come from Kafka, trying again");
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    async fn keep_in_mind(&self, received: Received) {
        let Some((event, request)) = Message::read(&received.payload) else {
            let Received { partition, offset, .. } = received;
            tracing::error!(partition, offset, "a message in Kafka is no order, left out");
            self.done_at(self.inbox.skip(&received));
            return;
        };
        match self.catalogue.get(event).await {
            Err(Error::EventNotFound) => {
                tracing::error!(%event, order = %request.order, "an order in Kafka is for an event that is not here, left out");
                self.done_at(self.inbox.skip(&received));
            }
            found => {
                self.inbox.put(event, request, &received);
                if let Ok(event) = found {
                    event.order_waits.notify_one();
                }
            }
        }
    }

    fn done_at(&self, offsets: Vec<(i32, i64)>) {
        if let Err(error) = self.receiver.done(offsets) {
            // The next offsets say it too, or these orders come once more.
            tracing::debug!(%error, "Kafka was not told which orders are done");
        }
    }
}

impl Broker for KafkaBroker {
    fn in_redis(&self) -> bool {
        false
    }

    fn start(&self) -> BoxFuture<'_, Result<(), Error>> {
        // Without Kafka, everything else works: a start does not wait for it.
        let (kafka, catalogue, place) = (self.kafka.clone(), self.catalogue.clone(), self.inlet.clone());
        let receive = async move {
            let inlet = Inlet::open(&kafka, catalogue).await;
            if place.set(inlet.clone()).is_ok() {
                inlet.receive().await;
            }
        };
        *lock(&self.receiving) = Some(self.stores.spawn(receive));
        async { Ok(()) }.boxed()
    }

    fn keep<'a>(&'a self, event: &'a Event, request: &'a Request) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            let lowest = request.seats.first().map(ToString::to_string).unwrap_or_default();
            let message = serde_json::to_vec(&Message::new(event.id, request)).map_err(Error::internal)?;
            self.kafka.send(&self.kafka.address.requests(), &format!("{}:{lowest}", event.id), &message).await
        }
        .boxed()
    }

    fn keep_again<'a>(&'a self, event: &'a Event, request: &'a Request) -> BoxFuture<'a, Result<(), Error>> {
        async move {
            {
                let mut sent = lock(&self.sent_again);
                sent.retain(|_, at| at.elapsed() < AGAIN_EVERY);
                if sent.len() >= MOST_IN_MEMORY || sent.contains_key(&request.order) {
                    return Ok(());
                }
                sent.insert(request.order, Instant::now());
            }
            self.keep(event, request).await
        }
        .boxed()
    }

    fn take<'a>(&'a self, event: &'a Event, most: usize) -> BoxFuture<'a, Result<Take, Error>> {
        async move {
            let requests = self.inlet.get().map(|inlet| inlet.inbox.oldest(event.id, most)).unwrap_or_default();
            if requests.is_empty() {
                return Ok(Take::None);
            }
            Ok(Take::Taken(requests.into_iter().map(|request| Taken { entry: None, request }).collect()))
        }
        .boxed()
    }

    fn done(&self, event: EventId, orders: &[&Taken]) {
        let Some(inlet) = self.inlet.get() else { return };
        let orders = orders.iter().map(|one| one.request.order).collect();
        inlet.done_at(inlet.inbox.done(event, &orders));
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(receiving) = lock(&self.receiving).take() {
                receiving.abort();
            }
            if let Some(inlet) = self.inlet.get() {
                inlet.receiver.leave();
            }
        }
        .boxed()
    }
}

/// What this server has received and not done.
#[derive(Default)]
struct Inbox {
    orders: Mutex<Waiting>,
    /// There may be room for more.
    room: Notify,
}

#[derive(Default)]
struct Waiting {
    /// As they came.
    by_event: HashMap<EventId, BTreeMap<u64, Letter>>,
    partitions: HashMap<i32, Partition>,
    came: u64,
}

struct Letter {
    partition: i32,
    offset: i64,
    request: Request,
}

/// Of a partition that this server takes care of.
#[derive(Default)]
struct Partition {
    /// Received and not done.
    open: BTreeSet<i64>,
    /// The offset behind the last that was received.
    next: i64,
}

impl Partition {
    /// All before this offset are done.
    fn done_before(&self) -> i64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

impl Inbox {
    fn is_full(&self) -> bool {
        lock(&self.orders).partitions.values().map(|partition| partition.open.len()).sum::<usize>() >= MOST_IN_MEMORY
    }

    fn put(&self, event: EventId, request: Request, received: &Received) {
        let mut waiting = lock(&self.orders);
        let (partition, offset) = (received.partition, received.offset);
        // Another server may have got the partition since.
        let Some(known) = waiting.partitions.get_mut(&partition) else { return };
        known.open.insert(offset);
        known.next = offset + 1;
        waiting.came += 1;
        let came = waiting.came;
        waiting.by_event.entry(event).or_default().insert(came, Letter { partition, offset, request });
    }

    /// Leaves out a message. Returns what is done.
    fn skip(&self, received: &Received) -> Vec<(i32, i64)> {
        let mut waiting = lock(&self.orders);
        let Some(known) = waiting.partitions.get_mut(&received.partition) else { return Vec::new() };
        known.next = received.offset + 1;
        vec![(received.partition, known.done_before())]
    }

    /// The oldest orders of an event, each once.
    fn oldest(&self, event: EventId, most: usize) -> Vec<Request> {
        let waiting = lock(&self.orders);
        let Some(letters) = waiting.by_event.get(&event) else { return Vec::new() };
        let mut seen = HashSet::new();
        let new = |letter: &&Letter| seen.insert(letter.request.order);
        letters.values().filter(new).take(most).map(|letter| letter.request.clone()).collect()
    }

    /// These orders are done. Returns the offsets, by partition, before which all is done.
    fn done(&self, event: EventId, orders: &HashSet<OrderId>) -> Vec<(i32, i64)> {
        let mut waiting = lock(&self.orders);
        let Waiting { by_event, partitions, .. } = &mut *waiting;
        let Some(letters) = by_event.get_mut(&event) else { return Vec::new() };
        let mut touched = BTreeSet::new();
        letters.retain(|_, letter| {
            let done = orders.contains(&letter.request.order);
            if done && let Some(known) = partitions.get_mut(&letter.partition) {
                known.open.remove(&letter.offset);
                touched.insert(letter.partition);
            }
            !done
        });
        if letters.is_empty() {
            by_event.remove(&event);
        }
        self.room.notify_one();
        touched.iter().filter_map(|at| Some((*at, partitions.get(at)?.done_before()))).collect()
    }
}

impl Shares for Inbox {
    fn gained(&self, partitions: &[i32]) {
        self.lost(partitions);
        let mut waiting = lock(&self.orders);
        waiting.partitions.extend(partitions.iter().map(|partition| (*partition, Partition::default())));
    }

    fn lost(&self, partitions: &[i32]) {
        let mut waiting = lock(&self.orders);
        waiting.partitions.retain(|partition, _| !partitions.contains(partition));
        for letters in waiting.by_event.values_mut() {
            letters.retain(|_, letter| !partitions.contains(&letter.partition));
        }
        waiting.by_event.retain(|_, letters| !letters.is_empty());
        self.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SeatNumber;
    use uuid::Uuid;

    fn event(id: u32) -> EventId {
        EventId::new(id).unwrap()
    }

    fn order(number: u128) -> OrderId {
        OrderId(Uuid::from_u128(number))
    }

    fn request(number: u128) -> Request {
        Request { order: order(number), place: Place(7), seats: vec![SeatNumber(3), SeatNumber(4)], person: None }
    }

    fn put(inbox: &Inbox, of: u32, partition: i32, offset: i64, number: u128) {
        let payload = serde_json::to_vec(&Message::new(event(of), &request(number))).unwrap();
        let received = Received { partition, offset, payload };
        let (event, request) = Message::read(&received.payload).unwrap();
        inbox.put(event, request, &received);
    }

    fn oldest(inbox: &Inbox, of: u32) -> Vec<u128> {
        inbox.oldest(event(of), 9).iter().map(|request| request.order.0.as_u128()).collect()
    }

    fn done(inbox: &Inbox, of: u32, numbers: &[u128]) -> Vec<(i32, i64)> {
        inbox.done(event(of), &numbers.iter().map(|number| order(*number)).collect())
    }

    #[test]
    fn a_partition_is_done_up_to_its_first_order_that_is_not() {
        let inbox = Inbox::default();
        inbox.gained(&[0, 1]);
        put(&inbox, 1, 0, 10, 1);
        put(&inbox, 2, 0, 11, 2);
        put(&inbox, 1, 1, 5, 3);
        put(&inbox, 1, 0, 12, 4);
        assert_eq!((oldest(&inbox, 1), oldest(&inbox, 2)), (vec![1, 3, 4], vec![2]));
        assert_eq!(oldest(&inbox, 1), [1, 3, 4], "what is not done is taken again");
        assert_eq!(done(&inbox, 1, &[3, 4]), [(0, 10), (1, 6)]);
        assert_eq!(done(&inbox, 1, &[1]), [(0, 11)]);
        assert_eq!(done(&inbox, 2, &[2]), [(0, 13)]);
        assert_eq!(oldest(&inbox, 1), []);
    }

    #[test]
    fn an_order_that_came_twice_is_taken_and_done_once() {
        let inbox = Inbox::default();
        inbox.gained(&[0]);
        put(&inbox, 1, 0, 10, 1);
        put(&inbox, 1, 0, 11, 1);
        assert_eq!(oldest(&inbox, 1), [1]);
        assert_eq!(done(&inbox, 1, &[1]), [(0, 12)]);
    }

    #[test]
    fn orders_of_a_partition_that_another_server_got_are_forgotten() {
        let inbox = Inbox::default();
        inbox.gained(&[0, 1]);
        put(&inbox, 1, 0, 10, 1);
        put(&inbox, 1, 1, 20, 2);
        inbox.lost(&[0]);
        assert_eq!(oldest(&inbox, 1), [2]);
        put(&inbox, 1, 0, 11, 3);
        assert_eq!(oldest(&inbox, 1), [2], "what comes too late is left to the other server");
        assert_eq!(done(&inbox, 1, &[1, 2]), [(1, 21)]);
    }

    #[test]
    fn a_message_that_is_no_order_is_left_out() {
        let inbox = Inbox::default();
        inbox.gained(&[0]);
        put(&inbox, 1, 0, 10, 1);
        assert_eq!(inbox.skip(&Received { partition: 0, offset: 11, payload: b"{}".to_vec() }), [(0, 10)]);
        assert_eq!(done(&inbox, 1, &[1]), [(0, 12)]);
        assert!(Message::read(b"{}").is_none());
    }
}
