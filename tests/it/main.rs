//! One test binary. Every test has a server of its own: the real one, on port 0, with its own database and its own
//! Redis. Names are sentences.

mod flow;
mod http;
mod lua;
mod outage;
mod race;
mod support;
