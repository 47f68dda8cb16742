//! Puts a server together. Channels by which a lower layer has news for a higher one are connected here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::base::error::Error;
use crate::base::metrics::Metrics;
use crate::base::seal::Seal;
use crate::base::token::MasterKeys;
use crate::event::catalogue::Catalogue;
use crate::event::scrape::Scrape;
use crate::house::concerts::Concerts;
use crate::house::credentials::Credentials;
use crate::house::desk::Desk;
#[cfg(feature = "kafka")]
use crate::house::facts::Facts;
use crate::house::history::History;
use crate::house::operators::Operators;
use crate::house::outbox::{Channel, Outbox};
use crate::house::people::People;
use crate::house::programme::Programme;
use crate::house::rankings::Rankings;
use crate::house::setup;
use crate::sale::admission::Admission;
use crate::sale::broker::{Broker, Streams};
use crate::sale::control::Controls;
use crate::sale::entrance::Entry;
#[cfg(feature = "kafka")]
use crate::sale::kafka::KafkaBroker;
use crate::sale::line::Line;
use crate::sale::orders::Orders;
use crate::sale::restore::Restorer;
use crate::sale::seats::Seats;
use crate::sale::seller::Seller;
use crate::sale::settle::{Settler, Touched};
use crate::sale::tickets::Tickets;
use crate::sale::views::Views;
use crate::sale::writer::Writer;
use crate::server::config::Config;
use crate::store::db::changes::Unsettled;
#[cfg(feature = "kafka")]
use crate::store::kafka::Kafka;
use crate::store::redis::scripts::Scripts;
use crate::store::{Access, Stores, db};
use crate::web::cookies::Cookies;
use crate::web::limits::Limits;
use crate::web::machine::Processors;
use crate::web::seat_maps::SeatMaps;
use crate::web::site::{Settings, Site};
use crate::web::workers::Workers;

/// Everything a server is made of, before it listens and its loops run.
pub struct Parts {
    pub stores: Arc<Stores>,
    pub catalogue: Arc<Catalogue>,
    pub settler: Arc<Settler>,
    pub restorer: Arc<Restorer>,
    pub views: Arc<Views>,
    pub line: Arc<Line>,
    pub admission: Admission,
    pub controls: Arc<Controls>,
    pub history: Arc<History>,
    pub seats: Arc<Seats>,
    pub writer: Writer,
    pub outbox: Outbox,
    pub rankings: Arc<Rankings>,
    pub site: Arc<Site>,
}

/// Sales that wait to be settled.
pub type ToSettle = mpsc::Receiver<Vec<Unsettled>>;

/// Connects to the stores, with the database up to date, and makes the parts.
pub async fn build(config: &Config) -> Result<(Arc<Parts>, ToSettle), Error> {
    let metrics = Arc::new(Metrics::new().map_err(Error::internal)?);
    build_with(config, Scripts::new(metrics.clone()), metrics).await
}

/// The same with other scripts, as another version of this server has them.
pub async fn build_with(
    config: &Config,
    scripts: Scripts,
    metrics: Arc<Metrics>,
) -> Result<(Arc<Parts>, ToSettle), Error> {
    let applied = db::migrate::migrate(&config.database_url).await?;
    if !applied.is_empty() {
        tracing::info!(migrations = ?applied, "migrated the database");
    }
    let facts = config.kafka.is_some();
    let stores =
        Stores::connect(&config.database_url, config.db_connections, facts, &config.redis_url, scripts, metrics)
            .await?;
    let stores = Arc::new(stores);
    let master = master_keys(config, &stores).await?;
    if config.makes_default_event() && setup::ensure_default_event(&stores.db, config.seat_count).await? {
        tracing::info!(seats = config.seat_count, "made the default event");
    }
    let catalogue =
        Arc::new(Catalogue::new(stores.db.clone(), master.clone(), config.default_event, config.policy.clone()));
    catalogue.refresh().await?;
    assemble(config, stores, catalogue, &master)
}

async fn master_keys(config: &Config, stores: &Stores) -> Result<MasterKeys, Error> {
    match config.token_keys.clone() {
        Some(keys) => Ok(keys),
        None => db::signing_keys::load_or_create(&mut stores.db.get().await?).await,
    }
}

