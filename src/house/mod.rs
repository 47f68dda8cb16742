//! What is offered, to whom, and by whom: concerts, people and their money, rankings, operators. Knows the sale and everything below.

pub mod concerts;
pub mod desk;
pub mod history;
pub mod operators;
pub mod people;
pub mod programme;
pub mod rankings;
pub mod setup;
