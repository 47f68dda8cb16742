//! Reads the configuration, starts, waits for a signal, and says by its exit code how that went: 0 in good order, 1 a
//! fault, 2 a mistake in the configuration.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use zticket::app::{self, Loops};
use zticket::config::Config;
use zticket::error::Error;
use zticket::fill::{self, Fill};
use zticket::house::{self, ConcertPlan};
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
    /// Set up a few example concerts, unless there are concerts
    Seed,
    /// Set up a concert described in JSON: title, booking window, dates, layout
    AddConcert {
        /// The file to read; not given: standard input
        file: Option<PathBuf>,
    },
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
        Command::Seed => seed(&config).await.map_err(|error| error.to_string()),
        Command::AddConcert { file } => add_concert(&config, file).await,
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

/// The database, up to date and with its default event.
async fn open(config: &Config) -> Result<db::Pool, Error> {
    db::migrate(&config.database_url).await?;
    let pool = db::pool(&config.database_url, 1)?;
    house::open(&pool, config.seat_count).await?;
    Ok(pool)
}

async fn seed(config: &Config) -> Result<(), Error> {
    match house::seed(&open(config).await?).await? {
        0 => tracing::info!("there are concerts already: nothing was set up"),
        made => tracing::info!("{made} example concerts were set up"),
    }
    Ok(())
}

async fn add_concert(config: &Config, file: Option<PathBuf>) -> Result<(), String> {
    let text = match &file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?,
        None => std::io::read_to_string(std::io::stdin()).map_err(|error| format!("standard input: {error}"))?,
    };
    let plan: ConcertPlan = serde_json::from_str(&text).map_err(|error| format!("the description: {error}"))?;
    let add = async { house::add(&open(config).await?, &plan).await };
    let concert = add.await.map_err(|error: Error| error.to_string())?;
    println!("{concert}");
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
