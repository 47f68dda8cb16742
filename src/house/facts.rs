//! Facts about orders for other programs: what was sold and what was cancelled, on the topic `zticket.orders`. The key is the
//! order, so its facts stay in order.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

use crate::base::error::Error;
use crate::house::outbox::{Channel, Unsent};
use crate::store::db::outbox::{KAFKA, Letter};
use crate::store::kafka::Kafka;

pub struct Facts {
    kafka: Arc<Kafka>,
    currency: String,
}

impl Facts {
    pub fn new(kafka: Arc<Kafka>, currency: String) -> Self {
        Self { kafka, currency }
    }
}

impl Channel for Facts {
    fn name(&self) -> &'static str {
        KAFKA
    }

    fn send<'a>(&'a self, letter: &'a Letter) -> BoxFuture<'a, Result<(), Unsent>> {
        async move {
            let mut fact = json!({ "id": letter.message_id, "at": letter.created_at, "currency": self.currency });
            if let (Some(fact), Some(body)) = (fact.as_object_mut(), letter.body.as_object()) {
                fact.extend(body.clone());
            }
            let sent = self.kafka.send(&self.kafka.address.orders(), &letter.key, fact.to_string().as_bytes()).await;
            sent.map_err(|error| match error {
                Error::Broker(_) => Unsent::Later(error),
                error => Unsent::Never(error.to_string()),
            })
        }
        .boxed()
    }
}
