//! ZTicket sells seats first come, first served, to crowds of millions.
//!
//! Three sentences carry it: every write to Redis is one Lua script; everything about a line or a seat map is answered from
//! a snapshot in memory; PostgreSQL is the truth about what was sold. `docs/ARCHITECTURE.md` walks through it.
//!
//! The layers stand here bottom to top, and each uses only those before it; `tests/it/layers.rs` checks that. (The empty
//! lines keep rustfmt from sorting them.)

/// Words and rules without I/O: numbers, tokens, seats, halls, the error table, metrics.
pub mod base;

/// The two stores: PostgreSQL and Redis, and every query, script and read.
pub mod store;

/// What a server knows about each event: facts, and its latest snapshot.
pub mod event;

/// A visitor's way, a file a stage: line, admission, seats, tickets, settling.
pub mod sale;

/// What is offered, to whom, and by whom: concerts, people, rankings, operators.
pub mod house;

/// HTTP: the API, the pages, push streams, limits.
pub mod web;

/// The locking lab: other ways to sell and to wait, for comparison. Only its command uses it.
pub mod lab;

/// Configuration, start, loops, stop, commands.
pub mod server;
