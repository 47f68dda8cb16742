//! What one client address may do: entries, purchases and sign-ups a second, and open streams; and how often one person may
//! ask about what is theirs and change it. The limits keep one bot from crowding out everyone else. Those of an address are
//! generous, because offices and phone carriers share one. Polls are not limited: they are answered from memory. Each
//! server counts for itself, and answers say what is left.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::HttpMessage;
use actix_web::HttpRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use governor::clock::Clock;
use governor::middleware::StateInformationMiddleware;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use prometheus::IntCounter;

use crate::base::error::Error;
use crate::base::ids::PersonId;
use crate::base::metrics::Metrics;
use crate::web::client::Client;

/// A quiet address may do this many seconds' worth at once: a sale opens for everyone in the same moment.
const BURST_SECONDS: u32 = 10;
/// How often quiet addresses are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// By then the server has noticed a stream whose listener is gone.
const STREAM_AGAIN_SECONDS: u64 = 15;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LEFT: HeaderName = HeaderName::from_static("ratelimit");

/// For one address, or one person; 0: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    pub enter_per_second: u32,
    pub buy_per_second: u32,
    pub sign_up_per_second: u32,
    pub person_per_second: u32,
    pub streams: u32,
}

impl LimitSettings {
    pub const OFF: Self =
        Self { enter_per_second: 0, buy_per_second: 0, sign_up_per_second: 0, person_per_second: 0, streams: 0 };
}

pub struct Limits {
    /// Joining a line.
    pub enter: Rate<Client>,
    /// Holding and buying seats, giving them back, and cancelling.
    pub buy: Rate<Client>,
    /// Signing up, and trying keys that nobody has.
    pub sign_up: Rate<Client>,
    /// What one person asks about themselves and changes.
    pub person: Rate<PersonId>,
    pub streams: Arc<Streams>,
}

impl Limits {
    pub fn new(settings: &LimitSettings, metrics: &Metrics) -> Self {
        let refusals = |name, setting| Refusals::new(metrics, name, setting);
        Self {
            enter: Rate::new(settings.enter_per_second, refusals("enter", "ZTICKET_LIMIT_ENTER_PER_SECOND")),
            buy: Rate::new(settings.buy_per_second, refusals("buy", "ZTICKET_LIMIT_BUY_PER_SECOND")),
            sign_up: Rate::new(settings.sign_up_per_second, refusals("sign_up", "ZTICKET_LIMIT_SIGN_UP_PER_SECOND")),
            person: Rate::new(settings.person_per_second, refusals("person", "ZTICKET_LIMIT_PERSON_PER_SECOND")),
            streams: Arc::new(Streams {
                most: settings.streams,
                open: Mutex::default(),
                refused: refusals("streams", "ZTICKET_LIMIT_STREAMS"),
            }),
        }
    }

    /// Forgets quiet addresses, and logs how many requests were refused.
    pub async fn step(&self) -> Result<Duration, Error> {
        [&self.enter, &self.buy, &self.sign_up].into_iter().for_each(Rate::tidy);
        self.person.tidy();
        self.streams.refused.log();
        Ok(TIDY_EVERY)
    }
}

/// How often an address or a person may do something.
pub struct Rate<K: Clone + Eq + Hash> {
    per_second: u32,
    limiter: Option<DefaultKeyedRateLimiter<K, StateInformationMiddleware>>,
    refused: Refusals,
}

/// What is left of a limit, as the caller reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    name: &'static str,
    at_once: u32,
    left: u32,
    /// Until all of it is there again; without any left, until there is some.
    seconds: u64,
}

impl<K: Clone + Eq + Hash> Rate<K> {
    fn new(per_second: u32, refused: Refusals) -> Self {
        let limiter = NonZeroU32::new(per_second).zip(NonZeroU32::new(per_second.saturating_mul(BURST_SECONDS)));
        let limiter = limiter.map(|(per_second, burst)| {
            RateLimiter::keyed(Quota::per_second(per_second).allow_burst(burst)).with_middleware()
        });
        Self { per_second, limiter, refused }
    }

