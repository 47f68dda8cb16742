//! Starting and stopping a server. The program and the tests start it the same way.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::base::LONGEST_WAIT;
use crate::base::error::Error;
use crate::sale::restore::Prepared;
use crate::server::config::Config;
use crate::server::loops::Loops;
use crate::server::parts::{self, Parts};
use crate::web::listener::{self, Trap, turn_newcomers_away};
use crate::web::serve;

/// How long a start waits for events that have to be rebuilt in Redis.
const LONGEST_PREPARATION: Duration = Duration::from_secs(10);
/// How long a stopping server accepts connections that were made before it turned newcomers away.
const LAST_CONNECTIONS: Duration = Duration::from_millis(500);
/// How soon the web server has closed its listener when it stops.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// A running server.
pub struct Server {
    pub parts: Arc<Parts>,
    pub addr: SocketAddr,
    pub management_addr: SocketAddr,
    drain: Duration,
    /// The same socket that `web` accepts connections from.
    listener: TcpListener,
    web: Web,
    management: Web,
    loops: Option<Loops>,
    settling: JoinHandle<()>,
}

/// A listener at work: the handle to stop it, and the task that ends when it has.
type Web = (ServerHandle, JoinHandle<std::io::Result<()>>);

/// Whether the loops run by themselves. Tests can call their steps instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    Running,
    ByHand,
}

/// Connects, migrates the database, makes every event ready in Redis, and serves. Needs a multi-threaded runtime.
pub async fn start(config: &Config, background: Background) -> Result<Server, Error> {
    // First, so that a taken port is reported before anything is touched.
    let cannot = |name: &str, addr, error| Error::Internal(format!("{name}: cannot listen on {addr}: {error}"));
    let listener = listener::open(config.bind).map_err(|error| cannot("ZTICKET_BIND", config.bind, error))?;
    let management_listener = TcpListener::bind(config.management_bind)
        .map_err(|error| cannot("ZTICKET_MANAGEMENT_BIND", config.management_bind, error))?;
    let (addr, management_addr) = (local_addr(&listener)?, local_addr(&management_listener)?);

    let (parts, to_settle) = parts::build(config).await?;
    prepare(&parts).await?;
    parts.writer.start().await?;
    let settling = parts.start_settling(to_settle);
    parts.rankings.recount_lately_open();
    let loops = (background == Background::Running).then(|| Loops::start(&parts));

    let web = serve::serve(parts.site.clone(), listener.try_clone().map_err(Error::internal)?)?;
    let management = serve::serve_management(parts.site.clone(), management_listener)?;
    let spawn = |server: actix_web::dev::Server| (server.handle(), tokio::spawn(server));
    let (web, management) = (spawn(web), spawn(management));
    Ok(Server { parts, addr, management_addr, drain: config.drain, listener, web, management, loops, settling })
}

fn local_addr(listener: &TcpListener) -> Result<SocketAddr, Error> {
    listener.local_addr().map_err(Error::internal)
}

/// Makes the events ready. If a part of a cluster is away, the rest is sold; if there are very many events, the last ones
/// become ready while the server serves.
async fn prepare(parts: &Parts) -> Result<(), Error> {
    let Prepared { ready, mut failed, unfinished } = parts.restorer.prepare_all(LONGEST_PREPARATION).await;
    if let Some(error) = failed.pop() {
        // From an old database nothing is sold, but what is there can be looked at.
        if ready == 0 && !matches!(error, Error::DatabaseBehind) {
            return Err(error);
        }
        tracing::warn!(events = failed.len() + 1, %error, "not ready in Redis yet, trying again");
    }
    if unfinished > 0 {
        tracing::info!(ready, unfinished, "serving while the other events are made ready");
    }
    Ok(())
}

/// How long a stopping server tries to tell Redis of the last polls.
const LONGEST_PULSES: Duration = Duration::from_secs(3);

/// What a server leaves in order when it stops.
async fn tidy_up(parts: &Parts) {
    // First: whoever asked this server last counts as present only if Redis hears of it.
    let events = parts.catalogue.all();
    let pulses = join_all(events.iter().map(|event| parts.line.pulse_step(event)));
    let told = timeout(LONGEST_PULSES, pulses).await.unwrap_or_else(|_| vec![Err(Error::TooSlow("Redis"))]);
    if let Some(error) = told.into_iter().find_map(Result::err) {
        tracing::warn!(%error, "some of the last polls are not counted");
    }
    parts.writer.stop().await;
    if let Err(error) = parts.history.step().await {
        tracing::warn!(%error, "the last figures are not kept");
    }
    if let Err(error) = parts.settler.step().await {
        tracing::warn!(%error, "the next server will settle the remaining sales");
    }
    if let Err(error) = parts.rankings.step().await {
        tracing::warn!(%error, "the next server will count the rankings");
    }
    parts.restorer.park().await;
}

impl Server {
    /// Finishes what was accepted, settles what was sold, and records that the stop was clean.
    pub async fn stop(self) {
        let Self { parts, drain, listener, web, management, loops, settling, .. } = self;
        // First balancers have to notice; every answer closes its connection.
        parts.site.stopping.send_replace(true);
        let mut trap = Trap::default();
        if !drain.is_zero() {
            tokio::time::sleep(drain).await;
            trap = turn_newcomers_away(&listener);
            tokio::time::sleep(LAST_CONNECTIONS).await;
        }
        drop(listener);
        let (handle, task) = web;
        let stopped = handle.stop(true);
        if !drain.is_zero() {
            tokio::time::sleep(CLOSED_WITHIN).await;
        }
        drop(trap);
        stopped.await;
        let _ = task.await;
        if let Some(loops) = loops {
            loops.stop().await;
        }
        if timeout(LONGEST_WAIT, tidy_up(&parts)).await.is_err() {
            tracing::warn!("the next server will finish the rest");
        }
        settling.abort();
        let (handle, task) = management;
        handle.stop(false).await;
        let _ = task.await;
    }

    /// Ends at once, as a crash would: nothing is finished or settled.
    pub async fn crash(self) {
        self.parts.site.stopping.send_replace(true);
        if let Some(loops) = self.loops {
            loops.abort();
        }
        self.settling.abort();
        self.web.0.stop(false).await;
        self.management.0.stop(false).await;
    }

    /// Resolves when the server ends by itself, which it should not.
    pub async fn ended(&mut self) {
        let _ = (&mut self.web.1).await;
    }
}
