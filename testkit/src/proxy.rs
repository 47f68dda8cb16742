//! A network that fails: stands between a server and its PostgreSQL or Redis, and forwards, stalls, cuts or loses.

use std::path::PathBuf;
use std::sync::LazyLock;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::Outcome;

/// The network has a thread of its own: a crowd of visitors in the same program must not slow it down.
static NETWORK: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build());

pub struct Proxy {
    fault: watch::Sender<Fault>,
}

#[derive(Clone, Copy, Default)]
struct Fault {
    /// Connections are accepted, and nothing is forwarded.
    stalled: bool,
    /// Connections with a lower number are closed.
    cut: u64,
    /// Connections with a lower number stay open, and nothing is forwarded on them ever again.
    lost: u64,
    accepted: u64,
}

#[derive(Clone)]
enum Target {
    Tcp(String),
    Unix(PathBuf),
}

impl Proxy {
    /// A proxy in front of the service that the URL names. Afterwards the URL names the proxy.
    pub fn before(url: &mut String) -> Outcome<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let mine = listener.local_addr()?.to_string();
        let target = if let Some(path) = url.strip_prefix("redis+unix://") {
            let target = Target::Unix(path.into());
            *url = format!("redis://{mine}");
            target
        } else {
            let host = host_of(url).ok_or("the URL names no server")?.to_owned();
            *url = url.replacen(&host, &mine, 1);
            Target::Tcp(host)
        };
        let fault = watch::Sender::new(Fault::default());
        let network = NETWORK.as_ref().map_err(ToString::to_string)?;
        let _inside = network.enter();
        network.spawn(accept(TcpListener::from_std(listener)?, target, fault.clone()));
        Ok(Self { fault })
    }

    /// Forwards nothing on any connection until [`Proxy::resume`]; nothing is lost.
    pub fn stall(&self) {
        self.fault.send_modify(|fault| fault.stalled = true);
    }

    /// Forwards what was held back, and everything from now on.
    pub fn resume(&self) {
        self.fault.send_modify(|fault| fault.stalled = false);
    }

    /// Closes all connections. New ones work.
    pub fn cut(&self) {
        self.fault.send_modify(|fault| fault.cut = fault.accepted);
    }

    /// Silently drops everything on the existing connections, which stay open. New ones work.
    pub fn lose(&self) {
        self.fault.send_modify(|fault| fault.lost = fault.accepted);
    }
}

/// Host and port.
fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next()?.rsplit('@').next()
}

async fn accept(listener: TcpListener, target: Target, fault: watch::Sender<Fault>) {
    while let Ok((from, _)) = listener.accept().await {
        let mut number = 0;
        fault.send_modify(|fault| {
            number = fault.accepted;
            fault.accepted += 1;
        });
        tokio::spawn(forward(from, target.clone(), fault.subscribe(), number));
    }
}

/// Until either side closes the connection, or it is cut.
async fn forward(from: TcpStream, target: Target, fault: watch::Receiver<Fault>, number: u64) {
    let mut ends = fault.clone();
    let both = async {
        match target {
            Target::Tcp(host) => {
                let Ok(to) = TcpStream::connect(host).await else { return };
                let _ = to.set_nodelay(true);
                both_ways(from, to, fault, number).await;
            }
            Target::Unix(path) => {
                let Ok(to) = UnixStream::connect(path).await else { return };
                both_ways(from, to, fault, number).await;
            }
        }
    };
    tokio::select! {
        _ = ends.wait_for(|fault| number < fault.cut) => {}
        () = both => {}
    }
}

async fn both_ways(from: TcpStream, to: impl AsyncRead + AsyncWrite, fault: watch::Receiver<Fault>, number: u64) {
    let _ = from.set_nodelay(true);
    let (from_in, from_out) = tokio::io::split(from);
    let (to_in, to_out) = tokio::io::split(to);
    tokio::select! {
        () = relay(from_in, to_out, fault.clone(), number) => {}
        () = relay(to_in, from_out, fault.clone(), number) => {}
    }
}

async fn relay(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut fault: watch::Receiver<Fault>,
    number: u64,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let open = |fault: &Fault| !fault.stalled && number >= fault.lost;
        if fault.wait_for(open).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
