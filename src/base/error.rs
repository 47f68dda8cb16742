//! Everything that can go wrong, and one table that says what callers read about it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::ids::SeatNumber;
use crate::base::seat::SeatState;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("queue token not found")]
    TokenNotFound,
    #[error("queue token expired")]
    TokenExpired,
    #[error("not inside")]
    NotActive,
    /// Seats someone else holds or bought.
    #[error("seats taken: {0:?}")]
    SeatsTaken(Vec<(SeatNumber, SeatState)>),
    #[error("not enough free seats together")]
    NotTogether,
    /// What the caller has to send.
    #[error("not authorized: {0}")]
    Unauthorized(&'static str),
    #[error("balance {balance} of {total}")]
    InsufficientBalance { balance: i64, total: i64 },
    /// Of one event, over all orders of a person.
    #[error("{owned} tickets, limit {limit}")]
    TicketLimit { limit: u32, owned: u32 },
    /// The first person who holds seats with a place is the one who buys with it.
    #[error("place of another person")]
    PlaceOfAnother,
    #[error("balance would pass its limit")]
    BalanceLimit(String),
    #[error("idempotency key used before, with another body")]
    KeyReused,
    #[error("too late to cancel")]
    CancelTooLate { until: DateTime<Utc> },
    #[error("sold out")]
    SoldOut,
    #[error("line full")]
    QueueFull,
    #[error("booking opens at {opens_at}")]
    NotOpen { opens_at: DateTime<Utc> },
    #[error("sale closed")]
    EventClosed,
    #[error("no such seat")]
    InvalidSeat,
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    #[error("no such event")]
    EventNotFound,
    #[error("no such concert")]
    ConcertNotFound,
    #[error("no such ticket")]
    TicketNotFound,
    #[error("no such order")]
    OrderNotFound,
    /// The place has an order for other seats that is not written yet.
    #[error("another order is pending")]
    OrderPending,
    #[error("order not pending")]
    OrderNotPending,
    /// Its buyer took it back before it was written.
    #[error("order cancelled")]
    OrderCancelled,
    /// It was accepted, and nobody knows it any more.
    #[error("order lost")]
    OrderLost,
    #[error("no such path")]
    NotFound,
    #[error("sent from another site")]
    CrossSite,
    /// What role it takes.
    #[error("role too low: {0}")]
    Forbidden(&'static str),
    /// Someone else changed it since; this version is in force.
    #[error("settings changed, version {version}")]
    PolicyChanged { version: i64 },
    /// The rule that would be broken.
    #[error("invalid settings: {0}")]
    InvalidPolicy(String),
    #[error("method not allowed")]
    MethodNotAllowed(String),
    #[error("request body too large")]
    PayloadTooLarge,
    #[error("not JSON by its content type")]
    UnsupportedMediaType,
    #[error("address too long")]
    UriTooLong,
    #[error("request body too slow")]
    RequestTimeout,
    /// From one client address. Worth trying again after this many seconds.
    #[error("too many requests")]
    RateLimited { seconds: u64 },
    /// The event's keys are missing in Redis; a restore is under way.
    #[error("event not ready in Redis")]
    Unready,
    /// More work waits than can be done soon.
    #[error("overloaded: {0}")]
    Overloaded(&'static str),
    /// Not done in time. It may still happen.
    #[error("too slow: {0}")]
    TooSlow(&'static str),
    /// What is known is too old to answer from.
    #[error("no fresh snapshot")]
    Stale,
    #[error("Redis: {0}")]
    Redis(String),
    /// The database answered with an error.
    #[error("database: {0}")]
    Database(String),
    /// The database refused to write a sale, which was nobody else's. Nothing was written.
    #[error("sale refused by the database: {0}")]
    SaleRefused(String),
    /// The broker did not keep an order, or did not say that it did.
    #[error("broker: {0}")]
    Broker(String),
    /// There was no connection to the database.
    #[error("database connection: {0}")]
    DatabaseAway(String),
    /// Redis knows of places or sales that the database does not: it was restored from a backup.
    #[error(
        "the database lacks what Redis knows, so nothing is sold: `zticket audit` shows what; after a failover run \
         `zticket audit --mend`, after a restored backup stop all servers and run `zticket after-restore`"
    )]
    DatabaseBehind,
    /// The connection broke while a purchase was being committed: nobody knows yet whether it was.
    #[error("outcome of a purchase unknown: {0}")]
    OutcomeUnknown(String),
    #[error("internal: {0}")]
    Internal(String),
}

impl Error {
    /// An error of ours, with its cause for the log.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::Internal(cause.to_string())
    }

    /// HTTP status, code and public text. The cause of an error of ours goes to the log only.
    pub fn public(&self) -> (u16, &'static str, &str) {
        const AWAY: &str = "Please try again in a moment.";
        match self {
            Self::TokenNotFound => (404, "QUEUE_TOKEN_NOT_FOUND", "There is no such queue token."),
            Self::TokenExpired => (410, "QUEUE_TOKEN_EXPIRED", "This queue token has expired. Join the line again."),
            Self::NotActive => (403, "NOT_ACTIVE_USER", "It is not your turn, or your time is over."),
            Self::SeatsTaken(seats) if seats.iter().any(|(_, state)| *state == SeatState::Sold) => {
                (409, "SEAT_ALREADY_SOLD", "A seat you asked for is sold.")
            }
            Self::SeatsTaken(_) => (409, "SEAT_ALREADY_HELD", "Someone else holds a seat you asked for."),
            Self::NotTogether => (409, "SEATS_NOT_TOGETHER", "There are not enough free seats next to each other."),
            Self::Unauthorized(needed) => (401, "UNAUTHORIZED", needed),
            Self::InsufficientBalance { .. } => {
                (402, "INSUFFICIENT_BALANCE", "Your balance is too low. Charge it and pay again.")
            }
            Self::TicketLimit { .. } => (
                409,
                "TICKET_LIMIT_REACHED",
                "With these seats you would have more tickets of this event than one person may have.",
            ),
            Self::PlaceOfAnother => (403, "PLACE_OF_ANOTHER", "Another person uses this place in line."),
            Self::BalanceLimit(problem) => (409, "BALANCE_LIMIT_EXCEEDED", problem),
            Self::KeyReused => (
                422,
                "IDEMPOTENCY_KEY_REUSED",
                "This Idempotency-Key was used with another body. Use a new one for a new charge.",
            ),
            Self::CancelTooLate { .. } => (409, "CANCEL_DEADLINE_PASSED", "This ticket can no longer be cancelled."),
            Self::SoldOut => (409, "SOLD_OUT", "All seats are sold."),
            Self::QueueFull => (429, "QUEUE_FULL", "The line is full. Please try again later."),
            Self::NotOpen { .. } => (409, "EVENT_NOT_OPEN", "Booking has not opened yet."),
            Self::EventClosed => (409, "EVENT_CLOSED", "The sale is closed."),
            Self::InvalidSeat => (400, "INVALID_SEAT_NUMBER", "The event has no seat with this number."),
            Self::InvalidRequest(problem) => (400, "INVALID_REQUEST", problem),
            Self::EventNotFound => (404, "EVENT_NOT_FOUND", "There is no such event."),
            Self::ConcertNotFound => (404, "CONCERT_NOT_FOUND", "There is no such concert."),
            Self::TicketNotFound => (404, "TICKET_NOT_FOUND", "There is no such ticket, or it is not yours."),
            Self::OrderNotFound => (404, "ORDER_NOT_FOUND", "There is no such order, or it is not yours."),
            Self::OrderPending => {
                (409, "ORDER_PENDING", "You have an order for other seats that is still being written.")
            }
            Self::OrderNotPending => {
                (409, "ORDER_NOT_PENDING", "This order is decided: it can no longer be taken back.")
            }
            Self::OrderCancelled => (409, "ORDER_CANCELLED", "You took this order back before it was written."),
            Self::OrderLost => (
                503,
                "SERVICE_UNAVAILABLE",
                "This order got lost before it was written. Nothing was bought. Please buy again.",
            ),
            Self::NotFound => (404, "NOT_FOUND", "There is nothing at this path."),
            Self::CrossSite => (403, "CROSS_SITE_REQUEST", "This was sent from a page of another site."),
            Self::Forbidden(needed) => (403, "FORBIDDEN", needed),
            Self::PolicyChanged { .. } => {
                (409, "POLICY_CHANGED", "Someone else changed the settings. Look at them and try again.")
            }
            Self::InvalidPolicy(rule) => (422, "INVALID_POLICY", rule),
            Self::MethodNotAllowed(_) => (405, "METHOD_NOT_ALLOWED", "This path does not take this method."),
            Self::PayloadTooLarge => (413, "PAYLOAD_TOO_LARGE", "The request body is too large."),
            Self::UnsupportedMediaType => {
                (415, "UNSUPPORTED_MEDIA_TYPE", "Send JSON, with Content-Type: application/json.")
            }
            Self::UriTooLong => (414, "URI_TOO_LONG", "The path and query are too long."),
            Self::RequestTimeout => (408, "REQUEST_TIMEOUT", "The request took too long to arrive."),
            Self::RateLimited { .. } => {
                (429, "TOO_MANY_REQUESTS", "Too many requests come from your address. Please try again in a moment.")
            }
            Self::Unready
            | Self::Overloaded(_)
            | Self::TooSlow(_)
            | Self::Stale
            | Self::Redis(_)
            | Self::Database(_)
            | Self::SaleRefused(_)
            | Self::Broker(_)
            | Self::DatabaseAway(_)
            | Self::DatabaseBehind
            | Self::OutcomeUnknown(_) => (503, "SERVICE_UNAVAILABLE", AWAY),
            Self::Internal(_) => (500, "INTERNAL_ERROR", "Something went wrong on our side."),
        }
    }

    pub fn status(&self) -> u16 {
        self.public().0
    }

    pub fn code(&self) -> &'static str {
        self.public().1
    }

    /// Whether the fault is ours rather than the caller's.
    pub fn is_fault(&self) -> bool {
        self.status() >= 500
    }

    /// How many seconds to wait before trying again, where time helps.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::RateLimited { seconds } => Some(*seconds),
            Self::QueueFull => Some(10),
            error => (error.status() == 503).then_some(1),
        }
    }

    /// As it is told later.
    pub fn problem(&self) -> Problem {
        let (_, code, message) = self.public();
        Problem { code: code.to_owned(), message: message.to_owned(), details: self.details() }
    }

    /// What a program needs besides the code.
    pub fn details(&self) -> Details {
        let mut details = Details::default();
        match self {
            Self::SeatsTaken(seats) => {
                let taken = |(seat_number, status): &(SeatNumber, SeatState)| TakenSeat {
                    seat_number: *seat_number,
                    status: *status,
                };
                details.seats = Some(seats.iter().map(taken).collect());
            }
            Self::InsufficientBalance { balance, total } => {
                (details.balance, details.total) = (Some(*balance), Some(*total));
            }
            Self::TicketLimit { limit, owned } => (details.limit, details.owned) = (Some(*limit), Some(*owned)),
            Self::NotOpen { opens_at } => details.opens_at = Some(*opens_at),
            Self::CancelTooLate { until } => details.cancel_until = Some(*until),
            Self::PolicyChanged { version } => details.version = Some(*version),
            Self::InvalidPolicy(rule) => details.rule = Some(rule.clone()),
            _ => {}
        }
        details
    }
}

