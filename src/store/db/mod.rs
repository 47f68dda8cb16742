//! PostgreSQL: connections, migrations, locks, and queries by subject. Rules and transactions live in the stage that owns
//! them; long statements are files in `sql/`.

pub mod audit_log;
pub mod changes;
pub mod concerts;
pub mod controls;
pub mod credentials;
pub mod events;
pub mod figures;
pub mod impatient;
pub mod locks;
pub mod migrate;
pub mod operators;
pub mod outbox;
pub mod outcomes;
pub mod people;
pub mod pool;
pub mod rankings;
pub mod refusals;
#[rustfmt::skip]
pub mod schema;
pub mod sell;
pub mod signing_keys;
pub mod statement;
pub mod tickets;