    /// Counts the request, or says how long to wait. Without a limit, `who` is not called.
    pub fn check(&self, who: impl FnOnce() -> K) -> (Option<Allowance>, Result<(), Error>) {
        let Some(limiter) = &self.limiter else { return (None, Ok(())) };
        let at_once = self.per_second.saturating_mul(BURST_SECONDS);
        let allowance = |left, seconds| Some(Allowance { name: self.refused.name, at_once, left, seconds });
        match limiter.check_key(&who()) {
            Ok(state) => {
                let left = state.remaining_burst_capacity();
                (allowance(left, (at_once - left.min(at_once)).div_ceil(self.per_second).into()), Ok(()))
            }
            Err(until) => {
                self.refused.count.inc();
                let seconds = whole_seconds(until.wait_time_from(limiter.clock().now()));
                (allowance(0, seconds), Err(Error::RateLimited { seconds }))
            }
        }
    }

    fn tidy(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        self.refused.log();
    }
}

/// What is left of the limits that a request was counted against.
struct Told(Vec<Allowance>);

/// Notes what is left, for the answer, and goes on or refuses.
pub fn note(request: &HttpRequest, (allowance, outcome): (Option<Allowance>, Result<(), Error>)) -> Result<(), Error> {
    if let Some(allowance) = allowance {
        let mut extensions = request.extensions_mut();
        match extensions.get_mut::<Told>() {
            Some(Told(told)) => told.push(allowance),
            None => drop(extensions.insert(Told(vec![allowance]))),
        }
    }
    outcome
}

/// Says in the answer what is left.
pub fn tell(request: &HttpRequest, headers: &mut HeaderMap) {
    let extensions = request.extensions();
    let Some(Told(told)) = extensions.get::<Told>() else { return };
    for Allowance { name, at_once, left, seconds } in told {
        let policy = HeaderValue::from_str(&format!("\"{name}\";q={at_once};w={BURST_SECONDS}"));
        let rest = HeaderValue::from_str(&format!("\"{name}\";r={left};t={seconds}"));
        if let (Ok(policy), Ok(rest)) = (policy, rest) {
            headers.append(POLICY, policy);
            headers.append(LEFT, rest);
        }
    }
}

/// Rounded up: a client that comes back then is let through.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + 1
}

/// How many streams each address listens to.
pub struct Streams {
    most: u32,
    open: Mutex<HashMap<Client, u32>>,
    refused: Refusals,
}

/// One stream of an address, until it is dropped. `None`: there is no limit.
pub struct Slot(Option<(Arc<Streams>, Client)>);

impl Streams {
    pub fn take(self: &Arc<Self>, client: impl FnOnce() -> Client) -> Result<Slot, Error> {
        if self.most == 0 {
            return Ok(Slot(None));
        }
        let client = client();
        let mut open = self.counts();
        let taken = open.entry(client).or_default();
        if *taken >= self.most {
            self.refused.count.inc();
            return Err(Error::RateLimited { seconds: STREAM_AGAIN_SECONDS });
        }
        *taken += 1;
        Ok(Slot(Some((self.clone(), client))))
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Client, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some((streams, client)) = self.0.take() else { return };
        let mut open = streams.counts();
        let left = open.get(&client).map_or(0, |taken| taken.saturating_sub(1));
        if left == 0 {
            open.remove(&client)
        } else {
            open.insert(client, left)
        };
    }
}

/// Counted one by one, logged together: a flood of requests is not a flood of log lines.
struct Refusals {
    name: &'static str,
    setting: &'static str,
    count: IntCounter,
    logged: AtomicU64,
}

impl Refusals {
    fn new(metrics: &Metrics, name: &'static str, setting: &'static str) -> Self {
        Self { name, setting, count: metrics.limited.with_label_values(&[name]), logged: AtomicU64::new(0) }
    }

