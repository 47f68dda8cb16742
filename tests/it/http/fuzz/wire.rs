//! HTTP by hand: sends any bytes, and parses what comes back.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than any answer may take.
pub const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Without what comes after the semicolon.
    pub fn kind(&self) -> &str {
        self.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default()
    }
}

/// What a caller does after the last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Listen,
    /// Closes the sending side and reads on.
    HalfClose,
    HangUp,
}

/// Sends the bytes. Returns what comes back until the connection is closed or a stream begins; panics if neither happens.
pub async fn send(addr: SocketAddr, bytes: &[u8], then: Then) -> Vec<u8> {
    let spoken = timeout(PATIENCE, speak(addr, bytes, then, is_stream)).await;
    spoken.unwrap_or_else(|_| panic!("neither answered nor closed: {}", shown(bytes)))
}

/// The same, if no stream is expected: returns what comes back until the connection is closed.
pub async fn send_all(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let spoken = timeout(PATIENCE, speak(addr, bytes, Then::Listen, |_| false)).await;
    spoken.unwrap_or_else(|_| panic!("not closed: {}", shown(bytes)))
}

async fn speak(addr: SocketAddr, bytes: &[u8], then: Then, enough: fn(&[u8]) -> bool) -> Vec<u8> {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    let (mut read, mut write) = socket.split();
    let mut heard = Vec::new();
    let writing = async {
        // A server may close before it has read everything.
        let _ = write.write_all(bytes).await;
        if then == Then::HalfClose {
            let _ = write.shutdown().await;
        }
    };
    let reading = async {
        if then == Then::HangUp {
            return;
        }
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = read.read(&mut buffer).await {
            heard.extend_from_slice(&buffer[..count]);
            if count == 0 || enough(&heard) {
                return;
            }
        }
    };
    tokio::join!(writing, reading);
    heard
}

fn is_stream(heard: &[u8]) -> bool {
    let heard = heard.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap_or(heard);
    let head = head_of(heard).map(|end| heard[..end].to_ascii_lowercase());
    head.is_some_and(|head| String::from_utf8_lossy(&head).contains("content-type: text/event-stream"))
}

fn head_of(heard: &[u8]) -> Option<usize> {
    heard.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4)
}

/// The first answer in these bytes and the rest; `None` without a whole answer.
pub fn answer(heard: &[u8], to_head: bool) -> Option<(Answer, &[u8])> {
    let end = head_of(heard)?;
    let head = std::str::from_utf8(&heard[..end]).expect("a head is plain text");
    let mut lines = head.lines();
    let status: u16 = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let rest = &heard[end..];
    if status == 100 {
        return answer(rest, to_head);
    }
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let answer = Answer { status, headers, body: Vec::new() };
    let length = answer.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let length = if to_head || matches!(status, 204 | 304) { 0 } else { length };
    let body = rest.get(..length)?;
    Some((Answer { body: body.to_vec(), ..answer }, &rest[length..]))
}

/// The status of every answer, in order.
pub fn statuses(mut heard: &[u8]) -> Vec<u16> {
    let mut found = Vec::new();
    while let Some((answer, rest)) = answer(heard, false) {
        found.push(answer.status);
        heard = rest;
    }
    found
}

/// A request as it can be printed.
pub fn shown(bytes: &[u8]) -> String {
    let text: String = bytes.iter().take(3000).map(|byte| byte.escape_ascii().to_string()).collect();
    text.replace("\\r\\n", "\n")
}
