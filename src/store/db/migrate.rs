//! Bringing the database up to date.

use std::time::Duration;

use diesel_async::AsyncMigrationHarness;
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

use crate::base::error::Error;
use crate::store::db::impatient::{self, Silence};
use crate::store::db::locks::try_lock;
use crate::store::db::pool::{CONNECT, connect};

pub const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

/// A migration may have to rewrite a large table.
const LONGEST_MIGRATION: Duration = Duration::from_secs(3600);
/// Servers that start together take turns with this lock while they migrate.
const MIGRATION_LOCK: i64 = 0x007a_7469_636b;

/// Applies what is missing, and returns the names. Servers that start together take turns.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    // The lock goes with this connection.
    let mut conn = connect(url, Silence::default()).await?;
    while !try_lock(&mut conn, MIGRATION_LOCK).await? {
        tracing::info!("waiting for another server that migrates the database");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let mut looking = AsyncMigrationHarness::new(conn);
    let pending = looking.has_pending_migration(MIGRATIONS);
    if !pending.map_err(|error| Error::DatabaseAway(error.to_string()))? {
        return Ok(Vec::new());
    }
    let migrating = impatient::connect(url, CONNECT, LONGEST_MIGRATION, Silence::default()).await?;
    let mut harness = AsyncMigrationHarness::new(migrating);
    let applied = harness.run_pending_migrations(MIGRATIONS).map_err(Error::internal)?;
    Ok(applied.iter().map(ToString::to_string).collect())
}
