//! Metrics that are read at the scrape: pools of connections, web workers, the machine.

use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, Opts, Registry};

use crate::web::machine;
use crate::web::site::Site;

pub fn families(site: &Site) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let registry = Registry::new();
    let gauge = |name: &str, help: &str, labels: &[&str]| {
        let gauge = GaugeVec::new(Opts::new(format!("zticket_{name}"), help), labels)?;
        registry.register(Box::new(gauge.clone()))?;
        Ok::<_, prometheus::Error>(gauge)
    };
    let counter = |name: &str, help: &str, labels: &[&str]| {
        let counter = CounterVec::new(Opts::new(format!("zticket_{name}"), help), labels)?;
        registry.register(Box::new(counter.clone()))?;
        Ok::<_, prometheus::Error>(counter)
    };
    let connections = gauge("pool_connections", "Connections of a pool, by what they do.", &["pool", "state"])?;
    let most = gauge("pool_connections_max", "The most connections that a pool opens.", &["pool"])?;
    let waiting = gauge("pool_waiting", "Callers that wait for a connection.", &["pool"])?;
    for (pool, status) in site.stores.pools() {
        let idle = status.available.min(status.size);
        connections.with_label_values(&[pool, "idle"]).set(idle as f64);
        connections.with_label_values(&[pool, "in use"]).set((status.size - idle) as f64);
        most.with_label_values(&[pool]).set(status.max_size as f64);
        waiting.with_label_values(&[pool]).set(status.waiting as f64);
    }
    let busy = counter("web_worker_busy_seconds_total", "Time that a web worker was at work.", &["worker"])?;
    for (number, time) in (1..).zip(site.workers.busy()) {
        busy.with_label_values(&[&number.to_string()]).inc_by(time.as_secs_f64());
    }
    let own = counter("cpu_seconds_total", "Processor time of this server.", &["mode"])?;
    for (mode, seconds) in machine::own_seconds() {
        own.with_label_values(&[mode]).inc_by(seconds);
    }
    let processors =
        counter("machine_cpu_seconds_total", "How the processors of this machine spend their time.", &["mode"])?;
    for (mode, seconds) in site.processors.seconds() {
        processors.with_label_values(&[mode]).inc_by(seconds);
    }
    let count = gauge("cpus", "Processors that this server may use.", &[])?;
    count.with_label_values::<&str>(&[]).set(machine::processor_count() as f64);
    let allocated = gauge("allocated_bytes", "Memory that the allocator has from the system and uses.", &[])?;
    if let Some(bytes) = machine::allocated_bytes() {
        allocated.with_label_values::<&str>(&[]).set(bytes as f64);
    }
    let build = gauge("build_info", "1, with the version of this server.", &["version"])?;
    build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
    Ok(registry.gather())
}
