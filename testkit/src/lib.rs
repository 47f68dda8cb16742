//! What the tests in `tests/` and the programs in `loadtest/` have in common: child processes, a Redis, a database, a
//! network that fails, a browser. Everything that is started here ends when the value that stands for it is dropped.
//!
//! Functions return an [`Outcome`]. Tests unwrap it, programs pass it on: a panic would end them before they have ended
//! their children. Only [`eventually`] and the browser panic, because only tests use them.

pub mod browser;
pub mod cluster;
pub mod database;
pub mod kafka;
pub mod ports;
pub mod process;
pub mod promises;
pub mod proxy;
pub mod redis;
pub mod refusal;
pub mod server;
pub mod tab;
mod wait;

pub use browser::Browser;
pub use database::Database;
pub use kafka::Kafka;
pub use process::Process;
pub use proxy::Proxy;
pub use redis::Redis;
pub use refusal::Refusal;
pub use server::{Server, Zticket};
pub use tab::Tab;
pub use wait::{PATIENCE, eventually, within};

pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
