//! A developer's command: a line of millions in seconds, to measure a server or to look at it under load. It goes
//! through the same scripts as visitors do.

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::Error;
use crate::base::ids::{EventId, Place};
use crate::event::Event;
use crate::server::config::Config;
use crate::server::parts::{self, Parts};
use crate::store::redis::reads;
use crate::store::redis::scripts::{Admit, Enter};

/// Most that enter by one script call: large enough to be fast, small enough not to block Redis for long.
const TOGETHER: u32 = 1 << 18;

#[derive(Debug, clap::Args)]
pub struct Fill {
    /// How many join the line
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub waiting: u32,
    /// The event whose line to fill [default: the default event]
    #[arg(long, value_name = "EVENT")]
    pub event: Option<EventId>,
    /// How many of their tokens to print, spread evenly over the places taken, one a line
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub tokens: u32,
    /// Let all of them in, as far as the live settings allow
    #[arg(long)]
    pub admit: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the tokens could not be written: {0}")]
    Output(#[from] std::io::Error),
    #[error("{entered} of {asked} are in the line: {why}")]
    Entering { entered: u32, asked: u32, why: &'static str },
    #[error("{waiting} still wait: {why}")]
    Admitting { waiting: u64, why: &'static str },
}

pub async fn run(config: &Config, fill: &Fill, out: impl Write) -> Result<(), Failure> {
    let (parts, _to_settle) = parts::build(config).await?;
    let event = match fill.event {
        Some(id) => parts.catalogue.get(id).await?,
        None => parts.catalogue.default()?,
    };
    parts.restorer.ready(&event).await?;
    let taken = enter(&parts, &event, fill.waiting).await?;
    if fill.admit {
        admit(&parts, &event, taken.last().map_or(0, |places| places.end.into())).await?;
    }
    let mut out = BufWriter::new(out);
    for place in spread(&taken, fill.tokens) {
        writeln!(out, "{}", event.sign(Place(place)).uuid())?;
    }
    out.flush()?;
    tracing::info!(event = %event.id, entered = fill.waiting, inside = fill.admit, "filled");
    Ok(())
}

/// The places that were taken.
async fn enter(parts: &Parts, event: &Arc<Event>, asked: u32) -> Result<Vec<Range<u32>>, Failure> {
    let mut taken: Vec<Range<u32>> = Vec::new();
    let mut entered = 0;
    let refused = |entered, why| Failure::Entering { entered, asked, why };
    while entered < asked {
        let mut conn = parts.stores.redis.get().await?;
        // No more than the block has room for: a larger call would be refused as a whole.
        let room = reads::block(&mut conn, &event.keys).await?.map_or(0, |(block, _)| block.end - block.next);
        let count = i64::from(asked - entered).min(room.clamp(1, i64::from(TOGETHER)));
        let reply = parts.stores.scripts.enter(&mut conn, &event.keys, count as usize).await;
        // The repair may need the connection.
        drop(conn);
        let usable = match reply.as_ref().ok().and_then(|reply| reply.block) {
            Some(block) => parts.restorer.blocks.may_use(event.id, block).await?,
            None => true,
        };
        match reply.map(|reply| reply.outcome) {
            Ok(Enter::Entered { first, count, .. }) if usable => {
                taken.push(first.0..first.0.saturating_add(count));
                entered += count;
            }
            Ok(Enter::Entered { .. } | Enter::NeedBlock | Enter::Stale) | Err(Error::Unready) => {
                parts.restorer.ready(event).await?
            }
            Ok(Enter::Full) => return Err(refused(entered, "no more may wait (ZTICKET_QUEUE_MAX_SIZE)")),
            Ok(Enter::Closed) => return Err(refused(entered, "the sale is closed")),
            Ok(Enter::SoldOut) => return Err(refused(entered, "everything is sold")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(taken)
}

/// Lets people in until nobody waits before place `end`.
async fn admit(parts: &Parts, event: &Arc<Event>, end: u64) -> Result<(), Failure> {
    loop {
        let mut conn = parts.stores.redis.get().await?;
        let outcome = parts.stores.scripts.admit(&mut conn, &event.keys).await;
        let (waiting, head) = reads::line_head(&mut conn, &event.keys).await?;
        if waiting == 0 || head >= end {
            return Ok(());
        }
        let refused = |why| Failure::Admitting { waiting, why };
        match outcome {
            Ok(Admit::Admitted(0)) => {
                return Err(refused("as many are inside as there may be (ZTICKET_ADMISSION_MAX_ACTIVE_USERS, seats)"));
            }
            Ok(Admit::Admitted(_)) => {}
            Ok(Admit::Skipped(wait_ms)) => tokio::time::sleep(Duration::from_millis(wait_ms)).await,
            Ok(Admit::Paused) => return Err(refused("an operator paused or closed the event")),
            Ok(Admit::Stale) | Err(Error::Unready) => parts.restorer.ready(event).await?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// `count` of the places, at most all of them, at even distances.
fn spread(taken: &[Range<u32>], count: u32) -> impl Iterator<Item = u32> {
    let total: u64 = taken.iter().map(|places| u64::from(places.end - places.start)).sum();
    let count = u64::from(count).min(total);
    let mut parts = taken.iter().cloned();
    let mut part = parts.next().unwrap_or_default();
    let mut passed = 0;
    (0..count).filter_map(move |sample| {
        let at = sample * total / count;
        while at - passed >= u64::from(part.end - part.start) {
            passed += u64::from(part.end - part.start);
            part = parts.next()?;
        }
        u32::try_from(at - passed).ok().map(|offset| part.start + offset)
    })
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "one run of places is a list of one")]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_all_places_taken() {
        let sample = |taken: &[Range<u32>], count| spread(taken, count).collect::<Vec<_>>();
        assert_eq!(sample(&[0..10], 5), [0, 2, 4, 6, 8]);
        assert_eq!(sample(&[5..8, 20..23], 3), [5, 7, 21]);
        assert_eq!(sample(&[5..8, 20..23], 100), [5, 6, 7, 20, 21, 22]);
        assert_eq!(sample(&[5..6], 1), [5]);
        assert!(sample(&[5..8], 0).is_empty());
        assert!(sample(&[], 3).is_empty());
    }
}
