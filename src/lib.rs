//! ZTicket sells seats first come, first served, to crowds of millions. The modules stand in the order a ticket flows.
//!
//! Three sentences carry the house: every write to Redis is one Lua script; every read is answered from a snapshot in
//! memory; PostgreSQL is the truth about what was sold. `docs/ARCHITECTURE.md` walks through it.

// How a server comes to be.
pub mod app;
pub mod config;
pub mod policy;
pub mod telemetry;

// The words everything speaks in.
pub mod bitmap;
pub mod error;
pub mod events;
pub mod hall;
pub mod ids;
pub mod page;
pub mod seal;
pub mod token;

// What is offered, and to whom.
pub mod concerts;
pub mod house;
pub mod people;
pub mod rankings;

// A visitor's way: 1 line, 2 admission, 3 seats, 4 tickets, 5 sync.
pub mod http;
pub mod limits;
pub mod line;
pub mod pages;
pub mod push;

pub mod admission;
pub mod seats;
pub mod tickets;

pub mod restore;
pub mod sync;

// What the stages stand on.
pub mod db;
pub mod metrics;
pub mod redis;
pub mod snapshot;
pub mod workers;

// For developers.
pub mod fill;
