//! The configuration: read from the environment once, with the rules between values. Nothing else reads the environment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

use crate::base::ids::EventId;
use crate::base::kafka_address::KafkaAddress;
use crate::base::policy::Policy;
use crate::base::token::MasterKeys;
use crate::store::redis::links::Address;
use crate::web::client::parse_network;
use crate::web::limits::LimitSettings;
use crate::web::origin;

const PREFIX: &str = "ZTICKET_";

#[derive(Clone)]
pub struct Config {
    pub database_url: String,
    /// Most connections to it. A few are enough, because sales are gathered.
    pub db_connections: usize,
    pub redis_url: String,
    /// Where orders wait that are written later; `None`: in Redis.
    pub kafka: Option<KafkaAddress>,
    /// Pages and API.
    pub bind: SocketAddr,
    /// Health and metrics.
    pub management_bind: SocketAddr,
    /// Proxies whose word on the client's address is taken.
    pub trusted_proxies: Vec<IpNet>,
    /// How browsers reach the pages: scheme, host and port.
    pub public_url: String,
    /// Other sites whose pages may use the API.
    pub allowed_origins: Vec<String>,
    /// What one address may do.
    pub limits: LimitSettings,
    /// Most connections open at once.
    pub max_connections: usize,
    /// How long a stopping server keeps accepting requests: time for balancers to notice.
    pub drain: Duration,
    /// How long a connection may be quiet between requests, and how long a request's head and body may take to arrive.
    pub request_time: Duration,
    /// Most visitors that wait in one web worker to enter an event, and most purchases that wait in a server. Further ones
    /// are refused at once; those that wait are served within a second or two.
    pub most_entering: usize,
    pub most_buying: usize,
    /// Whoever has it is an admin, beside the operators in the database.
    pub admin_token: Option<String>,
    /// Seeds the live settings of every event.
    pub policy: Policy,
    /// The event for requests that name none.
    pub default_event: EventId,
    /// Whether a free default event is made where there is no event at all. It is number 1.
    pub make_default_event: bool,
    /// Seats of the default event, when it is made.
    pub seat_count: u32,
    /// Of prices and balances: three letters.
    pub currency: String,
    /// Time zone of pages and daily rankings.
    pub time_zone: chrono_tz::Tz,
    pub snapshot_interval: Duration,
    /// A `tracing` filter.
    pub log: String,
    pub log_format: LogFormat,
    /// Where traces go; `None`: nothing is traced.
    pub otlp_url: Option<String>,
    /// The share of requests that are traced, from 0 to 1.
    pub trace_share: f64,
    /// Unset: made once and kept in PostgreSQL.
    pub token_keys: Option<MasterKeys>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {problem}")]
pub struct ConfigError {
    name: String,
    problem: String,
}

impl ConfigError {
    fn new(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { name: name.into(), problem: problem.into() }
    }
}

impl Config {
    pub fn from_env() -> Result<Self, ConfigError> {
        let relevant = |name: &str| name.starts_with(PREFIX) || name == "DATABASE_URL" || name == "REDIS_URL";
        let mut vars = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str().filter(|name| relevant(name)) else { continue };
            let value = value.to_str().ok_or_else(|| ConfigError::new(name, "is not valid UTF-8"))?;
            vars.insert(name.to_owned(), value.to_owned());
        }
        Self::from_vars(vars)
    }

