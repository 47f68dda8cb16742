//! Requests nobody should send, made from those that people send.

use fastrand::Rng;
use serde_json::{Value, json};

use super::routes::Route;

/// The largest body the server reads.
const BODY_LIMIT: usize = 16 * 1024;
const METHODS: [&str; 11] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FUZZ", "get", "PROPFIND"];
const NUMBERS: [&str; 19] = [
    "0",
    "1",
    "7",
    "30",
    "51",
    "-1",
    "1.5",
    "1e3",
    "1e999",
    "-0",
    "01",
    "+1",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999999",
];
const TEXTS: [&str; 20] = [
    "",
    " ",
    "null",
    "true",
    "..",
    "../../etc/passwd",
    "//evil.example",
    "/\\evil.example",
    "https://evil.example/",
    "<script>alert(1)</script>",
    "' OR 1=1 --",
    "\u{0}",
    "\u{7f}",
    "\r\nSet-Cookie: a=b",
    "홍길동",
    "１",
    "\u{202e}abc",
    "\u{feff}",
    "%00%ff",
    "{{7*7}}",
];

/// What is true and can be asked about.
pub struct Known {
    /// Tokens of the free event, where nobody is let in.
    pub waiting: Vec<String>,
    /// Tokens of people inside the priced event.
    pub inside: Vec<String>,
    pub keys: Vec<String>,
    pub tickets: Vec<String>,
    pub priced: String,
}

pub struct Request {
    pub method: &'static str,
    pub target: String,
    pub bytes: Vec<u8>,
}

pub struct Junk<'a> {
    rng: Rng,
    known: &'a Known,
}

impl<'a> Junk<'a> {
    pub fn new(seed: u64, known: &'a Known) -> Self {
        Self { rng: Rng::with_seed(seed), known }
    }

    pub fn request(&mut self, route: &Route) -> Request {
        let method = if self.one_in(4) { self.pick(&METHODS) } else { self.pick(&route.allowed) };
        let mut target = self.path(&route.pattern);
        if self.one_in(3) {
            target.push('?');
            target.push_str(&self.query());
        }
        let mut head =
            format!("{method} {target} HTTP/1.1\r\nHost: zticket.example\r\nConnection: close\r\n").into_bytes();
        let mut header = |name: &str, value: &[u8]| {
            head.extend_from_slice(format!("{name}: ").as_bytes());
            head.extend_from_slice(value);
            head.extend_from_slice(b"\r\n");
        };
        for (name, value) in self.headers() {
            header(name, &value);
        }
        let mut body = Vec::new();
        if !matches!(method, "GET" | "HEAD") || self.one_in(20) {
            let (kind, content) = self.body(route);
            header("Content-Type", kind.as_bytes());
            body = if self.one_in(5) {
                header("Transfer-Encoding", b"chunked");
                self.chunked(&content)
            } else {
                header("Content-Length", content.len().to_string().as_bytes());
                content
            };
        }
        head.extend_from_slice(b"\r\n");
        head.extend(body);
        Request { method, target, bytes: head }
    }