    fn log(&self) {
        let count = self.count.get();
        let refused = count - self.logged.swap(count, Ordering::Relaxed);
        if refused > 0 {
            let setting = self.setting;
            let hint = match self.name {
                "person" => "too much from one person",
                _ => "too much from one address; behind a proxy, set ZTICKET_TRUSTED_PROXIES",
            };
            tracing::warn!(refused, setting, "{hint}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;
    use std::net::{Ipv4Addr, SocketAddr};

    fn client(last: u8) -> Client {
        let peer = SocketAddr::from((Ipv4Addr::new(1, 2, 3, last), 1));
        Client::of(&TestRequest::default().peer_addr(peer).to_http_request(), &[])
    }

    fn limits(settings: LimitSettings) -> Limits {
        Limits::new(&settings, &Metrics::new().unwrap())
    }

    #[test]
    fn a_burst_passes_and_then_the_address_has_to_wait() {
        let limits = limits(LimitSettings { buy_per_second: 1, ..LimitSettings::OFF });
        let checks: Vec<_> = (0..1000).map(|_| limits.buy.check(|| client(1)).1).collect();
        let refused = checks.iter().position(Result::is_err).unwrap();
        assert!(refused >= 10, "{refused}");
        let refused = checks[refused].as_ref().unwrap_err();
        assert!(matches!(refused, Error::RateLimited { seconds: 1 }), "{refused}");
        limits.buy.check(|| client(2)).1.unwrap();
        assert_eq!(limits.buy.refused.count.get(), checks.iter().filter(|check| check.is_err()).count() as u64);
    }

    #[test]
    fn without_a_limit_the_client_is_not_looked_up() {
        let limits = limits(LimitSettings::OFF);
        for rate in [&limits.enter, &limits.buy, &limits.sign_up] {
            assert!(matches!(rate.check(|| panic!("asked")), (None, Ok(()))));
        }
        assert!(matches!(limits.person.check(|| panic!("asked")), (None, Ok(()))));
        limits.streams.take(|| panic!("asked")).unwrap();
    }

    #[test]
    fn quiet_addresses_are_forgotten_and_busy_ones_are_not() {
        let limits = limits(LimitSettings { enter_per_second: 1_000_000, buy_per_second: 1, ..LimitSettings::OFF });
        for last in 0..100 {
            limits.enter.check(|| client(last)).1.unwrap();
            // All it may do in ten seconds.
            let _ = limits.buy.check(|| client(last % 10));
        }
        std::thread::sleep(Duration::from_millis(1));
        limits.enter.tidy();
        limits.buy.tidy();
        assert_eq!(limits.enter.limiter.as_ref().unwrap().len(), 0, "a millionth of a second is over");
        assert!(!limits.buy.limiter.as_ref().unwrap().is_empty());
    }

    #[test]
    fn what_is_left_is_told() {
        let limits = limits(LimitSettings { buy_per_second: 2, ..LimitSettings::OFF });
        let request = TestRequest::default().to_http_request();
        note(&request, limits.buy.check(|| client(1))).unwrap();
        let told = |request| {
            let mut headers = HeaderMap::new();
            tell(request, &mut headers);
            [POLICY, LEFT].map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
        };
        assert_eq!(told(&request), [Some("\"buy\";q=20;w=10".to_owned()), Some("\"buy\";r=19;t=1".to_owned())]);
        while note(&TestRequest::default().to_http_request(), limits.buy.check(|| client(1))).is_ok() {}
        let refused = TestRequest::default().to_http_request();
        note(&refused, limits.buy.check(|| client(1))).unwrap_err();
        assert_eq!(told(&refused)[1].as_deref(), Some("\"buy\";r=0;t=1"));
        assert_eq!(told(&TestRequest::default().to_http_request()), [None, None]);
    }

    #[test]
    fn a_stream_that_ends_gives_its_slot_back() {
        let limits = limits(LimitSettings { streams: 2, ..LimitSettings::OFF });
        let take = |last| limits.streams.take(|| client(last));
        let (first, second) = (take(1).unwrap(), take(1).unwrap());
        assert!(take(1).is_err());
        let other = take(2).unwrap();
        drop(first);
        let third = take(1).unwrap();
        assert!(take(1).is_err());
        drop((second, third, other));
        assert!(limits.streams.counts().is_empty(), "addresses without a stream are forgotten");
    }

    #[test]
    fn a_wait_is_rounded_up_to_whole_seconds() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(10)), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1500)), 2);
    }
}
