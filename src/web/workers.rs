//! The web workers: each has a thread and a runtime of its own.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use prometheus::Histogram;
use tokio::runtime::{Handle, RuntimeMetrics};

use crate::base::lock;

/// How often a web worker measures how late its timers ring.
const MEASURE_EVERY: Duration = Duration::from_millis(250);

#[derive(Default)]
pub struct Workers(Mutex<Vec<RuntimeMetrics>>);

impl Workers {
    /// To be called in each web worker.
    pub fn join(&self, lag: impl Fn(&str) -> Histogram) {
        let mut workers = lock(&self.0);
        workers.push(Handle::current().metrics());
        let lag = lag(&workers.len().to_string());
        actix_web::rt::spawn(async move {
            loop {
                let started = Instant::now();
                tokio::time::sleep(MEASURE_EVERY).await;
                lag.observe(started.elapsed().saturating_sub(MEASURE_EVERY).as_secs_f64());
            }
        });
    }

    /// For how long each was busy since it started.
    pub fn busy(&self) -> Vec<Duration> {
        lock(&self.0).iter().map(|worker| worker.worker_total_busy_duration(0)).collect()
    }
}