    pub fn from_vars(vars: BTreeMap<String, String>) -> Result<Self, ConfigError> {
        let mut vars = Vars(vars);
        let config = Self {
            database_url: vars.url("DATABASE_URL", &["postgres://", "postgresql://"])?,
            db_connections: vars.number("ZTICKET_DB_CONNECTIONS", 16, 8, 1000)?,
            redis_url: vars.redis_url("REDIS_URL")?,
            kafka: vars.broker("ZTICKET_BROKER")?,
            bind: vars.parse(
                "ZTICKET_BIND",
                SocketAddr::from(([127, 0, 0, 1], 8080)),
                "an address such as 127.0.0.1:8080",
            )?,
            management_bind: vars.parse(
                "ZTICKET_MANAGEMENT_BIND",
                SocketAddr::from(([127, 0, 0, 1], 18080)),
                "an address such as 127.0.0.1:18080",
            )?,
            trusted_proxies: vars.list(
                "ZTICKET_TRUSTED_PROXIES",
                parse_network,
                "addresses or networks such as 10.0.0.0/8, separated by commas",
            )?,
            public_url: vars.origin("ZTICKET_PUBLIC_URL", "http://localhost:8080")?,
            allowed_origins: vars.list(
                "ZTICKET_ALLOWED_ORIGINS",
                origin::parse,
                "origins such as https://shop.example, separated by commas",
            )?,
            limits: LimitSettings {
                enter_per_second: vars.number("ZTICKET_LIMIT_ENTER_PER_SECOND", 100, 0, 1_000_000)?,
                buy_per_second: vars.number("ZTICKET_LIMIT_BUY_PER_SECOND", 100, 0, 1_000_000)?,
                sign_up_per_second: vars.number("ZTICKET_LIMIT_SIGN_UP_PER_SECOND", 10, 0, 1_000_000)?,
                person_per_second: vars.number("ZTICKET_LIMIT_PERSON_PER_SECOND", 10, 0, 1_000_000)?,
                streams: vars.number("ZTICKET_LIMIT_STREAMS", 1000, 0, 1_000_000)?,
            },
            max_connections: vars.number("ZTICKET_MAX_CONNECTIONS", 50_000, 1, 10_000_000)?,
            drain: Duration::from_millis(vars.number("ZTICKET_DRAIN_MS", 1000, 0, 60_000)?),
            request_time: Duration::from_millis(vars.number("ZTICKET_REQUEST_TIMEOUT_MS", 5000, 100, 600_000)?),
            most_entering: vars.number("ZTICKET_MAX_PENDING_ENTRIES", 50_000, 1, 10_000_000)?,
            most_buying: vars.number("ZTICKET_MAX_PENDING_PURCHASES", 5_000, 1, 1_000_000)?,
            admin_token: vars.admin_token("ZTICKET_ADMIN_TOKEN")?,
            policy: Policy {
                interval_ms: vars.number("ZTICKET_ADMISSION_INTERVAL_MS", 1000, 10, 3_600_000)?,
                batch: vars.admission("BATCH_SIZE", 200, 1, 1_000_000)?,
                max_active: vars.admission("MAX_ACTIVE_USERS", 200, 1, 10_000_000)?,
                active_ttl_ms: vars.admission("ACTIVE_TTL_SECONDS", 300, 1, 86_400)? * 1000,
                queue_ttl_ms: vars.number("ZTICKET_QUEUE_TTL_SECONDS", 180, 4, 86_400)? * 1000,
                max_queue: vars.number("ZTICKET_QUEUE_MAX_SIZE", 0, 0, u64::from(u32::MAX))?,
                hold_ttl_ms: vars.number("ZTICKET_SEAT_HOLD_TTL_SECONDS", 300, 1, 86_400)? * 1000,
                sync_interval_ms: vars.number("ZTICKET_SYNC_INTERVAL_MS", 5000, 10, 3_600_000)?,
                seats_per_pass: Policy::SEATS_PER_PASS,
                tickets_per_person: Policy::TICKETS_PER_PERSON,
            },
            default_event: vars.event("ZTICKET_DEFAULT_EVENT_ID")?,
            make_default_event: vars.switch("ZTICKET_DEFAULT_EVENT", true)?,
            seat_count: vars.number("ZTICKET_SEAT_TOTAL_COUNT", 50, 1, 50_000)?,
            currency: vars.currency("ZTICKET_CURRENCY")?,
            time_zone: vars.parse("ZTICKET_TIME_ZONE", chrono_tz::Asia::Seoul, "a time zone such as Asia/Seoul")?,
            snapshot_interval: Duration::from_millis(vars.number("ZTICKET_SNAPSHOT_INTERVAL_MS", 250, 10, 1000)?),
            log: vars.text("ZTICKET_LOG").unwrap_or_else(|| "info".to_owned()),
            log_format: vars.parse("ZTICKET_LOG_FORMAT", LogFormat::Text, "text or json")?,
            otlp_url: vars.optional_url("ZTICKET_OTLP_URL", &["http://"])?,
            trace_share: vars.share("ZTICKET_TRACE_SHARE", 0.01)?,
            token_keys: vars.token_keys("ZTICKET_TOKEN_KEY")?,
        };
        vars.finish()?;
        config.check_rules()?;
        Ok(config)
    }

