//! Commands for an operator after something went wrong with the stores: what Redis and the database disagree about, and
//! what to do after the database was restored from a backup.

use std::io::Write;
use std::sync::Arc;

use crate::base::error::Error;
use crate::base::ids::EventId;
use crate::event::Event;
use crate::sale::settle::Difference;
use crate::server::config::Config;
use crate::server::parts::{self, Parts};
use crate::store::db;
use crate::store::redis::reads;

#[derive(Debug, clap::Args)]
pub struct Audit {
    /// Only this event [default: all]
    #[arg(long, value_name = "EVENT")]
    pub event: Option<EventId>,
    /// Make Redis follow the database: a seat that only Redis calls sold can be sold again
    #[arg(long)]
    pub mend: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the output could not be written: {0}")]
    Output(#[from] std::io::Error),
    #[error("event {0} gave out places just now: stop all servers and run this again")]
    ServersRun(EventId),
    #[error("{0} seats differ; --mend makes Redis follow the database")]
    Differences(usize),
}

/// Tells what Redis and the database disagree about, and mends it if asked to.
pub async fn audit(config: &Config, audit: &Audit, out: impl Write) -> Result<(), Failure> {
    let (parts, _to_settle) = parts::build(config).await?;
    audit_parts(&parts, audit, out).await
}

pub async fn audit_parts(parts: &Parts, audit: &Audit, mut out: impl Write) -> Result<(), Failure> {
    let mut left = 0;
    for event in events(parts, audit.event).await? {
        if reads::block(&mut parts.stores.redis.get().await?, &event.keys).await?.is_none() {
            writeln!(out, "event {}: not in Redis; the next server rebuilds it from the database", event.id)?;
            continue;
        }
        let resent = parts.settler.audit(&event).await?;
        let differences = parts.settler.differences(&event).await?;
        writeln!(
            out,
            "event {}: {} seats; {resent} changes that Redis did not know were sent again, {} seats differ",
            event.id,
            event.seats.len(),
            differences.len()
        )?;
        describe(&event, &differences, &mut out)?;
        if audit.mend {
            let mended = parts.settler.mend(&event, &differences).await?;
            writeln!(out, "event {}: {mended} seats mended", event.id)?;
            left += differences.len() - mended;
        } else {
            left += differences.len();
        }
    }
    if left > 0 { Err(Failure::Differences(left)) } else { Ok(()) }
}

/// Makes a database that was restored from a backup safe to sell from: see `docs/OPERATIONS.md`.
pub async fn after_restore(config: &Config, out: impl Write) -> Result<(), Failure> {
    let (parts, _to_settle) = parts::build(config).await?;
    after_restore_parts(&parts, out).await
}

pub async fn after_restore_parts(parts: &Parts, mut out: impl Write) -> Result<(), Failure> {
    for event in events(parts, None).await? {
        let mut redis = parts.stores.redis.get().await?;
        let known_end = reads::block_end(&mut redis, &event.keys).await?.unwrap_or(0);
        // What Redis called sold and the backup does not know: these buyers have to be told.
        describe(&event, &parts.settler.differences(&event).await?, &mut out)?;
        let from = db::events::begin_anew(&mut parts.stores.db.get().await?, event.id, known_end).await?;
        if !parts.stores.scripts.forget(&mut redis, &event.keys, from).await? {
            return Err(Failure::ServersRun(event.id));
        }
        writeln!(out, "event {}: earlier queue tokens are void, places continue at {from}", event.id)?;
    }
    writeln!(out, "Done. Start the servers: they rebuild Redis from the database.")?;
    Ok(())
}

/// In order of their numbers.
async fn events(parts: &Parts, only: Option<EventId>) -> Result<Vec<Arc<Event>>, Error> {
    let mut events = match only {
        Some(id) => vec![parts.catalogue.get(id).await?],
        None => parts.catalogue.all(),
    };
    events.sort_by_key(|event| event.id);
    Ok(events)
}

fn describe(event: &Event, differences: &[Difference], out: &mut impl Write) -> std::io::Result<()> {
    for Difference { in_redis, in_database } in differences {
        let label = event.seat(in_redis.seat).map_or("?", |seat| seat.label.as_str());
        writeln!(
            out,
            "event {} seat {label}: Redis has it as {} to place {} (version {}), the database as {} (version {})",
            event.id,
            in_redis.state.word(),
            in_redis.place,
            in_redis.version,
            in_database.state.word(),
            in_database.version
        )?;
    }
    Ok(())
}
