//! What the system does with the connections of a listener. Elsewhere than on Linux it does nothing of this.

use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};

/// A client that acknowledges nothing for this long is gone, or reads very slowly on purpose.
#[cfg(target_os = "linux")]
const UNREAD_TIME: Duration = Duration::from_secs(30);

/// Drops every segment that asks for a new connection, and lets all others pass. For `SO_ATTACH_FILTER`, which shows a
/// segment from its TCP header on.
#[cfg(target_os = "linux")]
const NO_NEW_CONNECTIONS: [SockFilter; 4] = [
    // Load byte 13, the flags. Is SYN among them? Then go on, else skip one.
    SockFilter::new(0x30, 0, 0, 13),
    SockFilter::new(0x45, 0, 1, 0x02),
    // Drop it. Keep it.
    SockFilter::new(0x06, 0, 0, 0),
    SockFilter::new(0x06, 0, 0, u32::MAX),
];

/// Has the system close accepted connections whose other end stops reading.
pub fn cut_off_unread(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).set_tcp_user_timeout(Some(UNREAD_TIME)) {
        tracing::warn!(%error, "clients that stop reading are not cut off");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

/// Lets nobody else connect. A listener that just closes resets the connections that it has not accepted yet, and with them
/// requests that no proxy may send again. Now such a proxy hears nothing before it has sent a request, and takes another
/// server.
pub fn turn_newcomers_away(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).attach_filter(&NO_NEW_CONNECTIONS) {
        tracing::warn!(%error, "the last connections may be reset");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}
