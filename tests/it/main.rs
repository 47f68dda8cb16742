//! One test binary. Every test has a server of its own: the real one, on port 0, with its own database and its own
//! Redis. Names are sentences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod access;
mod admin;
mod backup;
mod blocks;
mod browser;
mod cluster;
mod concerts;
mod console;
mod deploy;
mod estimate;
mod failures;
mod fairness;
mod flow;
mod http;
mod lab;
mod large;
mod layers;
mod lua;
mod many_events;
mod migrations;
mod money;
mod monitoring;
mod nginx;
mod order_crowd;
mod orders;
mod outage;
mod outbox;
mod own_writes;
mod process;
mod push;
mod race;
mod rankings;
mod refused;
mod rolling;
mod snapshots;
mod stall;
mod support;
mod versions;
