//! What `zticket` does: serve, migrate, set up concerts, audit and repair, run the lab, fill a line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};

use crate::base::error::Error;
use crate::house::operators::{self, Role};
use crate::house::setup::{self, ConcertPlan};
use crate::lab::command::{self as lab, Lab};
use crate::server::config::Config;
use crate::server::fill::{self, Fill};
use crate::server::repair::{self, Audit};
use crate::server::run::{self, Background, Server};
use crate::server::telemetry;
use crate::store::db::migrate;
use crate::store::db::pool::{self, Pool};

#[derive(Subcommand)]
pub enum Command {
    /// Migrate the database and serve (the default)
    Serve,
    /// Bring the database up to date and exit
    Migrate,
    /// Set up a few example concerts, unless there are concerts
    Seed,
    /// Set up a concert described in JSON: title, booking window, dates, layout
    AddConcert {
        /// The file to read [default: standard input]
        file: Option<PathBuf>,
    },
    /// Compare Redis with the database, seat by seat, and send Redis again what it does not know
    Audit(Audit),
    /// Make a database that was restored from a backup safe to sell from; stop all servers first
    AfterRestore,
    /// Add, list or remove the operators of the console and the admin API
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// For the curious: run the known ways to sell one seat to one of many, and compare
    Lab(Lab),
    /// For developers: fill a line fast, print tokens from it, and exit
    Fill(Fill),
}

#[derive(Subcommand)]
pub enum OperatorCommand {
    /// Add an operator and print the key, which is not kept and not shown again
    Add {
        /// What the audit log calls them
        name: String,
        #[arg(long, value_enum)]
        role: Role,
    },
    /// List the operators
    List,
    /// Remove an operator: servers refuse the key within two seconds
    Remove { name: String },
}

impl Command {
    /// Runs it to its end. The error is a line for the log.
    pub async fn run(self, config: Config) -> Result<(), String> {
        match self {
            Self::Serve => serve(config).await.map_err(|error| error.to_string()),
            Self::Migrate => migrate(&config).await.map_err(|error| error.to_string()),
            Self::Seed => seed(&config).await.map_err(|error| error.to_string()),
            Self::AddConcert { file } => add_concert(&config, file).await,
            Self::Audit(audit) => {
                repair::audit(&config, &audit, std::io::stdout()).await.map_err(|error| error.to_string())
            }
            Self::AfterRestore => {
                repair::after_restore(&config, std::io::stdout()).await.map_err(|error| error.to_string())
            }
            Self::Operator(command) => operator(&config, command).await.map_err(|error| error.to_string()),
            Self::Lab(lab) => {
                let (database, connections, redis) = (&config.database_url, config.db_connections, &config.redis_url);
                lab::run(&lab, database, connections, redis, std::io::stdout()).await.map_err(|error| error.to_string())
            }
            Self::Fill(fill) => fill::run(&config, &fill, std::io::stdout()).await.map_err(|error| error.to_string()),
        }
    }
}

async fn migrate(config: &Config) -> Result<(), Error> {
    let applied = migrate::migrate(&config.database_url).await?;
    tracing::info!(?applied, "the database is up to date");
    Ok(())
}

/// The database, up to date and with its default event if that is wanted.
async fn database(config: &Config) -> Result<Pool, Error> {
    migrate::migrate(&config.database_url).await?;
    let pool = pool::pool(&config.database_url, 1)?;
    if config.makes_default_event() {
        setup::ensure_default_event(&pool, config.seat_count).await?;
    }
    Ok(pool)
}

async fn seed(config: &Config) -> Result<(), Error> {
    match setup::seed(&database(config).await?).await? {
        0 => tracing::info!("there are concerts already: nothing to set up"),
        made => tracing::info!("set up {made} example concerts"),
    }
    Ok(())
}

async fn operator(config: &Config, command: OperatorCommand) -> Result<(), Error> {
    migrate::migrate(&config.database_url).await?;
    let pool = pool::pool(&config.database_url, 1)?;
    match command {
        OperatorCommand::Add { name, role } => println!("{}", operators::add(&pool, &name, role).await?),
        OperatorCommand::List => {
            for (name, role, since) in operators::list(&pool).await? {
                println!("{role:<9} {name} (since {})", since.format("%Y-%m-%d %H:%M UTC"));
            }
        }
        OperatorCommand::Remove { name } => operators::remove(&pool, &name).await?,
    }
    Ok(())
}

async fn add_concert(config: &Config, file: Option<PathBuf>) -> Result<(), String> {
    let text = match &file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?,
        None => std::io::read_to_string(std::io::stdin()).map_err(|error| format!("standard input: {error}"))?,
    };
    let plan: ConcertPlan = serde_json::from_str(&text).map_err(|error| format!("the description: {error}"))?;
    let add = async { setup::add(&database(config).await?, &plan).await };
    let concert = add.await.map_err(|error: Error| error.to_string())?;
    println!("{concert}");
    Ok(())
}

async fn serve(config: Config) -> Result<(), Error> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::internal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::internal)?;
    let mut server = tokio::select! {
        server = start_patiently(config) => server?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    tracing::info!("serving on http://{}, management on http://{}", server.addr, server.management_addr);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        () = server.ended() => return Err(Error::internal("the web server ended by itself")),
    }
    tracing::info!("stopping: finishing what was accepted, settling what was sold");
    server.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Databases and servers are often started together: waits for one that is not there yet.
async fn start_patiently(config: Config) -> Result<Server, Error> {
    loop {
        let error = match run::start(&config, Background::Running).await {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        match &error {
            Error::DatabaseAway(_) | Error::Database(_) => tracing::warn!(
                "PostgreSQL at {} is not there yet, trying again: {error}",
                telemetry::without_password(&config.database_url)
            ),
            Error::Redis(_) => tracing::warn!(
                "Redis at {} is not there yet, trying again: {error}",
                telemetry::without_password(&config.redis_url)
            ),
            Error::Broker(_) => tracing::warn!("Kafka is not there yet, trying again: {error}"),
            Error::Unready => tracing::warn!("an event is not ready in Redis yet, trying again"),
            _ => return Err(error),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
