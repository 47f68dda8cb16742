//! What is offered, and to whom: concerts, people and their money, rankings. Knows the sale and everything below.

pub mod concerts;
pub mod people;
pub mod rankings;
pub mod setup;