    fn one_in(&mut self, many: u32) -> bool {
        self.rng.u32(..many) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.usize(..from.len())]
    }

    fn any(&mut self, from: &[String]) -> String {
        from.get(self.rng.usize(..from.len().max(1))).cloned().unwrap_or_default()
    }

    /// Text of any kind; seldom long.
    fn text(&mut self) -> String {
        match self.rng.u32(..10) {
            0..4 => self.pick(&TEXTS).to_owned(),
            4..6 => self.pick(&NUMBERS).to_owned(),
            6 => (0..self.rng.usize(..40)).map(|_| self.rng.char(..)).collect(),
            7 => (0..self.rng.usize(..40)).map(|_| self.rng.char(' '..='~')).collect(),
            8 => self.uuid(),
            _ => "x".repeat(self.rng.usize(..300)),
        }
    }

    fn uuid(&mut self) -> String {
        uuid::Uuid::from_u128(self.rng.u128(..)).to_string()
    }

    /// A real token, one that was tampered with, or none at all.
    fn token(&mut self) -> String {
        let (waiting, inside) = (self.any(&self.known.waiting), self.any(&self.known.inside));
        let real = if self.rng.bool() { waiting } else { inside };
        match self.rng.u32(..10) {
            0..6 => real,
            // Not the bits of the event: the server looks up an unknown event, which takes a second.
            6 => flipped(&real, self.rng.u32(..104)),
            7 => real.to_uppercase(),
            _ => self.text(),
        }
    }

    fn key(&mut self) -> String {
        let key = self.any(&self.known.keys);
        match self.rng.u32(..8) {
            0..5 => key,
            5 => format!("zt_{:064x}", self.rng.u128(..)),
            6 => key.to_uppercase(),
            _ => self.text(),
        }
    }

    fn path(&mut self, pattern: &str) -> String {
        let mut path: Vec<String> = Vec::new();
        for part in pattern.split('/') {
            let name = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
            let part = match name {
                Some(name) => self.path_value(name),
                None => part.to_owned(),
            };
            path.push(part);
        }
        let path = path.join("/");
        match self.rng.u32(..60) {
            0 => format!("{path}/"),
            1 => path.replacen('/', "//", 2),
            2 => format!("/.{path}"),
            _ => path,
        }
    }

    fn path_value(&mut self, name: &str) -> String {
        let odd = self.one_in(4);
        match name {
            // Seldom an unknown event: looking it up takes a second.
            "event" | "concert" if self.one_in(40) => self.pick(&NUMBERS).to_owned(),
            "event" if odd => escaped(&self.text().replace(|letter: char| letter.is_ascii_digit(), "x")),
            "event" => {
                if self.rng.bool() {
                    "1".to_owned()
                } else {
                    self.known.priced.clone()
                }
            }
            "concert" if odd => escaped(&self.text().replace(|letter: char| letter.is_ascii_digit(), "x")),
            "concert" => "1".to_owned(),
            "uuid" => escaped(&self.token()),
            "seat" if !odd => self.rng.u32(..60).to_string(),
            "ticket" if !odd => self.any(&self.known.tickets),
            "lang" if !odd => self.pick(&["ko", "en"]).to_owned(),
            _ if self.one_in(3) => (0..self.rng.usize(1..30)).map(|_| format!("%{:02x}", self.rng.u8(..))).collect(),
            _ => escaped(&self.text()),
        }
    }

    fn query(&mut self) -> String {
        const NAMES: [&str; 16] = [
            "limit", "cursor", "period", "to", "next", "need", "problem", "charged", "moved", "tickets", "section",
            "taken", "place", "new", "x", "",
        ];
        let mut parts = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let name = self.pick(&NAMES);
            let value = match self.rng.u32(..4) {
                0 => self.pick(&NUMBERS).to_owned(),
                1 => self
                    .pick(&["today", "week", "all", "R", "S", "/account", "1,2,3", "%", "%f", "%ff", "&", "="])
                    .to_owned(),
                2 => self.uuid(),
                _ => escaped(&self.text()),
            };
            parts.push(format!("{name}={value}"));
        }
        parts.join("&")
    }

    fn headers(&mut self) -> Vec<(&'static str, Vec<u8>)> {
        let mut headers = Vec::new();
        if self.rng.bool() {
            headers.push(("X-Queue-Token", self.token()));
        }
        if self.rng.bool() {
            let scheme = self.pick(&["Bearer", "Bearer", "Bearer", "bearer", "Basic", "Bearer  ", ""]);
            headers.push(("Authorization", format!("{scheme} {}", self.key())));
        }
        if self.rng.bool() {
            // Few keys, so that some come again with another body.
            let key = if self.one_in(4) { self.text() } else { format!("key-{}", self.rng.u32(..30)) };
            headers.push(("Idempotency-Key", key));
        }
        if self.rng.bool() {
            headers.push(("Cookie", self.cookies()));
        }
        for name in
            ["If-None-Match", "Accept-Language", "Accept-Encoding", "Accept", "Origin", "Sec-Fetch-Site", "Range"]
        {
            if self.one_in(5) {
                headers.push((name, self.offer(name)));
            }
        }
        for name in
            ["X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Referer", "X-Queue-Token", "Content-Encoding"]
        {
            if self.one_in(15) {
                headers.push((name, self.text()));
            }
        }
        if self.one_in(10) {
            headers.push(("Expect", "100-continue".to_owned()));
        }
        headers.into_iter().map(|(name, value)| (name, self.header_value(value))).collect()
    }

    /// What a header can carry: no line ends, no null; seldom bytes that are no text.
    fn header_value(&mut self, value: String) -> Vec<u8> {
        let mut bytes = value.into_bytes();
        bytes.retain(|byte| *byte >= b' ' && *byte != 0x7f);
        if self.one_in(30) {
            bytes.extend((0..self.rng.usize(1..9)).map(|_| self.rng.u8(0x80..)));
        }
        bytes
    }

    /// What browsers say they want, and near misses.
    fn offer(&mut self, name: &str) -> String {
        let words: &[&str] = match name {
            "If-None-Match" => &["*", "W/", "\"", "\"\"", "W/\"x\"", "\"a\", \"b\"", ",", "W/\""],
            "Accept-Language" => &["ko", "en", "*", "-", ";q=", "; q=0.5", "nan", "inf", "1e99", ",", "ko-KR"],
            "Accept-Encoding" => {
                &["gzip", "identity", "*", "br", ";q=", "0", "1", "0.5", "2", ",", "-1", "x-gzip", "\""]
            }
            "Accept" => &["text/html", "application/json", "*/*", ",", ";q=0"],
            "Origin" => &["http://zticket.example", "null", "://", "http://evil.example"],
            "Sec-Fetch-Site" => &["same-origin", "none", "cross-site", "same-site"],
            _ => &["bytes=0-", "bytes=5-1", "bytes=-", "lines=1", ","],
        };
        let count = self.rng.usize(1..5);
        let known: Vec<&str> = (0..count).map(|_| self.pick(words)).collect();
        if self.one_in(5) { self.text() } else { known.join(self.pick(&["", ",", ", ", ";", " "])) }
    }

    fn cookies(&mut self) -> String {
        let mut cookies = Vec::new();
        for _ in 0..self.rng.usize(1..5) {
            let event = if self.rng.bool() { "1".to_owned() } else { self.known.priced.clone() };
            let cookie = match self.rng.u32(..6) {
                0 => format!("zt_key={}", self.key()),
                1 | 2 => format!("zt_place_{event}={}.{}", self.token(), self.pick(&NUMBERS)),
                3 => format!("zt_lang={}", self.pick(&["ko", "en", "xx", ""])),
                4 => self.text(),
                _ => format!("{}={}", self.text(), self.text()),
            };
            cookies.push(cookie);
        }
        cookies.join(self.pick(&["; ", ";", "; ; ", ", "]))
    }

    /// A content type and a body.
    fn body(&mut self, route: &Route) -> (String, Vec<u8>) {
        const KINDS: [&str; 9] = [
            "application/json",
            "application/x-www-form-urlencoded",
            "application/json; charset=utf-8",
            "text/plain",
            "application/json; charset=utf-16",
            "multipart/form-data; boundary=x",
            "application/problem+json",
            "x",
            "",
        ];
        let form = route.page != self.one_in(20);
        let mut body = if form { self.form() } else { self.json() }.into_bytes();
        if self.one_in(4) {
            self.damage(&mut body);
        }
        if self.one_in(40) {
            let length = self.pick(&[BODY_LIMIT - 1, BODY_LIMIT, BODY_LIMIT + 1, 3 * BODY_LIMIT, 100_000]);
            let filler = self.pick(&[b' ', b'x', b'[', b'{', 0]);
            body.resize(length, filler);
        }
        let right = if form { KINDS[1] } else { KINDS[0] };
        (if self.one_in(10) { self.pick(&KINDS) } else { right }.to_owned(), body)
    }

    fn form(&mut self) -> String {
        let (name, amount, seats) = (escaped(&self.text()), self.pick(&NUMBERS), self.seats());
        let list: Vec<String> = seats.iter().map(ToString::to_string).collect();
        let (token, key, next) = (self.token(), self.key(), escaped(&self.text()));
        let once = self.rng.u32(..30);
        let fields = [
            format!("name={name}&next={next}"),
            format!("key={key}&next={next}"),
            format!("amount={amount}&once=form-{once}&next={next}"),
            format!("seat={}&view={name}", list.first().cloned().unwrap_or_default()),
            format!("count={}&section={}", self.rng.u32(..6), self.pick(&["", "R", "S", "X"])),
            format!("seats={}", list.join(",")),
            format!("place={token}"),
            self.query(),
            String::new(),
        ];
        fields[self.rng.usize(..fields.len())].clone()
    }

    fn seats(&mut self) -> Vec<u32> {
        let count = if self.one_in(20) { self.rng.usize(..80) } else { self.rng.usize(..5) };
        (0..count).map(|_| self.rng.u32(..40)).collect()
    }

    fn json(&mut self) -> String {
        let seats = self.seats();
        let good = match self.rng.u32(..6) {
            0 => json!({ "name": self.text() }),
            1 => json!({ "amount": self.rng.i64(-5..20_000) }),
            2 => json!({ "seatNumber": self.rng.u32(..60) }),
            3 => json!({ "count": self.rng.u32(..6), "section": self.pick(&["R", "S", "X", ""]) }),
            _ => json!({ "seatNumbers": seats }),
        };
        match self.rng.u32(..8) {
            0 => self.value(0).to_string(),
            1 => {
                let mut odd = good;
                let value = self.value(0);
                odd.as_object_mut().unwrap().values_mut().for_each(|field| *field = value.clone());
                odd.to_string()
            }
            // Numbers beyond what a JSON library would write.
            2 => format!(r#"{{"{}":{}}}"#, self.pick(&["amount", "seatNumber", "count"]), self.pick(&NUMBERS)),
            3 => {
                let text = good.to_string();
                let inside = text.trim_start_matches('{').trim_end_matches('}');
                format!("{{{inside},{inside}}}")
            }
            4 if self.one_in(4) => {
                let (open, depth) = (self.pick(&["[", "{\"a\":", "{\"seatNumbers\":["]), self.rng.usize(..1000));
                open.repeat(depth)
            }
            _ => good.to_string(),
        }
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.rng.u32(..if depth > 3 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => self.rng.bool().into(),
            2 => self.rng.i64(..).into(),
            3 => self.rng.u64(..).into(),
            4 => self.rng.f64().into(),
            5 => self.text().into(),
            6 => (0..self.rng.usize(..4)).map(|_| self.value(depth + 1)).collect(),
            _ => (0..self.rng.usize(..4)).map(|_| (self.text(), self.value(depth + 1))).collect(),
        }
    }

    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..self.rng.usize(1..4) {
            let at = self.rng.usize(..=bytes.len());
            match self.rng.u32(..4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.rng.u8(..)),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.rng.u32(..8),
                _ => bytes.extend_from_within(at..),
            }
        }
    }

    fn chunked(&mut self, content: &[u8]) -> Vec<u8> {
        let size = self.rng.usize(1..5000);
        let chunk = |chunk: &[u8]| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        let mut bytes: Vec<u8> = content.chunks(size).flat_map(chunk).collect();
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes
    }
}

/// A token with one bit changed, counted from the right.
fn flipped(token: &str, bit: u32) -> String {
    let bits = uuid::Uuid::parse_str(token).map_or(0, |uuid| uuid.as_u128());
    uuid::Uuid::from_u128(bits ^ (1 << bit)).to_string()
}

/// Everything that is not a letter or digit as %XX.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
