//! Reads the configuration and runs a command. The exit code says how that went: 0 fine, 1 a fault, 2 a mistake in the
//! configuration.

use std::process::ExitCode;

use clap::Parser;
use zticket::server::commands::Command;
use zticket::server::config::Config;
use zticket::server::telemetry;

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
    match cli.command.unwrap_or(Command::Serve).run(config).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