    /// Whether to make event 1 where there is no event at all.
    pub fn makes_default_event(&self) -> bool {
        self.make_default_event && self.default_event.get() == 1
    }

    fn check_rules(&self) -> Result<(), ConfigError> {
        let policy = &self.policy;
        if policy.active_ttl_ms < policy.hold_ttl_ms {
            return Err(ConfigError::new(
                "ZTICKET_ADMISSION_ACTIVE_TTL_SECONDS",
                "must be at least ZTICKET_SEAT_HOLD_TTL_SECONDS: a pass has to outlast a hold",
            ));
        }
        if policy.sync_interval_ms >= policy.hold_ttl_ms {
            return Err(ConfigError::new(
                "ZTICKET_SYNC_INTERVAL_MS",
                "must be less than ZTICKET_SEAT_HOLD_TTL_SECONDS: a sale has to be settled before its hold can end",
            ));
        }
        Ok(())
    }
}

impl FromStr for LogFormat {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

/// The variables not read yet. Empty ones count as unset, as in `NAME= command`.
struct Vars(BTreeMap<String, String>);

impl Vars {
    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name).filter(|value| !value.trim().is_empty())
    }

    fn url(&mut self, name: &str, schemes: &[&str]) -> Result<String, ConfigError> {
        self.optional_url(name, schemes)?.ok_or_else(|| ConfigError::new(name, "is not set"))
    }

    fn optional_url(&mut self, name: &str, schemes: &[&str]) -> Result<Option<String>, ConfigError> {
        match self.text(name) {
            Some(value) if !schemes.iter().any(|scheme| value.starts_with(scheme)) => {
                Err(ConfigError::new(name, format!("must start with {}", schemes.join(" or "))))
            }
            value => Ok(value),
        }
    }

    fn share(&mut self, name: &str, default: f64) -> Result<f64, ConfigError> {
        let kind = "a number from 0 to 1, such as 0.01";
        let share = self.parse(name, default, kind)?;
        if (0.0..=1.0).contains(&share) {
            Ok(share)
        } else {
            Err(ConfigError::new(name, format!("must be {kind}, not {share}")))
        }
    }

    fn admin_token(&mut self, name: &str) -> Result<Option<String>, ConfigError> {
        const SHORTEST: usize = 16;
        let token = self.text(name);
        if token.as_ref().is_some_and(|token| token.len() < SHORTEST) {
            let problem = format!("must have at least {SHORTEST} letters: `openssl rand -hex 32` makes a good one");
            return Err(ConfigError::new(name, problem));
        }
        Ok(token)
    }

    fn switch(&mut self, name: &str, default: bool) -> Result<bool, ConfigError> {
        match self.text(name).as_deref() {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") => Ok(false),
            Some(other) => Err(ConfigError::new(name, format!("must be on or off, not {other:?}"))),
        }
    }

    fn event(&mut self, name: &str) -> Result<EventId, ConfigError> {
        let number = self.number(name, 1, 1, EventId::MAX)?;
        EventId::new(number).ok_or_else(|| ConfigError::new(name, "must be the number of an event"))
    }

    fn currency(&mut self, name: &str) -> Result<String, ConfigError> {
        let value = self.text(name).unwrap_or_else(|| "KRW".to_owned());
        if value.len() == 3 && value.bytes().all(|letter| letter.is_ascii_uppercase()) {
            Ok(value)
        } else {
            Err(ConfigError::new(name, format!("must be three capital letters such as KRW, not {value:?}")))
        }
    }

    fn redis_url(&mut self, name: &str) -> Result<String, ConfigError> {
        let value = self.url(name, &["redis://", "redis+unix://", "unix://"])?;
        match Address::parse(&value) {
            Ok(_) => Ok(value),
            Err(error) => Err(ConfigError::new(name, format!("cannot be read: {error}"))),
        }
    }

    fn broker(&mut self, name: &str) -> Result<Option<KafkaAddress>, ConfigError> {
        let Some(value) = self.text(name).filter(|value| value != "redis") else { return Ok(None) };
        let Some(address) = KafkaAddress::parse(&value) else {
            let problem = format!("must be redis, or an address such as kafka://127.0.0.1:9092, not {value:?}");
            return Err(ConfigError::new(name, problem));
        };
        if cfg!(feature = "kafka") {
            Ok(Some(address))
        } else {
            Err(ConfigError::new(
                name,
                "this build knows no Kafka: build it with `cargo build --release --features kafka`",
            ))
        }
    }

    fn parse<T: FromStr>(&mut self, name: &str, default: T, kind: &str) -> Result<T, ConfigError> {
        match self.text(name) {
            None => Ok(default),
            Some(value) => value.parse().map_err(|_| ConfigError::new(name, format!("must be {kind}, not {value:?}"))),
        }
    }

    fn number<T>(&mut self, name: &str, default: T, min: T, max: T) -> Result<T, ConfigError>
    where
        T: FromStr + PartialOrd + Copy + std::fmt::Display,
    {
        let kind = format!("a whole number from {min} to {max}");
        let value = self.parse(name, default, &kind)?;
        if value < min || value > max {
            return Err(ConfigError::new(name, format!("must be {kind}, not {value}")));
        }
        Ok(value)
    }

    /// A setting of admission, with or without that word in its name.
    fn admission(&mut self, name: &str, default: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
        let (long, short) = (format!("ZTICKET_ADMISSION_{name}"), format!("ZTICKET_{name}"));
        if self.0.contains_key(&long) && self.0.contains_key(&short) {
            return Err(ConfigError::new(short, format!("is another name of {long}: set one of them")));
        }
        let name = if self.0.contains_key(&short) { short } else { long };
        self.number(&name, default, min, max)
    }

    /// One key or, while rotating, two: the new one, a comma, the old one. Never repeated in an error message.
    fn token_keys(&mut self, name: &str) -> Result<Option<MasterKeys>, ConfigError> {
        let Some(value) = self.text(name) else { return Ok(None) };
        let keys: Option<Vec<[u8; 32]>> = value.split(',').map(|key| from_hex(key.trim())).collect();
        match keys.as_deref() {
            Some([current]) => Ok(Some(MasterKeys { current: *current, previous: None })),
            Some([current, previous]) => Ok(Some(MasterKeys { current: *current, previous: Some(*previous) })),
            _ => Err(ConfigError::new(name, "must be 64 hexadecimal digits, or two such keys separated by a comma")),
        }
    }

    /// An origin, which may end with a slash.
    fn origin(&mut self, name: &str, default: &str) -> Result<String, ConfigError> {
        let value = self.text(name).unwrap_or_else(|| default.to_owned());
        let origin = origin::parse(value.strip_suffix('/').unwrap_or(&value));
        let kind = "an address without a path, such as https://tickets.example.com";
        origin.ok_or_else(|| ConfigError::new(name, format!("must be {kind}, not {value:?}")))
    }

    /// Values of one kind, separated by commas.
    fn list<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>, kind: &str) -> Result<Vec<T>, ConfigError> {
        let value = self.text(name).unwrap_or_default();
        let parts = value.split(',').map(str::trim).filter(|part| !part.is_empty());
        let wrong = |part: &str| ConfigError::new(name, format!("must be {kind}, not {part:?}"));
        parts.map(|part| parse(part).ok_or_else(|| wrong(part))).collect()
    }

    fn finish(self) -> Result<(), ConfigError> {
        match self.0.into_keys().find(|name| name.starts_with(PREFIX)) {
            Some(name) => Err(ConfigError::new(name, "is not a setting of this server; is it misspelled?")),
            None => Ok(()),
        }
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(text).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(extra: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let base = [("DATABASE_URL", "postgres://h/d"), ("REDIS_URL", "redis://h")];
        let vars = base.iter().chain(extra).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::from_vars(vars.collect())
    }

    fn problem(extra: &[(&str, &str)]) -> String {
        read(extra).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn defaults_are_those_of_the_manual() {
        let config = read(&[]).unwrap();
        assert_eq!(config.bind.to_string(), "127.0.0.1:8080");
        assert_eq!(config.management_bind.to_string(), "127.0.0.1:18080");
        assert_eq!(config.policy, Policy::default());
        assert_eq!(config.seat_count, 50);
        assert!(config.admin_token.is_none());
    }

    #[test]
    fn every_mistake_names_its_variable() {
        assert!(problem(&[("DATABASE_URL", "")]).starts_with("DATABASE_URL: is not set"));
        assert!(problem(&[("REDIS_URL", "http://h")]).starts_with("REDIS_URL: must start with redis://"));
        assert!(problem(&[("REDIS_URL", "redis://a:1,redis://b:port")]).starts_with("REDIS_URL: cannot be read"));
        assert!(problem(&[("REDIS_URL", "redis://h:port")]).starts_with("REDIS_URL: cannot be read"));
        assert!(problem(&[("ZTICKET_BIND", "8080")]).starts_with("ZTICKET_BIND: must be an address"));
        assert!(
            problem(&[("ZTICKET_QUEUE_TTL_SECONDS", "-1")]).starts_with("ZTICKET_QUEUE_TTL_SECONDS: must be a whole")
        );
        assert!(problem(&[("ZTICKET_SEAT_TOTAL_COUNT", "0")]).starts_with("ZTICKET_SEAT_TOTAL_COUNT: must be a whole"));
        assert!(problem(&[("ZTICKET_DEFAULT_EVENT", "no")]).starts_with("ZTICKET_DEFAULT_EVENT: must be on or off"));
        assert!(problem(&[("ZTICKET_DEFAULT_EVENT_ID", "0")]).starts_with("ZTICKET_DEFAULT_EVENT_ID: must be a whole"));
        assert!(problem(&[("ZTICKET_CURRENCY", "won")]).starts_with("ZTICKET_CURRENCY: must be three capital letters"));
        assert!(problem(&[("ZTICKET_TIME_ZONE", "Seoul")]).starts_with("ZTICKET_TIME_ZONE: must be a time zone"));
        assert!(problem(&[("ZTICKET_LOG_FORMAT", "xml")]).starts_with("ZTICKET_LOG_FORMAT: must be text or json"));
        assert!(
            problem(&[("ZTICKET_TRUSTED_PROXIES", "::1, 10.0.0.0/33")])
                .starts_with("ZTICKET_TRUSTED_PROXIES: must be addresses")
        );
        assert!(
            problem(&[("ZTICKET_PUBLIC_URL", "https://a.example/shop")]).starts_with("ZTICKET_PUBLIC_URL: must be an")
        );
        assert!(
            problem(&[("ZTICKET_ALLOWED_ORIGINS", "https://a.example, b.example")])
                .starts_with("ZTICKET_ALLOWED_ORIGINS: must be origins")
        );
        assert!(
            problem(&[("ZTICKET_ADMIN_TOKEN", "fifteen letters")]).starts_with("ZTICKET_ADMIN_TOKEN: must have at")
        );
        assert!(problem(&[("ZTICKET_OTLP_URL", "https://h")]).starts_with("ZTICKET_OTLP_URL: must start with http://"));
        for share in ["2", "-0.1", "NaN", "some"] {
            assert!(problem(&[("ZTICKET_TRACE_SHARE", share)]).starts_with("ZTICKET_TRACE_SHARE: must be a number"));
        }
        assert!(problem(&[("ZTICKET_BNID", "x")]).starts_with("ZTICKET_BNID: is not a setting"));
    }

    #[test]
    fn rules_between_values_hold() {
        let short_pass = [("ZTICKET_ADMISSION_ACTIVE_TTL_SECONDS", "299")];
        assert!(problem(&short_pass).starts_with("ZTICKET_ADMISSION_ACTIVE_TTL_SECONDS: must be at least"));
        let late_sync = [("ZTICKET_SYNC_INTERVAL_MS", "300000")];
        assert!(problem(&late_sync).starts_with("ZTICKET_SYNC_INTERVAL_MS: must be less than"));
    }

    #[test]
    fn admission_settings_have_a_short_name_too() {
        assert_eq!(read(&[("ZTICKET_BATCH_SIZE", "5")]).unwrap().policy.batch, 5);
        assert_eq!(read(&[("ZTICKET_ADMISSION_BATCH_SIZE", "6")]).unwrap().policy.batch, 6);
        let both = [("ZTICKET_BATCH_SIZE", "5"), ("ZTICKET_ADMISSION_BATCH_SIZE", "6")];
        assert!(problem(&both).contains("is another name of"));
    }

    #[test]
    fn a_wrong_key_is_not_repeated() {
        let message = problem(&[("ZTICKET_TOKEN_KEY", "secret")]);
        assert!(message.starts_with("ZTICKET_TOKEN_KEY") && !message.contains("secret"));
        let key = "0f".repeat(32);
        let two = format!("{key},{}", "1e".repeat(32));
        assert_eq!(read(&[("ZTICKET_TOKEN_KEY", &two)]).unwrap().token_keys.unwrap().current, [0x0f; 32]);
    }

    proptest! {
        #[test]
        fn any_value_is_taken_or_refused_without_a_panic(value in ".{0,20}") {
            for name in ["ZTICKET_BIND", "ZTICKET_TRUSTED_PROXIES", "ZTICKET_QUEUE_MAX_SIZE", "ZTICKET_TOKEN_KEY", "ZTICKET_LOG_FORMAT"] {
                let _ = read(&[(name, &value)]);
            }
        }
    }

    proptest! {
        #[test]
        fn a_number_is_taken_only_within_its_bounds(value: u64, small in 0..2_000_000_u64) {
            for value in [value, small] {
                let text = value.to_string();
                let taken = |name: &str| read(&[(name, &text)]).ok();
                let seats = taken("ZTICKET_SEAT_TOTAL_COUNT").map(|config| u64::from(config.seat_count));
                prop_assert_eq!(seats, (1..=50_000).contains(&value).then_some(value));
                let batch = taken("ZTICKET_BATCH_SIZE").map(|config| config.policy.batch);
                prop_assert_eq!(batch, (1..=1_000_000).contains(&value).then_some(value));
                let line = taken("ZTICKET_QUEUE_MAX_SIZE").map(|config| config.policy.max_queue);
                prop_assert_eq!(line, u32::try_from(value).is_ok().then_some(value));
                if let Some(config) = taken("ZTICKET_SEAT_HOLD_TTL_SECONDS") {
                    prop_assert_eq!(config.policy.hold_ttl_ms, value * 1000);
                    prop_assert!(config.policy.sync_interval_ms < config.policy.hold_ttl_ms);
                    prop_assert!(config.policy.hold_ttl_ms <= config.policy.active_ttl_ms);
                }
            }
        }

        #[test]
        fn keys_are_read_as_written_and_nothing_else_is_a_key(current: [u8; 32], previous: [u8; 32], at in 0..64_usize) {
            let hex = |key| blake3::Hash::from_bytes(key).to_hex().to_string();
            let text = format!("{}, {}", hex(current), hex(previous));
            let keys = read(&[("ZTICKET_TOKEN_KEY", &text)]).unwrap().token_keys.unwrap();
            prop_assert_eq!((keys.current, keys.previous), (current, Some(previous)));
            let mut wrong = hex(current);
            wrong.replace_range(at..=at, "g");
            prop_assert!(read(&[("ZTICKET_TOKEN_KEY", &wrong)]).is_err());
            wrong.truncate(at);
            prop_assert!(at == 0 || read(&[("ZTICKET_TOKEN_KEY", &wrong)]).is_err());
        }

        #[test]
        fn a_currency_is_three_capital_letters(text in "[A-Za-z]{0,4}|\\PC{0,4}") {
            match read(&[("ZTICKET_CURRENCY", &text)]) {
                Ok(config) if text.trim().is_empty() => prop_assert_eq!(config.currency, "KRW"),
                Ok(config) => {
                    prop_assert_eq!(&config.currency, &text);
                    prop_assert!(text.len() == 3 && text.bytes().all(|letter| letter.is_ascii_uppercase()));
                }
                Err(error) => prop_assert!(error.to_string().starts_with("ZTICKET_CURRENCY: ")),
            }
        }
    }
}
