//! What operators decide about a sale while it runs. PostgreSQL keeps it and counts its versions; Redis gets it with its
//! version and takes no older one, so servers may bring it there in any order, and again after Redis lost it.

use std::sync::Arc;

use diesel_async::AsyncConnection;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::base::control::{Control, Reason};
use crate::base::error::Error;
use crate::base::policy::{Policy, SETTINGS, Setting};
use crate::event::Event;
use crate::event::catalogue::Catalogue;
use crate::store::db::audit_log::Entry;
use crate::store::redis::reads;
use crate::store::redis::scripts::PolicySet;
use crate::store::{Stores, db};

pub struct Controls {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
}

/// A decision of an operator.
pub struct Decision {
    pub who: String,
    pub action: &'static str,
    /// The version it was based on; `None`: whichever is there.
    pub based_on: Option<i64>,
    pub change: Change,
}

/// What is to be in force, from what is.
pub type Change = Box<dyn FnOnce(&Control) -> Result<Control, Error> + Send>;

/// A decision that is kept.
pub struct Decided {
    pub control: Control,
    /// `false`: Redis could not be told yet. It will be as soon as it takes writes.
    pub in_force: bool,
}

impl Controls {
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>) -> Self {
        Self { stores, catalogue }
    }

    /// Keeps a decision, with an entry in the audit log, and puts it in force.
    pub async fn decide(&self, event: &Arc<Event>, decision: Decision) -> Result<Decided, Error> {
        let (id, configured) = (event.id, event.configured.clone());
        // A database that lost a commit in a failover may be behind: Redis takes nothing older than what it has.
        let in_redis = self.version_in_force(event).await;
        let control = self
            .stores
            .query(move |conn| {
                async move {
                    conn.transaction(async |conn| {
                        let before = db::controls::find_alone(conn, id).await?;
                        if decision.based_on.is_some_and(|version| version != before.version) {
                            return Err(Error::PolicyChanged { version: before.version });
                        }
                        let mut after = (decision.change)(&before)?;
                        if after.overrides != before.overrides {
                            after.overrides.over(&configured).check()?;
                        }
                        if after == before && in_redis <= before.version {
                            return Ok(before);
                        }
                        after.version = before.version.max(in_redis) + 1;
                        db::controls::save(conn, id, &after).await?;
                        let told = |control: &Control| Some(told(control, &configured));
                        let entry = Entry {
                            who: decision.who,
                            action: decision.action,
                            event: Some(id),
                            before: told(&before),
                            after: told(&after),
                        };
                        db::audit_log::write(conn, &entry).await?;
                        Ok(after)
                    })
                    .await
                }
                .boxed()
            })
            .await?;
        event.set_control(&control);
        let in_force = match self.put_in_force(event, &control).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(event = %event.id, %error, "kept, but Redis does not take it yet: trying again");
                false
            }
        };
        Ok(Decided { control, in_force })
    }

    /// The version that Redis has; 0 if it cannot be asked.
    async fn version_in_force(&self, event: &Event) -> i64 {
        let ask = async {
            let mut conn = self.stores.redis.get().await?;
            reads::in_force(&mut conn, &event.keys).await
        };
        match ask.await {
            Ok((version, _)) => version.unwrap_or(0),
            Err(error) => {
                tracing::debug!(event = %event.id, %error, "the version in Redis is not known");
                0
            }
        }
    }

    /// Brings a decision to Redis, on top of this server's configuration.
    pub async fn put_in_force(&self, event: &Event, control: &Control) -> Result<(), Error> {
        let mut conn = self.stores.redis.get().await?;
        let seed = event.configured.seed();
        // A Redis that refuses writes for now is good enough, if there is nothing to write.
        let (version, seeded) = reads::in_force(&mut conn, &event.keys).await?;
        if version.unwrap_or(0) != control.version || seeded.as_ref() != Some(&seed) {
            let policy = event.policy_under(control);
            let mut fields: Vec<(&str, String)> =
                policy.fields().into_iter().map(|(name, value)| (name, value.to_string())).collect();
            // Where operators decided nothing, the event is as it is.
            if control.version > 0 {
                fields.push(("state", control.state.word().to_owned()));
                fields.push(("reason", Reason::text(control.reason.as_ref())));
            }
            let set = self.stores.scripts.policy_set(&mut conn, &event.keys, control.version, &seed, &fields).await?;
            if let PolicySet::Refused(rule) = set {
                return Err(Error::Internal(format!("Redis refused the settings: {rule}")));
            }
        }
        event.set_in_force(control.version);
        Ok(())
    }

    /// One round of bringing to Redis what it lacks. An event that fails holds up no other.
    pub async fn catch_up(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for event in self.catalogue.all().into_iter().filter(|event| event.lacks_control()) {
            match self.put_in_force(&event, &event.control()).await {
                // It gets the decision when it is made ready.
                Ok(()) | Err(Error::Unready) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }
}

/// As the audit log has it.
fn told(control: &Control, configured: &Policy) -> Value {
    json!({
        "state": control.state,
        "reason": control.reason,
        "policy": PolicyView::new(control, configured),
    })
}

/// The settings in force, as operators read them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    pub version: i64,
    #[serde(flatten)]
    #[schema(value_type = Settings)]
    pub settings: serde_json::Map<String, Value>,
    /// The settings that differ from the configuration because an operator changed them.
    pub changed: Vec<String>,
}

/// What the description of the API says about all settings together.
struct Settings;

/// Changes to some settings, by their names. Null puts one back to the configuration.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct PolicyChange(pub serde_json::Map<String, Value>);

impl PolicyView {
    pub fn new(control: &Control, configured: &Policy) -> Self {
        let policy = control.overrides.over(configured).reconciled();
        Self {
            version: control.version,
            settings: SETTINGS.iter().map(|setting| (setting.name.to_owned(), setting.get(&policy).into())).collect(),
            changed: control.overrides.names().map(str::to_owned).collect(),
        }
    }
}

impl ToSchema for Settings {}

impl PartialSchema for Settings {
    fn schema() -> RefOr<Schema> {
        let settings = SETTINGS.iter().fold(ObjectBuilder::new(), |object, setting| {
            object.property(setting.name, setting_schema(setting, Type::Integer.into())).required(setting.name)
        });
        settings.into()
    }
}

impl ToSchema for PolicyChange {}

impl PartialSchema for PolicyChange {
    fn schema() -> RefOr<Schema> {
        let or_null = || SchemaType::from_iter([Type::Integer, Type::Null]);
        let changes = SETTINGS.iter().fold(ObjectBuilder::new(), |object, setting| {
            object.property(setting.name, setting_schema(setting, or_null()))
        });
        changes.description(Some("Changes to some settings. Null puts one back to the configuration.")).into()
    }
}

fn setting_schema(setting: &Setting, kind: SchemaType) -> ObjectBuilder {
    let bound = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    ObjectBuilder::new().schema_type(kind).minimum(Some(bound(setting.lowest))).maximum(Some(bound(setting.highest)))
}
