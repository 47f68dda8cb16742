//! What handlers and loops share, and how a server is put together. `main` and the tests start it the same way.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::Config;
use crate::db::tickets::Sold;
use crate::db::users::ChargeRow;
use crate::error::Error;
use crate::events::{Catalogue, Event};
use crate::ids::{EventId, UserId};
use crate::limits::Limits;
use crate::line::{self, Entering};
use crate::metrics::Metrics;
use crate::people::{self, Charge, KnownKeys};
use crate::rankings::{self, Rankings};
use crate::redis::gather::Gather;
use crate::redis::scripts::Scripts;
use crate::redis::{self, Link};
use crate::seal::Seal;
use crate::tickets::{self, Sale};
use crate::workers::{self, Workers};
use crate::{db, house, http, restore, sync};

/// Database connections of one server: sales are gathered, so a few do.
const DB_CONNECTIONS: usize = 16;

/// Of these, so many at most are for what requests ask by themselves: sales always find one. More requests wait for their
/// turn, and those beyond are refused at once: they would wait in vain.
const QUERIES_AT_ONCE: usize = 8;
const MOST_QUERIES: usize = 2000;

/// Calls to Redis that requests may have under way, in a server. Redis does tens of thousands a second: more would only
/// be answered too late, and done all the same.
const MOST_CALLS: usize = 4000;

/// So long a request waits for what others do on its behalf.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Of many events, so many are repaired together.
const REPAIRS_AT_ONCE: usize = 4;

/// Shared by all threads.
pub struct App {
    pub config: Config,
    pub db: db::Pool,
    pub redis: redis::Pool,
    pub scripts: Scripts,
    pub metrics: Arc<Metrics>,
    pub events: Catalogue,
    /// Where connections of the pools live: work on them is done here, whichever thread asked for it.
    pub runtime: Handle,
    pub seller: Gather<Sale, Sold>,
    pub charger: Gather<Charge, ChargeRow>,
    pub key_finder: Gather<[u8; 32], Option<UserId>>,
    /// API keys of people who came by lately.
    pub keys: KnownKeys,
    pub rankings: Rankings,
    pub seal: Seal,
    pub limits: Limits,
    /// Sales and cancels to be settled off the request's path, an order at a time.
    pub unsettled: mpsc::UnboundedSender<Vec<sync::Due>>,
    /// Room for queries that run or wait, and for those that run.
    queries: Semaphore,
    turns: Arc<Semaphore>,
    /// Room for repairs of events, so that they leave some connections to others.
    pub repairs: Semaphore,
    /// Turns true when the server stops: open streams end then.
    pub stopping: watch::Sender<bool>,
    address: redis::Address,
}

impl App {
    /// Runs work on pooled connections in the background runtime and waits for it, but not forever. A caller that goes
    /// away does not stop it halfway.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let done = self.runtime.spawn(timeout(PATIENCE, work)).await;
        done.map_err(|failed| Error::Internal(failed.to_string()))?.unwrap_or(Err(Error::TooSlow("a request")))
    }

    /// Runs a query of a request, when it is its turn.
    pub async fn query<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let _room = self.queries.try_acquire().map_err(|_| Error::Overloaded("queries"))?;
        // Waited for here: who gives up meanwhile is not served.
        let turn = timeout(PATIENCE, self.turns.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| Error::TooSlow("a query"))?;
        self.run(async move {
            let outcome = work.await;
            drop(turn);
            outcome
        })
        .await
    }
}

/// What one web worker has to itself: a connection to Redis and the visitors that enter through it, so that a request
/// wakes no other thread.
pub struct Lane {
    pub app: Arc<App>,
    link: Link,
    entering: RefCell<HashMap<EventId, Entering>>,
    /// How many calls may still begin.
    calls: Cell<usize>,
}

impl Lane {
    pub fn new(app: Arc<App>) -> Result<Self, Error> {
        let link = redis::link(&app.address)?;
        let calls = Cell::new(MOST_CALLS.div_ceil(http::workers()));
        Ok(Self { app, link, entering: RefCell::default(), calls })
    }

    fn link(&self) -> Link {
        self.link.clone()
    }

    /// The connection, for one call. Refuses at once where too many are under way.
    pub fn call(&self) -> Result<Call<'_>, Error> {
        let left = self.calls.get().checked_sub(1).ok_or(Error::Overloaded("calls to Redis"))?;
        self.calls.set(left);
        Ok(Call { link: self.link(), calls: &self.calls })
    }

    /// Where visitors of this worker enter an event together.
    pub fn entering(&self, event: &Arc<Event>) -> Entering {
        let mut entering = self.entering.borrow_mut();
        let gather = entering.entry(event.id).or_insert_with(|| {
            let (gather, work) = line::entrance(self.app.clone(), self.link(), event.clone());
            actix_web::rt::spawn(work);
            gather
        });
        gather.clone()
    }
}

/// A call to Redis under way.
pub struct Call<'a> {
    pub link: Link,
    calls: &'a Cell<usize>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.calls.set(self.calls.get() + 1);
    }
}

/// A server that runs.
pub struct Server {
    pub app: Arc<App>,
    pub addr: SocketAddr,
    pub management_addr: SocketAddr,
    web: Web,
    management: Web,
    workers: Option<Workers>,
    settling: JoinHandle<()>,
}

/// A listener at work: the handle to stop it, and the task that ends when it has.
type Web = (ServerHandle, JoinHandle<std::io::Result<()>>);

/// Whether the loops run by themselves. Tests can call their steps instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    Running,
    ByHand,
}

