//! What tests stand on: the real server in this process, and a check at the end that nothing was lost or made up.

pub mod app;
pub mod contract;
pub mod people;
pub mod stream;

pub use app::{TestApp, Visitor};
pub use people::plan;
pub use stream::Stream;

use zticket::store::redis::keys::Keys;
use zticket::store::redis::reads;
use zticket::store::redis::scripts::{PolicySet, Scripts};
use zticket_testkit::database::unused_name;
use zticket_testkit::{Database, Redis};

/// A Redis of the kind the suite runs on: a single server, or with `ZT_REDIS=cluster`, which `make test-cluster` sets, a
/// cluster of three masters.
pub async fn start_redis() -> Redis {
    let cluster = std::env::var("ZT_REDIS").is_ok_and(|kind| kind == "cluster");
    if cluster { Redis::cluster(0).await.unwrap() } else { single_redis().await }
}

/// A single server, whatever the suite runs on.
pub async fn single_redis() -> Redis {
    Redis::single(Default::default()).await.unwrap()
}

/// A database with all tables.
pub async fn database() -> Database {
    Database::from_env().unwrap().create_migrated(&unused_name("t")).await.unwrap()
}

/// A database without any table.
pub async fn empty_database() -> Database {
    Database::from_env().unwrap().create(&unused_name("t")).await.unwrap()
}

/// Puts settings in force in Redis alone, as if an operator had decided on them just now.
pub async fn set_live(
    scripts: &Scripts,
    conn: &mut impl redis::aio::ConnectionLike,
    keys: &Keys,
    changes: &[(&str, &str)],
) -> PolicySet {
    let (version, seed) = reads::in_force(conn, keys).await.unwrap();
    let (version, seed) = (version.unwrap_or(0) + 1, seed.unwrap_or_default());
    scripts.policy_set(conn, keys, version, &seed, changes).await.unwrap()
}

/// Whatever happened, sales and money add up.
pub async fn check_promises(db: &Database) {
    assert_eq!(db.broken_promises().await.unwrap(), Vec::<&str>::new(), "broken promises");
}
