//! A running server: configuration, logs, how the parts are put together, loops, start and stop. Nobody knows this layer.

pub mod commands;
pub mod config;
pub mod fill;
pub mod loops;
pub mod parts;
pub mod repair;
pub mod run;
pub mod telemetry;
pub mod traces;
