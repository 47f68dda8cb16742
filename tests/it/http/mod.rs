//! The API as a stranger calls it: every answer has its form, every mistake its code.

mod errors;
mod fuzz;
mod limits;
mod management;
mod pages;
mod reads;