/// Makes each stage with what it needs, from the bottom to the top.
fn assemble(
    config: &Config,
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    master: &MasterKeys,
) -> Result<(Arc<Parts>, ToSettle), Error> {
    let policy = || config.policy.clone();
    let currency = || config.currency.clone();
    // Settling says which concerts sold something, and the rankings count them.
    let touched = Arc::new(Touched::default());
    let sweep_every = Duration::from_millis(config.policy.sync_interval_ms);
    let (settler, to_settle) = Settler::new(stores.clone(), catalogue.clone(), sweep_every, touched.clone());
    let controls = Arc::new(Controls::new(stores.clone(), catalogue.clone()));
    let restorer = Arc::new(Restorer::new(stores.clone(), catalogue.clone(), settler.clone(), controls.clone()));
    let views = Arc::new(Views::new(stores.clone(), restorer.clone(), config.snapshot_interval));
    let admit_every = Duration::from_millis(config.policy.interval_ms);
    let admission = Admission::new(stores.clone(), restorer.clone(), admit_every);
    let line = Arc::new(Line::new(stores.clone(), views.clone(), policy()));
    let seats = Arc::new(Seats::new(stores.clone(), views.clone(), currency()));
    let seller = Seller::start(&stores, settler.clone(), config.most_buying);
    let tickets = Tickets::new(stores.clone(), catalogue.clone(), seats.clone(), settler.clone(), seller, currency());
    let tickets = Arc::new(tickets);
    let Outside { broker, channels } = outside(config, &stores, &catalogue)?;
    let orders = Orders::start(&stores, catalogue.clone(), tickets.clone(), broker.clone(), currency());
    let outbox = Outbox::new(stores.clone(), channels);
    let writer = Writer::new(stores.clone(), tickets.clone(), broker)?;
    let history = Arc::new(History::new(stores.clone(), catalogue.clone()));
    let desk = Desk::new(
        stores.clone(),
        catalogue.clone(),
        views.clone(),
        controls.clone(),
        line.clone(),
        tickets.clone(),
        history.clone(),
    );
    let time_zone = config.time_zone.name().to_owned();
    let rankings = Arc::new(Rankings::new(stores.clone(), catalogue.clone(), touched, time_zone));
    let site = Site {
        stores: Access::new(stores.clone()),
        metrics: stores.metrics.clone(),
        scrape: Scrape::default(),
        workers: Workers::default(),
        processors: Processors::default(),
        catalogue: catalogue.clone(),
        views: views.clone(),
        entry: Entry { stores: stores.clone(), restorer: restorer.clone(), most_waiting: config.most_entering },
        line: line.clone(),
        seats: seats.clone(),
        tickets,
        orders,
        concerts: Concerts::new(catalogue.clone(), views.clone(), currency()),
        people: People::start(stores.clone(), currency(), master),
        credentials: Credentials::start(stores.clone(), master),
        operators: Operators::new(stores.clone(), master, config.admin_token.as_deref()),
        desk,
        history: history.clone(),
        programme: Programme::new(stores.clone(), catalogue.clone()),
        rankings: rankings.clone(),
        seat_maps: SeatMaps::new(views.clone()),
        limits: Limits::new(&config.limits, &stores.metrics),
        seal: Seal::new(master),
        settings: Settings {
            trusted_proxies: config.trusted_proxies.clone(),
            cookies: Cookies { https: config.public_url.starts_with("https://") },
            allowed_origins: config.allowed_origins.clone(),
            request_time: config.request_time,
            max_connections: config.max_connections,
            currency: currency(),
            time_zone: config.time_zone,
        },
        stopping: watch::Sender::new(false),
    };
    let site = Arc::new(site);
    let parts = Parts {
        stores,
        catalogue,
        settler,
        restorer,
        views,
        line,
        admission,
        controls,
        history,
        seats,
        writer,
        outbox,
        rankings,
        site,
    };
    Ok((Arc::new(parts), to_settle))
}

/// What there is beside the two stores.
struct Outside {
    /// Where orders wait that are written later.
    broker: Arc<dyn Broker>,
    /// Whom the outbox tells something.
    channels: Vec<Box<dyn Channel>>,
}

fn outside(config: &Config, stores: &Arc<Stores>, catalogue: &Arc<Catalogue>) -> Result<Outside, Error> {
    #[cfg(feature = "kafka")]
    if let Some(address) = &config.kafka {
        let kafka = Arc::new(Kafka::new(address.clone())?);
        let broker = Arc::new(KafkaBroker::new(kafka.clone(), stores.clone(), catalogue.clone()));
        return Ok(Outside { broker, channels: vec![Box::new(Facts::new(kafka, config.currency.clone()))] });
    }
    if config.kafka.is_some() {
        return Err(Error::internal("this build knows no Kafka"));
    }
    Ok(Outside { broker: Arc::new(Streams::new(stores.clone(), catalogue.clone())?), channels: Vec::new() })
}

impl Parts {
    /// Starts settling sales as they are made.
    pub fn start_settling(&self, to_settle: ToSettle) -> JoinHandle<()> {
        self.stores.spawn(self.settler.clone().run(to_settle))
    }
}
