//! Connections that give up on a database that owes an answer for too long. A frozen database, or one behind a network that
//! drops everything, would otherwise be waited for without end: its system still answers, so nothing looks broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use diesel::ConnectionError;
use diesel::connection::{Instrumentation, InstrumentationEvent};
use diesel_async::pooled_connection::deadpool::HookError;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio_postgres::{Config, NoTls};

/// How often to check for overdue answers.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a connection may be idle before the system probes it.
const QUIET: Duration = Duration::from_secs(30);
/// A peer that acknowledges nothing for this long is gone.
const UNTAKEN: Duration = Duration::from_secs(10);

/// When a connection of a pool last fell silent. Connections opened before that are not used again: they may be dead too,
/// and each would cost its next user a long wait to find out.
#[derive(Clone, Default)]
pub struct Silence(Arc<ArcSwapOption<Instant>>);

impl Silence {
    fn begin(&self) {
        tracing::warn!("PostgreSQL does not answer: closing a connection");
        self.0.store(Some(Arc::new(Instant::now())));
    }

    pub fn allows(&self, opened: Instant) -> Result<(), HookError> {
        let suspect = self.0.load().as_ref().is_some_and(|silence| opened <= **silence);
        if suspect { Err(HookError::message("from before a silence")) } else { Ok(()) }
    }
}

/// Connects within `connect`. If an answer takes longer than `answer`, the connection is closed, which fails whatever is
/// under way on it, and `silence` begins.
pub async fn connect(
    url: &str,
    connect: Duration,
    answer: Duration,
    silence: Silence,
) -> Result<AsyncPgConnection, ConnectionError> {
    let connected = tokio::time::timeout(connect, config(url)?.connect(NoTls)).await;
    let (client, mut connection) = connected.map_err(|_| silent())?.map_err(bad)?;
    // An answer is owed from the start: diesel asks for the first things now.
    let owed = Owed(Arc::new(Since { start: Instant::now(), ms: AtomicU64::new(1) }));
    let watched = owed.0.clone();
    tokio::spawn(async move {
        let mut messages = poll_fn(move |context| connection.poll_message(context));
        tokio::select! {
            // Notices say nothing new, and the caller hears what went wrong.
            () = async { while let Some(Ok(_)) = messages.next().await {} } => {}
            () = watched.longer_than(answer) => silence.begin(),
        }
    });
    let mut conn = AsyncPgConnection::try_from(client).await?;
    owed.0.end();
    conn.set_instrumentation(owed);
    Ok(conn)
}

/// The settings of the address, and where it has none, defaults that notice a silent network.
fn config(url: &str) -> Result<Config, ConnectionError> {
    let mut config: Config = url.parse().map_err(bad)?;
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNTAKEN);
    }
    if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        config.keepalives_idle(QUIET);
    }
    Ok(config)
}

fn bad(error: tokio_postgres::Error) -> ConnectionError {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    ConnectionError::BadConnection(format!("{error}{cause}"))
}

fn silent() -> ConnectionError {
    ConnectionError::BadConnection("no answer".to_owned())
}

/// Records when a statement is sent and when its answer arrives.
struct Owed(Arc<Since>);

impl Instrumentation for Owed {
    fn on_connection_event(&mut self, event: InstrumentationEvent<'_>) {
        match event {
            InstrumentationEvent::StartQuery { .. } => self.0.begin(),
            InstrumentationEvent::FinishQuery { .. } => self.0.end(),
            _ => {}
        }
    }
}

/// Since when an answer is owed, in ms after the start; 0: none is.
struct Since {
    start: Instant,
    ms: AtomicU64,
}

impl Since {
    fn begin(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ms.store(now.max(1), Ordering::Relaxed);
    }

    fn end(&self) {
        self.ms.store(0, Ordering::Relaxed);
    }

    /// Returns when an answer has been owed for this long. It counts even if the caller went away.
    async fn longer_than(&self, most: Duration) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let since = self.ms.load(Ordering::Relaxed);
            if since > 0 && self.start.elapsed() > Duration::from_millis(since) + most {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_address_win() {
        let told = config("postgres://zticket@127.0.0.1/zticket?tcp_user_timeout=3&keepalives_idle=4").unwrap();
        assert_eq!(told.get_tcp_user_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(told.get_keepalives_idle(), Duration::from_secs(4));
        let plain = config("postgres://zticket@127.0.0.1/zticket").unwrap();
        assert_eq!((plain.get_tcp_user_timeout(), plain.get_keepalives_idle()), (Some(&UNTAKEN), QUIET));
    }
}
