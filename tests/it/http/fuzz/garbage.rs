//! Bytes that are not quite HTTP: bad lines, lengths that contradict each other, bodies cut off, callers that hang up.

use fastrand::Rng;

use super::wire::Then;

const GOOD: &str = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
const SALE: &str = "POST /api/tickets HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n";

/// All of them, each with what its caller does next.
pub fn all(rng: &mut Rng) -> Vec<(Vec<u8>, Then)> {
    let mut cases: Vec<Vec<u8>> = heads().into_iter().chain(bodies()).map(String::into_bytes).collect();
    cases.push(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec());
    cases.push(b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n".to_vec());
    cases.push(b"GET /livez HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n".to_vec());
    cases.push(vec![0; 1000]);
    for _ in 0..100 {
        cases.push((0..rng.usize(1..300)).map(|_| rng.u8(..)).collect());
    }
    for _ in 0..200 {
        let mut damaged = format!("{SALE}Content-Length: 16\r\n\r\n{{\"seatNumber\":7}}").into_bytes();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..damaged.len());
            damaged[at] = rng.u8(..);
        }
        cases.push(damaged);
    }
    let mut all = Vec::new();
    for case in cases {
        let cut = rng.usize(..=case.len());
        all.push((case[..cut].to_vec(), Then::HalfClose));
        all.push((case[..cut].to_vec(), Then::HangUp));
        all.push((case, Then::HalfClose));
    }
    all
}

fn heads() -> Vec<String> {
    let lines = [
        "GET\r\n\r\n",
        "GET /livez\r\n\r\n",
        "GET /livez HTTP/9.9\r\n\r\n",
        "GET  /livez  HTTP/1.1\r\n\r\n",
        "\r\n\r\n\r\n",
        "GET livez HTTP/1.1\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://other.example/livez HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT /livez HTTP/1.1\r\nHost: a\r\n\r\nmore",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost a\r\n\r\n",
        "GET /livez HTTP/1.1\r\n: a\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET /livez HTTP/1.1\nHost: a\n\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /livez HTTP/1.0\r\n\r\n",
        "GET /livez HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost: a\r\nExpect: 200-maybe\r\n\r\n",
    ];
    let mut heads: Vec<String> = lines.map(str::to_owned).into();
    heads.push(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(200_000)));
    heads.push(format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(500)));
    heads.push(format!("{GOOD}{GOOD}nonsense\r\n\r\n{GOOD}"));
    heads
}

fn bodies() -> Vec<String> {
    let lengths = [
        "Content-Length: -1\r\n\r\n",
        "Content-Length: +2\r\n\r\n{}",
        "Content-Length: 0x2\r\n\r\n{}",
        "Content-Length: 2, 2\r\n\r\n{}",
        "Content-Length: 99999999999999999999999\r\n\r\n{}",
        "Content-Length: 18446744073709551615\r\n\r\n{}",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: 1000\r\n\r\n{}",
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2;name=value\r\n{}\r\n0\r\nTrailer: a\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ];
    lengths.map(|rest| format!("{SALE}{rest}")).into()
}
