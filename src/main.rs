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

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match Config::from_env() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("zticket: {error}");
            return ExitCode::from(2);
        }
    };
    let traces = match telemetry::start(&config) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("zticket: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("no threads to run on: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(cli.command.unwrap_or(Command::Serve).run(config));
    if let Err(error) = &outcome {
        tracing::error!("{error}");
    }
    if let Some(traces) = traces {
        traces.finish();
    }
    // Without taking the runtime apart: work that still waits for a store that is away would panic in it.
    std::process::exit(i32::from(outcome.is_err()))
}
