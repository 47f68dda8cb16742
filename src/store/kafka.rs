//! Kafka: sends messages that every replica keeps, and receives those that a group of servers shares.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::base::error::Error;
use crate::base::kafka_address::KafkaAddress;

/// Partitions of a topic that is made here. At most this many servers share the work.
const PARTITIONS: i32 = 12;
/// How long Kafka may take to keep a message.
const LONGEST_SEND: Duration = Duration::from_secs(5);
/// How long to try before giving up on making topics.
const LONGEST_SETUP: Duration = Duration::from_secs(10);
/// After this time without a word from a server, the others share its partitions.
const SILENCE_MS: &str = "10000";

pub struct Kafka {
    pub address: KafkaAddress,
    producer: FutureProducer<Quiet>,
}

/// librdkafka tells its news again and again while Kafka is away. What matters of them comes back as errors.
struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "librdkafka: {reason}");
    }
}

impl Kafka {
    /// Connects in the background.
    pub fn new(address: KafkaAddress) -> Result<Self, Error> {
        let timeout = LONGEST_SEND.as_millis().to_string();
        let producer = config(&address)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", timeout)
            .set("linger.ms", "2")
            .create_with_context(Quiet)
            .map_err(broker)?;
        Ok(Self { address, producer })
    }

    /// Makes the topics that are missing.
    pub async fn make_topics(&self) -> Result<(), Error> {
        let admin: AdminClient<Quiet> = config(&self.address).create_with_context(Quiet).map_err(broker)?;
        let names = [self.address.requests(), self.address.orders()];
        // As many replicas as Kafka is set up to make.
        let topics: Vec<_> =
            names.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(-1))).collect();
        let made = admin.create_topics(&topics, &AdminOptions::new().request_timeout(Some(LONGEST_SETUP))).await;
        for made in made.map_err(broker)? {
            match made {
                Ok(topic) => tracing::info!(topic, partitions = PARTITIONS, "made a topic"),
                Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, code)) => return Err(Error::Broker(format!("topic {topic}: {code}"))),
            }
        }
        Ok(())
    }

    /// Sends a message. Once this has succeeded, every replica has it. Messages of one key keep their order.
    pub async fn send(&self, topic: &str, key: &str, payload: &[u8]) -> Result<(), Error> {
        let sent = self.producer.send(FutureRecord::to(topic).key(key).payload(payload), LONGEST_SEND).await;
        sent.map(drop).map_err(|(error, _)| broker(error))
    }

    /// Begins to receive the messages of a topic, together with all servers of the group.
    pub fn receive<T: Shares>(&self, topic: &str, shares: Arc<T>) -> Result<Receiver<T>, Error> {
        let consumer: StreamConsumer<Shared<T>> = config(&self.address)
            .set("group.id", &self.address.prefix)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", SILENCE_MS)
            .create_with_context(Shared(shares))
            .map_err(broker)?;
        consumer.subscribe(&[topic]).map_err(broker)?;
        Ok(Receiver { consumer, topic: topic.to_owned() })
    }
}

fn config(address: &KafkaAddress) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &address.servers).set("client.id", "zticket");
    config
}

fn broker(error: KafkaError) -> Error {
    Error::Broker(error.to_string())
}

/// Hears which partitions this server is to take care of.
pub trait Shares: Send + Sync + 'static {
    fn gained(&self, partitions: &[i32]);
    /// Another server takes care of them from now on, and begins at the first message that is not done.
    fn lost(&self, partitions: &[i32]);
}

struct Shared<T>(Arc<T>);

impl<T: Shares> ClientContext for Shared<T> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Quiet.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        ClientContext::error(&Quiet, error, reason);
    }
}

impl<T: Shares> ConsumerContext for Shared<T> {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let partitions =
            |list: &TopicPartitionList| list.elements().iter().map(|one| one.partition()).collect::<Vec<_>>();
        match rebalance {
            Rebalance::Assign(list) => self.0.gained(&partitions(list)),
            Rebalance::Revoke(list) => self.0.lost(&partitions(list)),
            Rebalance::Error(error) => tracing::warn!(%error, "sharing orders with other servers failed"),
        }
    }
}

/// The messages of the partitions that this server takes care of.
pub struct Receiver<T: Shares> {
    consumer: StreamConsumer<Shared<T>>,
    topic: String,
}

/// A message, and where it stands.
pub struct Received {
    pub partition: i32,
    pub offset: i64,
    pub payload: Vec<u8>,
}

impl<T: Shares> Receiver<T> {
    pub async fn next(&self) -> Result<Received, Error> {
        let message = self.consumer.recv().await.map_err(broker)?;
        let payload = message.payload().unwrap_or_default().to_vec();
        Ok(Received { partition: message.partition(), offset: message.offset(), payload })
    }

    /// All messages before these offsets are done: whoever takes care of these partitions next begins there.
    pub fn done(&self, before: impl IntoIterator<Item = (i32, i64)>) -> Result<(), Error> {
        let mut offsets = TopicPartitionList::new();
        for (partition, offset) in before {
            offsets.add_partition_offset(&self.topic, partition, Offset::Offset(offset)).map_err(broker)?;
        }
        if offsets.count() == 0 {
            return Ok(());
        }
        self.consumer.commit(&offsets, CommitMode::Async).map_err(broker)
    }

    /// Leaves the group, so that other servers go on at once.
    pub fn leave(&self) {
        self.consumer.unsubscribe();
    }
}
