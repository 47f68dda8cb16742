//! Ports for children that must be known before they start, or that come back to the same port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::Outcome;

const FIRST: u16 = 12_000;
/// Ports above are lent to outgoing connections, and a child that restarts might find its port taken.
const COUNT: u16 = 19_000;

/// A port nobody listens on. No two calls in one process return the same, and processes start at different ports.
pub fn free() -> Outcome<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 100) as u16 * 190;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (start + step) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port is free".into())
}
