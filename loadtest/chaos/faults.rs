//! What goes wrong, and when: all of it follows from the seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use zticket_testkit::{Outcome, Refusal};

use crate::stage::QUEUE_TTL;
use crate::world::{Done, Rule, Target, World, lock};

macro_rules! kinds {
    ($( $kind:ident $name:literal, )*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
        pub enum Kind { $( $kind, )* }

        impl Kind {
            pub const ALL: &[Self] = &[$( Self::$kind, )*];

            pub fn name(self) -> &'static str {
                match self { $( Self::$kind => $name, )* }
            }
        }
    };
}

kinds! {
    KillServer "server killed (SIGKILL)",
    FreezeServer "server frozen past every deadline (SIGSTOP)",
    RestartServer "server restarted cleanly (SIGTERM)",
    KillRedis "Redis killed, back with its file",
    WipeRedis "Redis killed, back with nothing",
    FreezeRedis "Redis frozen",
    CutRedis "connections to Redis cut",
    StallRedis "connections to Redis stalled",
    FillRedis "Redis full",
    LockRedis "Redis read-only",
    IsolateRedis "Redis without its replicas",
    SpoilRedis "Redis unable to save",
    PromoteReplica "lagging replica of Redis promoted",
    StepClock "clock of Redis stepped",
    FreezeRepair "Redis wiped, and a server frozen while it repairs",
    CrashPostgres "PostgreSQL crashed",
    CutPostgres "connections to PostgreSQL cut",
    StallPostgres "connections to PostgreSQL stalled",
    SlowDisk "PostgreSQL slow to commit",
    LoseAllMemory "all servers and Redis killed, nothing left but PostgreSQL",
    RestoreBackup "database restored from a backup",
}

/// Whether a fault of this name may cost a block of places: Redis begins a new life, or loses everything.
pub fn loses(name: &str) -> bool {
    use Kind::{FreezeRepair, KillRedis, LockRedis, LoseAllMemory, PromoteReplica, RestoreBackup, WipeRedis};
    let losing = [KillRedis, WipeRedis, LockRedis, PromoteReplica, FreezeRepair, LoseAllMemory, RestoreBackup];
    losing.iter().any(|kind| kind.name() == name)
}

/// Breaks one thing after another until the time is over, then waits until everything is repaired. One server and one
/// service are broken at a time, and once in a run the database is replaced by a backup.
pub async fn run(world: Arc<World>, seed: u64, only: Vec<Kind>, until: Instant) -> Outcome<()> {
    let mut kinds = if only.is_empty() { Kind::ALL.to_vec() } else { only };
    if !world.stage.has_clock() && kinds.contains(&Kind::StepClock) {
        eprintln!("chaos: clocks are not stepped: libfaketime is missing (Debian: apt-get install faketime)");
        kinds.retain(|kind| *kind != Kind::StepClock);
    }
    // It sends everyone away, so a short run has it only if it is asked for.
    let long = until.saturating_duration_since(Instant::now()) >= Duration::from_secs(60);
    let backup = kinds.contains(&Kind::RestoreBackup) && (long || kinds.len() == 1);
    kinds.retain(|kind| *kind != Kind::RestoreBackup);
    let of_servers = |kind: &Kind| matches!(kind, Kind::KillServer | Kind::FreezeServer | Kind::RestartServer);
    let (servers, services): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(of_servers);
    tokio::try_join!(one_by_one(&world, seed, servers, until), one_by_one(&world, !seed, services, until), async {
        if backup { back_up_and_restore(&world, until).await } else { Ok(()) }
    },)?;
    Ok(())
}

