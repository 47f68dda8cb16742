//! The scripts, one by one, on a Redis of their own and without a server.

mod admit;
mod block;
mod bodies;
mod enter;
mod fixture;
mod headers;
mod hold;
mod leave;
mod memory;
mod model;
mod orders;
mod policy;
mod pulse;
mod ranking;
mod restore;
mod seats;
mod settle;
mod shared;
mod sweep;
mod unready;
mod walk;
