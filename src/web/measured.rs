//! Counts and times the answers of one route. Routes are labelled by their pattern, never by their path: paths are many, and
//! some contain tokens. The metrics are looked up once per web worker, not once per request.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::{Method, StatusCode};
use prometheus::{Histogram, IntCounter};

use crate::base::metrics::Metrics;

pub struct Measured {
    metrics: Arc<Metrics>,
    pattern: String,
    answers: RefCell<Vec<Answers>>,
}

/// The metrics of one kind of answer.
struct Answers {
    method: &'static str,
    status: StatusCode,
    count: IntCounter,
    seconds: Histogram,
}

impl Measured {
    pub fn new(metrics: &Arc<Metrics>, pattern: String) -> Self {
        Self { metrics: metrics.clone(), pattern, answers: RefCell::default() }
    }

    /// The pattern of the route.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn answered(&self, method: &Method, status: StatusCode, elapsed: Duration) {
        tracing::debug!(%method, route = self.pattern, status = status.as_u16(), ?elapsed, "answered");
        let method = name(method);
        let mut answers = self.answers.borrow_mut();
        let known = answers.iter().position(|known| known.status == status && known.method == method);
        let at = known.unwrap_or_else(|| {
            answers.push(self.look_up(method, status));
            answers.len() - 1
        });
        if let Some(answers) = answers.get(at) {
            answers.count.inc();
            answers.seconds.observe(elapsed.as_secs_f64());
        }
    }

    fn look_up(&self, method: &'static str, status: StatusCode) -> Answers {
        let metrics = &self.metrics;
        Answers {
            method,
            status,
            count: metrics.requests.with_label_values(&[method, &self.pattern, status.as_str()]),
            seconds: metrics.request_seconds.with_label_values(&[method, &self.pattern]),
        }
    }
}

/// Methods are free text: a stranger could make up any number of them.
pub fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}