/// Makes a backup a third into the run, and goes back to it a little later. Sales in between are lost, and so is everyone's
/// token; from then on everything must hold as before.
async fn back_up_and_restore(world: &Arc<World>, until: Instant) -> Outcome<()> {
    let time = until.saturating_duration_since(Instant::now());
    tokio::time::sleep(time / 3).await;
    let backup = {
        let _alone = world.calm.write().await;
        world.stage.back_up().await?
    };
    tokio::time::sleep((time / 10).min(Duration::from_secs(20))).await;
    let _alone = world.calm.write().await;
    let name = Kind::RestoreBackup.name();
    world.say(name);
    let (began, faults) = (Instant::now(), hurt(world, everything(world)));
    for at in 0..world.stage.server_count() {
        world.stage.kill_server(at).await;
    }
    world.void_all();
    world.stage.restore(backup).await?;
    faults.into_iter().for_each(|fault| world.healed(fault));
    lock(&world.faults_done).push(Done { name, began, ended: Instant::now() });
    world.say(&format!("over: {name}"));
    Ok(())
}

fn everything(world: &World) -> Vec<Target> {
    (0..world.stage.server_count()).map(Target::Server).chain([Target::Redis, Target::Postgres]).collect()
}

fn hurt(world: &World, targets: Vec<Target>) -> Vec<usize> {
    targets.into_iter().map(|target| world.hurt(target)).collect()
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
        let needed = match kind {
            Kind::FreezeServer => QUEUE_TTL + Duration::from_secs(3),
            Kind::FreezeRepair | Kind::SlowDisk => Duration::from_secs(8),
            _ => Duration::from_secs(3),
        };
        if Instant::now() + needed > until {
            if Instant::now() + Duration::from_secs(3) > until {
                return Ok(());
            }
            continue;
        }
        let _shared = world.calm.read().await;
        world.say(kind.name());
        let began = Instant::now();
        strike(world, kind, &mut rng).await?;
        lock(&world.faults_done).push(Done { name: kind.name(), began, ended: Instant::now() });
    }
}

async fn strike(world: &Arc<World>, kind: Kind, rng: &mut fastrand::Rng) -> Outcome<()> {
    let stage = &world.stage;
    let at = rng.usize(..stage.server_count());
    let a_while = Duration::from_millis(rng.u64(200..3000));
    let of_one_server =
        matches!(kind, Kind::KillServer | Kind::FreezeServer | Kind::RestartServer | Kind::FreezeRepair);
    let _turn = if of_one_server { Some(stage.turn(at).await) } else { None };
    let targets = match kind {
        Kind::KillServer | Kind::FreezeServer | Kind::RestartServer => vec![Target::Server(at)],
        Kind::CrashPostgres | Kind::CutPostgres | Kind::StallPostgres | Kind::SlowDisk => vec![Target::Postgres],
        Kind::FreezeRepair => vec![Target::Server(at), Target::Redis],
        Kind::LoseAllMemory => (0..stage.server_count()).map(Target::Server).chain([Target::Redis]).collect(),
        _ => vec![Target::Redis],
    };
    let faults = hurt(world, targets);
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
        Kind::FillRedis => stage.refuse_writes(Refusal::Full, a_while).await?,
        Kind::LockRedis => stage.refuse_writes(Refusal::ReadOnly, a_while).await?,
        Kind::IsolateRedis => stage.refuse_writes(Refusal::NoReplicas, a_while).await?,
        Kind::SpoilRedis => stage.refuse_writes(Refusal::CannotSave, a_while).await?,
        Kind::PromoteReplica => stage.promote_replica(a_while).await?,
        Kind::StepClock => {
            let seconds = rng.choice([-40, -3, 3, 40]).unwrap_or(3);
            // A step forward ends passes at once, also of people who were let in since the last look.
            world.blind_until(Instant::now() + a_while);
            stage.step_clock(seconds, a_while).await?;
            world.blind_until(Instant::now());
        }
        Kind::FreezeRepair => {
            stage.kill_redis(Duration::ZERO, true).await?;
            tokio::time::sleep(Duration::from_millis(rng.u64(..200))).await;
            stage.freeze_server(at, true).await?;
            tokio::time::sleep(Duration::from_secs(6)).await;
            stage.freeze_server(at, false).await?;
        }
        Kind::SlowDisk => stage.slow_commits(a_while * 2).await?,
        // At a time of its own.
        Kind::RestoreBackup => {}
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
