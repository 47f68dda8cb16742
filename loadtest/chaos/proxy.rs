//! A wire that can be cut: between the servers and Redis, and between them and PostgreSQL.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::Outcome;

pub struct Proxy {
    pub port: u16,
    /// Connections are made under a number; another one cuts them.
    cut: watch::Sender<u64>,
    stalled: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(to: u16) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (cut, stalled) = (watch::Sender::new(0), watch::Sender::new(false));
        let (cut_seen, gate) = (cut.subscribe(), stalled.subscribe());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(forward(near, SocketAddr::from(([127, 0, 0, 1], to)), cut_seen.clone(), gate.clone()));
            }
        });
        Ok(Self { port, cut, stalled })
    }

    /// Ends every connection there is.
    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    /// Nothing gets through while stalled, and nothing is lost.
    pub fn stall(&self, stalled: bool) {
        self.stalled.send_replace(stalled);
    }
}

async fn forward(near: TcpStream, to: SocketAddr, mut cut: watch::Receiver<u64>, gate: watch::Receiver<bool>) {
    cut.mark_unchanged();
    let Ok(far) = TcpStream::connect(to).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pump(near_read, far_write, gate.clone()) => {}
        () = pump(far_read, near_write, gate) => {}
        _ = cut.changed() => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut stalled: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if stalled.wait_for(|stalled| !*stalled).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
