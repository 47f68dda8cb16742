//! ZTicket sells seats first come, first served, to crowds of millions.
//!
//! Three sentences carry it: every write to Redis is one Lua script; every read is answered from a snapshot in memory;
//! PostgreSQL is the truth about what was sold. `docs/ARCHITECTURE.md` walks through it.
//!
//! The layers, bottom to top. Each uses only those above it in this list:

/// Words and rules without I/O: numbers, tokens, seats, halls, the error table, metrics.
pub mod base;
/// What a server knows about each event: facts, and its latest snapshot.
pub mod event;
/// What is offered, and to whom: concerts, people, rankings.
pub mod house;
/// A visitor's way, a file a stage: line, admission, seats, tickets, settling.
pub mod sale;
/// Configuration, start, loops, stop, commands.
pub mod server;
/// The two stores: PostgreSQL and Redis, and every query, script and read.
pub mod store;
/// HTTP: the API, the pages, push streams, limits.
pub mod web;
