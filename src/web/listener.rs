//! What the system does with the connections of a listener. Elsewhere than on Linux it does nothing of this.

use std::io;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::net::{SocketAddr, TcpListener, TcpStream};
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::libc;
#[cfg(target_os = "linux")]
use nix::sys::socket::{SetSockOpt, sockopt::AttachReusePortCbpf};
use socket2::{Domain, Socket, Type};
#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};

/// Connections that wait to be accepted. The system may allow fewer.
const BACKLOG: i32 = 4096;

/// How long filling the queue of the trap may take.
#[cfg(target_os = "linux")]
const FILLED_WITHIN: Duration = Duration::from_millis(200);

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

/// Listens for visitors. Where the system can, [`turn_newcomers_away`] works at the end.
pub fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    // The option below would let another server of the same user listen here too, and take half of the visitors.
    drop(TcpListener::bind(addr)?);
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuse_port(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Keeps newcomers away until it is dropped.
#[must_use]
#[derive(Default)]
pub struct Trap {
    _inside: Option<(Socket, Option<TcpStream>)>,
}

/// Lets nobody else connect. A listener that just closes resets the connections that it has not accepted yet, and with them
/// requests that no proxy may send again. Now such a proxy hears nothing before it has sent a request, and takes another
/// server.
pub fn turn_newcomers_away(listener: &TcpListener) -> Trap {
    #[cfg(target_os = "linux")]
    match SockRef::from(listener).attach_filter(&NO_NEW_CONNECTIONS) {
        Ok(()) => return Trap::default(),
        // Newer systems allow that to root alone.
        Err(filter) => match trap(listener) {
            Ok(trap) => return trap,
            Err(error) => tracing::warn!(%filter, %error, "the last connections may be reset"),
        },
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
    Trap::default()
}

/// Leads newcomers to a second listener on the same address, whose queue is full: the system then drops what they send, as
/// if nobody was there.
#[cfg(target_os = "linux")]
fn trap(listener: &TcpListener) -> io::Result<Trap> {
    let addr = listener.local_addr()?;
    let second = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    second.set_reuse_address(true)?;
    second.set_reuse_port(true)?;
    second.bind(&addr.into())?;
    // Of the listeners on this address, the second one, from the moment there is one.
    let mut always_second = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 1 }];
    let program = libc::sock_fprog { len: 1, filter: always_second.as_mut_ptr() };
    AttachReusePortCbpf.set(listener, &program)?;
    second.listen(0)?;
    // There is room for one, which nobody accepts. If a newcomer was faster, that one is reset in the end.
    let here = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    match TcpStream::connect_timeout(&SocketAddr::new(here, addr.port()), FILLED_WITHIN) {
        Ok(stopper) => Ok(Trap { _inside: Some((second, Some(stopper))) }),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(Trap { _inside: Some((second, None)) }),
        Err(error) => Err(error),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn newcomers_are_left_without_an_answer_and_those_before_them_are_accepted() {
        let listener = open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let addr = listener.local_addr().unwrap();
        let before: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let trap = trap(&listener).unwrap();
        for _ in 0..5 {
            let refused = TcpStream::connect_timeout(&addr, Duration::from_millis(50)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
        }
        listener.set_nonblocking(true).unwrap();
        for one in &before {
            let (_, peer) = listener.accept().unwrap();
            assert_eq!(peer, one.local_addr().unwrap());
        }
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody came after them");
        drop((trap, listener));
        assert_eq!(TcpStream::connect(addr).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn nobody_else_listens_where_a_server_does() {
        let listener = open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let taken = open(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    }
}
