//! Redis: `links` reaches it, `keys` names what is there, `scripts` writes, `reads` reads.

pub mod keys;
pub mod lane;
pub mod links;
pub mod reads;
pub mod renewed;
pub mod replies;
pub mod scripts;
