//! What is offered, to whom, and by whom: concerts, people and their money, rankings, operators, and
//! what others are told about it. Knows the sale and everything below.

pub mod concerts;
pub mod credentials;
pub mod desk;
#[cfg(feature = "kafka")]
pub mod facts;
pub mod history;
pub mod operators;
pub mod outbox;
pub mod people;
pub mod programme;
pub mod rankings;
pub mod setup;