/// Connects, brings the database up to date, makes every event ready in Redis, and serves. Needs a multi-threaded
/// runtime.
pub async fn start(config: Config, loops: Loops) -> Result<Server, Error> {
    let listen = |addr: SocketAddr, name: &str| {
        TcpListener::bind(addr).map_err(|error| Error::Internal(format!("{name}: cannot listen on {addr}: {error}")))
    };
    // First, so that a taken port is reported before anything is touched.
    let listener = listen(config.bind, "ZTICKET_BIND")?;
    let management_listener = listen(config.management_bind, "ZTICKET_MANAGEMENT_BIND")?;

    let (app, unsettled) = build(config).await?;
    // Where a part of a cluster is away, the rest is sold.
    let (ready, mut away): (Vec<_>, Vec<_>) = workers::prepare(&app).await.into_iter().partition(Result::is_ok);
    if let Some(error) = away.pop().and_then(Result::err) {
        if ready.is_empty() {
            return Err(error);
        }
        tracing::warn!(events = away.len() + 1, %error, "not ready in Redis yet, trying again");
    }
    let settling = app.runtime.spawn(sync::settle_as_they_come(app.clone(), unsettled));
    // What servers before this one did not come to count.
    app.rankings.touch_all(app.events.concerts().keys().copied());
    let workers = (loops == Loops::Running).then(|| workers::start(&app));

    let addr = local_addr(&listener)?;
    let management_addr = local_addr(&management_listener)?;
    let web = http::serve(app.clone(), listener)?;
    let management = http::serve_management(app.clone(), management_listener)?;
    let spawn = |server: actix_web::dev::Server| (server.handle(), tokio::spawn(server));
    Ok(Server { app, addr, management_addr, web: spawn(web), management: spawn(management), workers, settling })
}

/// An app without listeners and loops, and the sales it will have to settle.
pub async fn build(config: Config) -> Result<(Arc<App>, mpsc::UnboundedReceiver<Vec<sync::Due>>), Error> {
    let applied = db::migrate(&config.database_url).await?;
    if !applied.is_empty() {
        tracing::info!(migrations = ?applied, "the database was brought up to date");
    }
    let db = db::pool(&config.database_url, DB_CONNECTIONS)?;
    let address = redis::Address::parse(&config.redis_url)?;
    let redis = redis::pool(&address)?;
    redis::check(&redis).await?;
    let metrics = Arc::new(Metrics::new().map_err(|error| Error::Internal(error.to_string()))?);
    let scripts = Scripts::new(metrics.clone());
    scripts.load(&mut redis.get().await?).await?;

    let mut conn = db.get().await?;
    let master = match config.token_keys.clone() {
        Some(keys) => keys,
        None => db::signing_keys::load_or_create(&mut conn).await?,
    };
    if house::open(&db, config.seat_count).await? {
        tracing::info!(seats = config.seat_count, "the default event was made");
    }
    drop(conn);
    let seal = Seal::new(&master);
    let events = Catalogue::new(master);
    events.refresh(&db).await?;

    let (unsettled, to_settle) = mpsc::unbounded_channel();
    let (seller, selling) = tickets::seller(config.most_buying, db.clone(), metrics.clone(), unsettled.clone());
    let (charger, charging) = people::charger(db.clone());
    let (key_finder, finding) = people::key_finder(db.clone());
    let runtime = Handle::current();
    runtime.spawn(selling);
    runtime.spawn(charging);
    runtime.spawn(finding);
    let limits = Limits::new(&config.limits, &metrics);
    let app = App {
        config,
        db,
        redis,
        scripts,
        metrics,
        events,
        runtime,
        seller,
        charger,
        key_finder,
        keys: people::known_keys(),
        rankings: Rankings::default(),
        seal,
        limits,
        unsettled,
        queries: Semaphore::new(MOST_QUERIES),
        repairs: Semaphore::new(REPAIRS_AT_ONCE),
        turns: Arc::new(Semaphore::new(QUERIES_AT_ONCE)),
        stopping: watch::Sender::new(false),
        address,
    };
    Ok((Arc::new(app), to_settle))
}

/// What a server leaves in order when it stops.
async fn tidy_up(app: &Arc<App>) {
    if let Err(error) = sync::step(app).await {
        tracing::warn!(%error, "sales are left to be settled by the next server");
    }
    if let Err(error) = rankings::step(app).await {
        tracing::warn!(%error, "rankings are left to be counted by the next server");
    }
    restore::park(app).await;
}

fn local_addr(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(|error| Error::Internal(error.to_string()))
}

impl Server {
    /// Finishes what was accepted, settles what was sold, and notes that the stop was in good order.
    pub async fn stop(self) {
        let Self { app, web, management, workers, settling, .. } = self;
        // First nobody is to be sent here any more; every answer closes its connection.
        app.stopping.send_replace(true);
        tokio::time::sleep(app.config.drain).await;
        let (handle, task) = web;
        handle.stop(true).await;
        let _ = task.await;
        if let Some(workers) = workers {
            workers.stop().await;
        }
        if timeout(PATIENCE, tidy_up(&app)).await.is_err() {
            tracing::warn!("what is left to be done is left to the next server");
        }
        settling.abort();
        let (handle, task) = management;
        handle.stop(false).await;
        let _ = task.await;
    }

    /// Ends at once, as a crash would: nothing is finished or settled.
    pub async fn crash(self) {
        self.app.stopping.send_replace(true);
        if let Some(workers) = self.workers {
            workers.abort();
        }
        self.settling.abort();
        self.web.0.stop(false).await;
        self.management.0.stop(false).await;
    }

    /// Resolves when the server ended by itself, which it should not.
    pub async fn ended(&mut self) {
        let _ = (&mut self.web.1).await;
    }
}