/// Why something failed that was asked for earlier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What programs tell errors apart by.
    #[schema(example = "SEAT_ALREADY_SOLD")]
    pub code: String,
    /// What people read about it.
    pub message: String,
    #[serde(flatten)]
    pub details: Details,
}

/// The fields some errors carry besides status, code and message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Each seat that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    seats: Option<Vec<TakenSeat>>,
    /// What the person has.
    #[serde(skip_serializing_if = "Option::is_none")]
    balance: Option<i64>,
    /// What the seats cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// How many tickets of the event one person may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    /// How many the person has.
    #[serde(skip_serializing_if = "Option::is_none")]
    owned: Option<u32>,
    /// When booking opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    opens_at: Option<DateTime<Utc>>,
    /// Until when the ticket could be cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_until: Option<DateTime<Utc>>,
    /// The version of the settings that is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i64>,
    /// The rule that would be broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
}

impl Details {
    /// The seats that are taken.
    pub fn taken(&self) -> impl Iterator<Item = SeatNumber> {
        self.seats.iter().flatten().map(|seat| seat.seat_number)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakenSeat {
    seat_number: SeatNumber,
    status: SeatState,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashMap};

    /// One or more of every variant.
    pub(crate) fn every_error() -> Vec<Error> {
        let text = || "cause".to_owned();
        vec![
            Error::TokenNotFound,
            Error::TokenExpired,
            Error::NotActive,
            Error::SeatsTaken(vec![(SeatNumber(1), SeatState::Held)]),
            Error::SeatsTaken(vec![(SeatNumber(1), SeatState::Held), (SeatNumber(2), SeatState::Sold)]),
            Error::NotTogether,
            Error::Unauthorized("Send it."),
            Error::InsufficientBalance { balance: 1, total: 2 },
            Error::TicketLimit { limit: 4, owned: 3 },
            Error::PlaceOfAnother,
            Error::BalanceLimit(text()),
            Error::KeyReused,
            Error::CancelTooLate { until: DateTime::UNIX_EPOCH },
            Error::NotOpen { opens_at: DateTime::UNIX_EPOCH },
            Error::ConcertNotFound,
            Error::SoldOut,
            Error::QueueFull,
            Error::EventClosed,
            Error::InvalidSeat,
            Error::InvalidRequest(text()),
            Error::EventNotFound,
            Error::TicketNotFound,
            Error::OrderNotFound,
            Error::OrderPending,
            Error::OrderNotPending,
            Error::OrderCancelled,
            Error::OrderLost,
            Error::NotFound,
            Error::CrossSite,
            Error::Forbidden("It takes a role."),
            Error::PolicyChanged { version: 2 },
            Error::InvalidPolicy(text()),
            Error::MethodNotAllowed("GET".to_owned()),
            Error::PayloadTooLarge,
            Error::UnsupportedMediaType,
            Error::UriTooLong,
            Error::RequestTimeout,
            Error::RateLimited { seconds: 3 },
            Error::Unready,
            Error::Overloaded("cause"),
            Error::TooSlow("cause"),
            Error::Stale,
            Error::Redis(text()),
            Error::Database(text()),
            Error::DatabaseAway(text()),
            Error::DatabaseBehind,
            Error::SaleRefused(text()),
            Error::Broker(text()),
            Error::OutcomeUnknown(text()),
            Error::Internal(text()),
        ]
    }

    #[test]
    fn the_list_of_errors_has_every_variant() {
        let source = include_str!("error.rs");
        let variants = source.split("pub enum Error {").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
        let name = |line: &str| -> Option<String> {
            let line =
                line.strip_prefix("    ").filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))?;
            Some(line.chars().take_while(char::is_ascii_alphanumeric).collect())
        };
        let declared: BTreeSet<String> = variants.lines().filter_map(name).collect();
        let shown = |error: Error| format!("{error:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
        let listed: BTreeSet<String> = every_error().into_iter().map(shown).collect();
        assert_eq!(listed, declared);
    }

    #[test]
    fn a_code_has_one_status_and_our_own_faults_are_5xx() {
        let mut status_of = HashMap::new();
        for error in every_error() {
            let (status, code, message) = error.public();
            assert_eq!(*status_of.entry(code).or_insert(status), status, "{code}");
            assert!(!message.is_empty());
            let ours = matches!(code, "SERVICE_UNAVAILABLE" | "INTERNAL_ERROR");
            assert_eq!(error.is_fault(), ours, "{code}");
            assert!(!ours || !message.contains("cause"), "{code} shows its cause");
        }
    }

    #[test]
    fn callers_hear_when_to_try_again() {
        for error in every_error() {
            assert_eq!(error.retry_after().is_some(), matches!(error.status(), 429 | 503), "{error}");
        }
    }
}
