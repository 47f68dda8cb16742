//! Reads the configuration, starts, waits for a signal, and says by its exit code how that went: 0 in good order, 1 a
//! fault, 2 a mistake in the configuration.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use zticket::app::{self, Loops};
use zticket::config::Config;
use zticket::error::Error;
use zticket::fill::{self, Fill};
use zticket::{db, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Sells seats first come, first served, to crowds of millions.
///
/// Configured by the environment: DATABASE_URL, REDIS_URL and ZTICKET_*; see .env.example.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Migrate the database and serve (the default)
    Serve,
    /// Bring the database up to date and exit
    Migrate,
    /// For developers: fill a line fast, print tokens from it, and exit
    Fill(Fill),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("zticket: {error}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = telemetry::start(&config.log, config.log_format) {
        eprintln!("zticket: ZTICKET_LOG: {error}");
        return ExitCode::from(2);
    }
    let outcome = match cli.command.unwrap_or(Command::Serve) {
        Command::Serve => serve(config).await.map_err(|error| error.to_string()),
        Command::Migrate => migrate(&config).await.map_err(|error| error.to_string()),
        Command::Fill(fill) => fill::run(config, &fill, std::io::stdout()).await.map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn migrate(config: &Config) -> Result<(), Error> {
    let applied = db::migrate(&config.database_url).await?;
    tracing::info!(?applied, "the database is up to date");
    Ok(())
}

async fn serve(config: Config) -> Result<(), Error> {
    let internal = |error: std::io::Error| Error::Internal(error.to_string());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
    let mut server = tokio::select! {
        server = start_patiently(config) => server?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    tracing::info!("serving on http://{}, management on http://{}", server.addr, server.management_addr);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = server.ended() => return Err(Error::Internal("the web server ended by itself".to_owned())),
    }
    tracing::info!("stopping: finishing what was accepted, settling what was sold");
    server.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Databases and servers are often started together: one that is not there yet is waited for.
async fn start_patiently(config: Config) -> Result<app::Server, Error> {
    loop {
        let error = match app::start(config.clone(), Loops::Running).await {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        match &error {
            Error::DatabasePool(_) | Error::Database(_) => tracing::warn!(
                "PostgreSQL at {} is not there yet, trying again: {error}",
                telemetry::without_password(&config.database_url)
            ),
            Error::Redis(_) | Error::RedisPool(_) => tracing::warn!(
                "Redis at {} is not there yet, trying again: {error}",
                telemetry::without_password(&config.redis_url)
            ),
            Error::Unready => tracing::warn!("an event is not ready in Redis yet, trying again"),
            _ => return Err(error),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
