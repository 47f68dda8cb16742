//! A network that fails: stands between a server and its PostgreSQL or Redis, and forwards, stalls, cuts or swallows.

use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

pub struct Proxy {
    fault: watch::Sender<Fault>,
}

#[derive(Clone, Copy, Default)]
struct Fault {
    /// Connections are accepted and nothing is forwarded.
    stalled: bool,
    /// Connections with a lower number are closed.
    cut: u64,
    /// Connections with a lower number stay open and nothing is forwarded on them ever again.
    lost: u64,
    accepted: u64,
}

#[derive(Clone)]
enum Target {
    Tcp(String),
    Unix(PathBuf),
}

impl Proxy {
    /// One in front of what the address names. The address then names the proxy.
    pub fn before(url: &mut String) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mine = listener.local_addr().unwrap().to_string();
        let target = if let Some(path) = url.strip_prefix("redis+unix://") {
            let target = Target::Unix(path.into());
            *url = format!("redis://{mine}");
            target
        } else {
            let (_, rest) = url.split_once("://").unwrap();
            let host = rest.split('/').next().unwrap().rsplit('@').next().unwrap().to_owned();
            *url = url.replacen(&host, &mine, 1);
            Target::Tcp(host)
        };
        let fault = watch::Sender::new(Fault::default());
        let proxy = Self { fault: fault.clone() };
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let mut number = 0;
                fault.send_modify(|fault| {
                    number = fault.accepted;
                    fault.accepted += 1;
                });
                tokio::spawn(forward(from, target.clone(), fault.subscribe(), number));
            }
        });
        proxy
    }

    pub fn stall(&self) {
        self.fault.send_modify(|fault| fault.stalled = true);
    }

    /// Forwards what was held back, and everything from now on.
    pub fn resume(&self) {
        self.fault.send_modify(|fault| fault.stalled = false);
    }

    /// Closes all connections. New ones are fine.
    pub fn cut(&self) {
        self.fault.send_modify(|fault| fault.cut = fault.accepted);
    }

    /// Nothing comes through the connections there are any more, and nobody says so. New ones are fine.
    pub fn lose(&self) {
        self.fault.send_modify(|fault| fault.lost = fault.accepted);
    }
}

async fn forward(from: TcpStream, target: Target, fault: watch::Receiver<Fault>, number: u64) {
    let mut ends = fault.clone();
    let cut = async move { drop(ends.wait_for(|fault| number < fault.cut).await) };
    let both = async move {
        match target {
            Target::Tcp(host) => both_ways(from, TcpStream::connect(host).await.unwrap(), fault, number).await,
            Target::Unix(path) => {
                if let Ok(to) = UnixStream::connect(path).await {
                    both_ways(from, to, fault, number).await;
                }
            }
        }
    };
    tokio::select! {
        () = cut => {}
        () = both => {}
    }
}

async fn both_ways(from: TcpStream, to: impl AsyncRead + AsyncWrite, fault: watch::Receiver<Fault>, number: u64) {
    from.set_nodelay(true).unwrap();
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
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let open = |fault: &Fault| !fault.stalled && number >= fault.lost;
        if fault.wait_for(open).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
