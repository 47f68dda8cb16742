//! Everything that can go wrong, and one table that says what a caller is told about it.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{HttpResponse, ResponseError};
use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::ids::SeatNumber;
use crate::redis::scripts::SeatState;

#[derive(Debug, thiserror::Error)]
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
    #[error("not so many free seats together")]
    NotTogether,
    /// What has to be sent.
    #[error("not authorized: {0}")]
    Unauthorized(&'static str),
    #[error("balance {balance} of {total}")]
    InsufficientBalance { balance: i64, total: i64 },
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
    #[error("no such path")]
    NotFound,
    #[error("a form from another site")]
    CrossSite,
    #[error("method not allowed")]
    MethodNotAllowed(&'static str),
    #[error("request body too large")]
    PayloadTooLarge,
    #[error("request body did not arrive")]
    TooSlow,
    /// The event's keys are missing in Redis; a restore is under way.
    #[error("event not ready in Redis")]
    Unready,
    /// More is waiting to be done than can be done soon.
    #[error("overloaded: {0}")]
    Overloaded(&'static str),
    /// What is known is too old to answer from.
    #[error("no fresh snapshot")]
    Stale,
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("Redis pool: {0}")]
    RedisPool(#[from] deadpool_redis::PoolError),
    #[error("database: {0}")]
    Database(diesel::result::Error),
    #[error("database pool: {0}")]
    DatabasePool(String),
    /// The connection went away while a purchase was committed: nobody knows yet whether it was.
    #[error("outcome of a purchase unknown: {0}")]
    OutcomeUnknown(String),
    #[error("internal: {0}")]
    Internal(String),
    /// One fault that several callers met together.
    #[error("{0}")]
    Shared(Arc<Error>),
}

impl Error {
    /// Status, code and public text. The cause of a fault of ours goes to the log only.
    fn public(&self) -> (StatusCode, &'static str, &str) {
        use StatusCode as S;
        const AWAY: &str = "Please try again in a moment.";
        match self {
            Self::TokenNotFound => (S::NOT_FOUND, "QUEUE_TOKEN_NOT_FOUND", "There is no such queue token."),
            Self::TokenExpired => (S::GONE, "QUEUE_TOKEN_EXPIRED", "This queue token is over. Join the line again."),
            Self::NotActive => (S::FORBIDDEN, "NOT_ACTIVE_USER", "It is not your turn, or your time is over."),
            Self::SeatsTaken(seats) if seats.iter().any(|(_, state)| *state == SeatState::Sold) => {
                (S::CONFLICT, "SEAT_ALREADY_SOLD", "A seat you asked for is sold.")
            }
            Self::SeatsTaken(_) => (S::CONFLICT, "SEAT_ALREADY_HELD", "Someone else holds a seat you asked for."),
            Self::NotTogether => {
                (S::CONFLICT, "SEATS_NOT_TOGETHER", "There are not so many free seats next to each other.")
            }
            Self::Unauthorized(needed) => (S::UNAUTHORIZED, "UNAUTHORIZED", needed),
            Self::InsufficientBalance { .. } => {
                (S::PAYMENT_REQUIRED, "INSUFFICIENT_BALANCE", "Your balance is too low. Charge it and pay again.")
            }
            Self::BalanceLimit(problem) => (S::CONFLICT, "BALANCE_LIMIT_EXCEEDED", problem),
            Self::KeyReused => (
                S::UNPROCESSABLE_ENTITY,
                "IDEMPOTENCY_KEY_REUSED",
                "This Idempotency-Key was used with another body. Use a new one for a new charge.",
            ),
            Self::CancelTooLate { .. } => {
                (S::CONFLICT, "CANCEL_DEADLINE_PASSED", "This ticket cannot be cancelled any more.")
            }
            Self::SoldOut => (S::CONFLICT, "SOLD_OUT", "All seats are sold."),
            Self::QueueFull => (S::TOO_MANY_REQUESTS, "QUEUE_FULL", "The line is full. Please try again later."),
            Self::NotOpen { .. } => (S::CONFLICT, "EVENT_NOT_OPEN", "Booking has not opened yet."),
            Self::EventClosed => (S::CONFLICT, "EVENT_CLOSED", "The sale is closed."),
            Self::InvalidSeat => (S::BAD_REQUEST, "INVALID_SEAT_NUMBER", "The event has no seat of this number."),
            Self::InvalidRequest(problem) => (S::BAD_REQUEST, "INVALID_REQUEST", problem),
            Self::EventNotFound => (S::NOT_FOUND, "EVENT_NOT_FOUND", "There is no such event."),
            Self::ConcertNotFound => (S::NOT_FOUND, "CONCERT_NOT_FOUND", "There is no such concert."),
            Self::TicketNotFound => (S::NOT_FOUND, "TICKET_NOT_FOUND", "There is no such ticket of yours."),
            Self::NotFound => (S::NOT_FOUND, "NOT_FOUND", "There is nothing at this path."),
            Self::CrossSite => (S::FORBIDDEN, "CROSS_SITE_REQUEST", "This form was sent from another site."),
            Self::MethodNotAllowed(_) => {
                (S::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "This path does not take this method.")
            }
            Self::PayloadTooLarge => (S::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "The request body is too large."),
            Self::TooSlow => (S::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "The request body did not arrive in time."),
            Self::Unready
            | Self::Overloaded(_)
            | Self::Stale
            | Self::Redis(_)
            | Self::RedisPool(_)
            | Self::Database(_)
            | Self::DatabasePool(_)
            | Self::OutcomeUnknown(_) => (S::SERVICE_UNAVAILABLE, "SERVICE_UNAVAILABLE", AWAY),
            Self::Internal(_) => (S::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", "Something went wrong on our side."),
            Self::Shared(error) => error.public(),
        }
    }

    pub fn code(&self) -> &'static str {
        self.public().1
    }

    /// Whether it is about us rather than about the request.
    pub fn is_fault(&self) -> bool {
        self.public().0.is_server_error()
    }

    /// What a program needs beside the code.
    fn details(&self) -> Option<Details> {
        Some(match self {
            Self::SeatsTaken(seats) => {
                let taken = |(seat_number, status): &(SeatNumber, SeatState)| TakenSeat {
                    seat_number: *seat_number,
                    status: *status,
                };
                Details::Seats { seats: seats.iter().map(taken).collect() }
            }
            Self::InsufficientBalance { balance, total } => Details::Balance { balance: *balance, total: *total },
            Self::NotOpen { opens_at } => Details::Opens { opens_at: *opens_at },
            Self::CancelTooLate { until } => Details::Cancel { cancel_until: *until },
            Self::Shared(error) => return error.details(),
            _ => return None,
        })
    }
}

impl From<diesel::result::Error> for Error {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl From<diesel_async::pooled_connection::deadpool::PoolError> for Error {
    fn from(error: diesel_async::pooled_connection::deadpool::PoolError) -> Self {
        Self::DatabasePool(error.to_string())
    }
}

#[derive(Serialize)]
struct Body<'a> {
    status: u16,
    code: &'a str,
    message: &'a str,
    #[serde(flatten)]
    details: Option<Details>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Details {
    Seats { seats: Vec<TakenSeat> },
    Balance { balance: i64, total: i64 },
    Opens { opens_at: DateTime<Utc> },
    Cancel { cancel_until: DateTime<Utc> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TakenSeat {
    seat_number: SeatNumber,
    status: SeatState,
}

impl ResponseError for Error {
    fn status_code(&self) -> StatusCode {
        self.public().0
    }

    fn error_response(&self) -> HttpResponse {
        let (status, code, message) = self.public();
        if status.is_server_error() {
            tracing::warn!(code, error = %self, "a request failed");
        }
        let mut response =
            HttpResponse::build(status).json(Body { status: status.as_u16(), code, message, details: self.details() });
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self {
            Self::MethodNotAllowed(allowed) => headers.insert(ALLOW, HeaderValue::from_static(allowed)),
            Self::Unauthorized(_) => headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            Self::QueueFull => headers.insert(RETRY_AFTER, HeaderValue::from_static("10")),
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))
            }
            _ => return response,
        };
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn every_error() -> Vec<Error> {
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
            Error::NotFound,
            Error::CrossSite,
            Error::MethodNotAllowed("GET"),
            Error::PayloadTooLarge,
            Error::TooSlow,
            Error::Unready,
            Error::Overloaded("cause"),
            Error::Stale,
            Error::Redis((redis::ErrorKind::Io, "cause").into()),
            Error::RedisPool(deadpool_redis::PoolError::Closed),
            Error::Database(diesel::result::Error::NotFound),
            Error::DatabasePool(text()),
            Error::OutcomeUnknown(text()),
            Error::Internal(text()),
            Error::Shared(Arc::new(Error::Stale)),
        ]
    }

    #[test]
    fn a_code_has_one_status_and_a_fault_of_ours_is_never_a_4xx() {
        let mut status_of = HashMap::new();
        for error in every_error() {
            let (status, code, message) = error.public();
            assert_eq!(*status_of.entry(code).or_insert(status), status, "{code}");
            assert!(!message.is_empty());
            let ours = matches!(code, "SERVICE_UNAVAILABLE" | "INTERNAL_ERROR");
            assert_eq!(status.is_server_error(), ours, "{code}");
            assert!(!ours || !message.contains("cause"), "{code} tells its cause");
        }
    }

    #[test]
    fn callers_are_told_when_to_try_again() {
        for error in every_error() {
            let response = error.error_response();
            let told = response.headers().contains_key(RETRY_AFTER);
            let again = matches!(response.status().as_u16(), 429 | 503);
            assert_eq!(told, again, "{error}");
        }
    }
}
