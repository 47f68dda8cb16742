//! What tests stand on: the real server in this process, and a check at the end that nothing was lost or made up.

pub mod app;
pub mod people;

pub use app::{TestApp, Visitor};
pub use people::plan;

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

/// Whatever happened, sales and money add up.
pub async fn check_promises(db: &Database) {
    assert_eq!(db.broken_promises().await.unwrap(), Vec::<&str>::new(), "broken promises");
}
