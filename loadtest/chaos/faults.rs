//! What goes wrong, and when: all of it follows from the seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zticket_testkit::Outcome;

use crate::stage::QUEUE_TTL;
use crate::world::{Rule, Target, World, lock};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    KillServer,
    FreezeServer,
    RestartServer,
    KillRedis,
    WipeRedis,
    FreezeRedis,
    CutRedis,
    StallRedis,
    CrashPostgres,
    CutPostgres,
    StallPostgres,
    LoseAllMemory,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::KillServer,
        Self::FreezeServer,
        Self::RestartServer,
        Self::KillRedis,
        Self::WipeRedis,
        Self::FreezeRedis,
        Self::CutRedis,
        Self::StallRedis,
        Self::CrashPostgres,
        Self::CutPostgres,
        Self::StallPostgres,
        Self::LoseAllMemory,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::KillServer => "server killed (SIGKILL)",
            Self::FreezeServer => "server frozen past every deadline (SIGSTOP)",
            Self::RestartServer => "server restarted cleanly (SIGTERM)",
            Self::KillRedis => "Redis killed, back with its file",
            Self::WipeRedis => "Redis killed, back with nothing",
            Self::FreezeRedis => "Redis frozen",
            Self::CutRedis => "connections to Redis cut",
            Self::StallRedis => "connections to Redis stalled",
            Self::CrashPostgres => "PostgreSQL crashed",
            Self::CutPostgres => "connections to PostgreSQL cut",
            Self::StallPostgres => "connections to PostgreSQL stalled",
            Self::LoseAllMemory => "all servers and Redis killed, nothing left but PostgreSQL",
        }
    }
}

/// Breaks one thing after another until the time is over, then waits until everything is repaired. One server and one
/// service are broken at a time.
pub async fn run(world: Arc<World>, seed: u64, only: Vec<Kind>, until: Instant) -> Outcome<()> {
    let kinds = if only.is_empty() { Kind::ALL.to_vec() } else { only };
    let of_servers = |kind: &Kind| matches!(kind, Kind::KillServer | Kind::FreezeServer | Kind::RestartServer);
    let (servers, services): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(of_servers);
    tokio::try_join!(one_by_one(&world, seed, servers, until), one_by_one(&world, !seed, services, until))?;
    Ok(())
}

async fn one_by_one(world: &Arc<World>, seed: u64, kinds: Vec<Kind>, until: Instant) -> Outcome<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    if kinds.is_empty() {
        return Ok(());
    }
    // Every kind once, shuffled, before any comes again, so that a short run meets most of them.
    let mut deck: Vec<Kind> = Vec::new();
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(500..3000))).await;
        if deck.is_empty() {
            deck = kinds.clone();
            rng.shuffle(&mut deck);
        }
        let Some(kind) = deck.pop() else { continue };
        // A long fault does not start when little time is left.
        let needed =
            if kind == Kind::FreezeServer { QUEUE_TTL + Duration::from_secs(3) } else { Duration::from_secs(3) };
        if Instant::now() + needed > until {
            if Instant::now() > until || kind != Kind::FreezeServer {
                return Ok(());
            }
            continue;
        }
        world.say(kind.name());
        *lock(&world.faults_done).entry(kind.name()).or_default() += 1;
        strike(world, kind, &mut rng).await?;
    }
}

async fn strike(world: &Arc<World>, kind: Kind, rng: &mut fastrand::Rng) -> Outcome<()> {
    let stage = &world.stage;
    let at = rng.usize(..stage.server_count());
    let a_while = Duration::from_millis(rng.u64(200..3000));
    let targets = match kind {
        Kind::KillServer | Kind::FreezeServer | Kind::RestartServer => vec![Target::Server(at)],
        Kind::CrashPostgres | Kind::CutPostgres | Kind::StallPostgres => vec![Target::Postgres],
        Kind::LoseAllMemory => (0..stage.server_count()).map(Target::Server).chain([Target::Redis]).collect(),
        _ => vec![Target::Redis],
    };
    let faults: Vec<usize> = targets.into_iter().map(|target| world.hurt(target)).collect();
    match kind {
        Kind::KillServer => {
            stage.kill_server(at).await;
            tokio::time::sleep(a_while).await;
            stage.start_server(at).await?;
        }
        Kind::FreezeServer => {
            stage.freeze_server(at, true).await?;
            tokio::time::sleep(QUEUE_TTL + Duration::from_secs(1)).await;
            stage.freeze_server(at, false).await?;
        }
        Kind::RestartServer => {
            if let Err(error) = stage.stop_server(at).await {
                world.violated(Rule::NoOtherFault, error.to_string());
            }
            stage.start_server(at).await?;
        }
        Kind::KillRedis => stage.kill_redis(a_while, false).await?,
        Kind::WipeRedis => stage.kill_redis(a_while, true).await?,
        Kind::FreezeRedis => stage.freeze_redis(a_while).await?,
        Kind::CutRedis => stage.redis_wire.cut(),
        Kind::CutPostgres => stage.postgres_wire.cut(),
        Kind::StallRedis | Kind::StallPostgres => {
            let wire = if kind == Kind::StallRedis { &stage.redis_wire } else { &stage.postgres_wire };
            wire.stall();
            tokio::time::sleep(a_while).await;
            wire.resume();
        }
        Kind::CrashPostgres => stage.crash_postgres().await?,
        Kind::LoseAllMemory => {
            let mut killed = Vec::new();
            for at in 0..stage.server_count() {
                if stage.kill_server(at).await {
                    killed.push(at);
                }
            }
            stage.kill_redis(Duration::ZERO, true).await?;
            for at in killed {
                stage.start_server(at).await?;
            }
        }
    }
    faults.into_iter().for_each(|fault| world.healed(fault));
    world.say(&format!("over: {}", kind.name()));
    Ok(())
}
