//! What `monitoring/` provisions, against a real Prometheus and real exporters. `scripts/tools` finds or unpacks them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;
use zticket_testkit::process::{find, output};
use zticket_testkit::{Database, Process, Redis, Server, ports};

use crate::process::zticket;
use crate::support::{database, single_redis};

const DASHBOARD: &str = include_str!("../../monitoring/grafana/dashboards/zticket.json");
const CONFIG: &str = include_str!("../../monitoring/prometheus/prometheus.yml");
const ALERTS: &str = include_str!("../../monitoring/prometheus/alerts.yml");
const ALERT_TESTS: &str = include_str!("../../monitoring/prometheus/alerts_test.yml");
const GUIDE: &str = include_str!("../../docs/OPERATIONS.md");

fn yaml(text: &str) -> Value {
    yaml_serde::from_str(text).unwrap()
}

/// Names and expressions of all alerts.
fn alerts() -> BTreeMap<String, String> {
    let rules = yaml(ALERTS);
    let groups = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    groups.map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

/// Titles and queries of all panels.
fn queries() -> Vec<(String, String)> {
    fn walk(panels: &Value, found: &mut Vec<(String, String)>) {
        for panel in panels.as_array().into_iter().flatten() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                found.push((panel["title"].to_string(), target["expr"].as_str().unwrap().to_owned()));
            }
            walk(&panel["panels"], found);
        }
    }
    let mut found = Vec::new();
    walk(&serde_json::from_str::<Value>(DASHBOARD).unwrap()["panels"], &mut found);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_are_sound_and_each_is_tested_and_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring/prometheus");
    let (files, promtool) = (tempfile::tempdir().unwrap(), find("ZT_PROMTOOL", "promtool").unwrap());
    for call in
        [["check", "config", "prometheus.yml"], ["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]]
    {
        let mut command = Command::new(&promtool);
        command.args(call).current_dir(&folder);
        output(&call.join("-"), &mut command, files.path(), Duration::from_secs(120)).await.unwrap();
    }
    let tests = yaml(ALERT_TESTS);
    let cases = tests["tests"].as_array().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let mut tested: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for case in cases {
        let fires = case["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
        tested.entry(case["alertname"].as_str().unwrap()).or_default().insert(fires);
    }
    for alert in alerts().keys() {
        let both = BTreeSet::from([false, true]);
        assert_eq!(tested.get(alert.as_str()), Some(&both), "{alert} is tested both firing and silent");
        assert!(GUIDE.contains(&format!("\n### {alert}\n")), "{alert} is in the guide");
    }
}

/// A Prometheus that scrapes a server and the exporters of its stores every second.
struct Prometheus {
    url: String,
    client: Client,
    _processes: [Process; 3],
    _files: TempDir,
}

impl Prometheus {
    async fn start(management: u16, db: &Database, redis: &Redis) -> Self {
        let files = tempfile::tempdir().unwrap();
        let [own, of_redis, of_postgres] = [(); 3].map(|()| ports::free().unwrap());
        let start = |name: &str, program: &PathBuf, change: &dyn Fn(&mut Command)| {
            let mut command = Command::new(program);
            change(&mut command);
            let log = std::fs::File::create(files.path().join(format!("{name}.log"))).unwrap();
            Process::start(name, command.stdout(log.try_clone().unwrap()).stderr(log)).unwrap()
        };
        let exporter = find("ZT_REDIS_EXPORTER", "prometheus-redis-exporter").unwrap();
        let redis_exporter = start("redis-exporter", &exporter, &|command| {
            let listen = format!("127.0.0.1:{of_redis}");
            let address = redis.url().replace("redis+unix:", "unix:");
            command.args(["-redis.addr", &address, "-web.listen-address", &listen]);
        });
        let exporter = find("ZT_POSTGRES_EXPORTER", "prometheus-postgres-exporter").unwrap();
        let postgres_exporter = start("postgres-exporter", &exporter, &|command| {
            command.arg(format!("--web.listen-address=127.0.0.1:{of_postgres}"));
            command.env("DATA_SOURCE_NAME", format!("{}?sslmode=disable", db.url));
        });
        let local = |port: u16| format!("127.0.0.1:{port}");
        let config = CONFIG
            .replace("10s", "1s")
            .replace("server:18080", &local(management))
            .replace("redis-exporter:9121", &local(of_redis))
            .replace("postgres-exporter:9187", &local(of_postgres))
            .replace("localhost:9090", &local(own));
        std::fs::write(files.path().join("prometheus.yml"), config).unwrap();
        std::fs::write(files.path().join("alerts.yml"), impatient(ALERTS)).unwrap();
        let prometheus = start("prometheus", &find("ZT_PROMETHEUS", "prometheus").unwrap(), &|command| {
            let at = |option: &str, path: &str| format!("--{option}={}", files.path().join(path).display());
            command.arg(at("config.file", "prometheus.yml")).arg(at("storage.tsdb.path", "data"));
            command.arg(format!("--web.listen-address={}", local(own)));
        });
        Self {
            url: format!("http://{}", local(own)),
            client: Client::new(),
            _processes: [prometheus, redis_exporter, postgres_exporter],
            _files: files,
        }
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Option<Value> {
        let url = reqwest::Url::parse_with_params(&format!("{}/api/v1/{path}", self.url), query).unwrap();
        self.client.get(url).send().await.ok()?.json().await.ok()
    }

    /// Whether a query has an answer with a number in it.
    async fn has_data(&self, query: &str) -> bool {
        let Some(answer) = self.ask("query", &[("query", query)]).await else { return false };
        assert_eq!(answer["status"], "success", "{query}\n{answer}");
        let results = answer["data"]["result"].as_array().unwrap();
        results.iter().any(|result| result["value"][1].as_str().is_some_and(|value| value != "NaN"))
    }

    /// The names of the alerts that fire; `None` if Prometheus does not answer.
    async fn firing(&self) -> Option<BTreeSet<String>> {
        let answer = self.ask("alerts", &[]).await?;
        let firing = answer["data"]["alerts"].as_array()?.iter().filter(|alert| alert["state"] == "firing");
        Some(firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect())
    }

    /// Waits until each of these queries has data.
    async fn wait_for_data(&self, queries: impl IntoIterator<Item = (String, String)>) {
        let started = Instant::now();
        let mut missing: Vec<(String, String)> = queries.into_iter().collect();
        while !missing.is_empty() {
            let answers = join_all(missing.iter().map(|(_, query)| self.has_data(query))).await;
            let mut answers = answers.into_iter();
            missing.retain(|_| !answers.next().unwrap());
            assert!(started.elapsed() < Duration::from_secs(60), "without data: {missing:#?}");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Waits until all of these alerts fire, or none of them does.
    async fn wait_for_alerts(&self, server: &Server, fire: bool, wanted: &[&str]) {
        let started = Instant::now();
        loop {
            let firing = self.firing().await;
            if firing.as_ref().is_some_and(|firing| wanted.iter().all(|alert| firing.contains(*alert) == fire)) {
                return;
            }
            let said = || server.log().unwrap_or_default();
            assert!(started.elapsed() < Duration::from_secs(60), "firing: {firing:?}, wanted: {wanted:?}, {}", said());
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

/// The rules without their patience: a test does not wait for minutes.
fn impatient(rules: &str) -> String {
    let at_once = |line: &str| match line.trim_start().strip_prefix("for: ") {
        Some(_) => format!("{}for: 0s", &line[..line.len() - line.trim_start().len()]),
        None => line.replace("zticket_settling_lag_seconds) > 30", "zticket_settling_lag_seconds) > 1"),
    };
    rules.lines().map(at_once).collect::<Vec<_>>().join("\n")
}

/// A visitor's whole way, again and again: joins, polls, holds, buys, and every third time cancels.
async fn visit(client: &Client, url: &str) {
    let ask = async |request: RequestBuilder| -> Option<Value> { request.send().await.ok()?.json().await.ok() };
    for round in 0_u32.. {
        let way = async {
            let joined = ask(client.post(format!("{url}/api/queues/tokens"))).await?;
            let token = joined["uuid"].as_str()?.to_owned();
            while ask(client.get(format!("{url}/api/queues/tokens/{token}"))).await?["status"] != "ACTIVE" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let with_token = |request: RequestBuilder| request.header("X-Queue-Token", &token);
            let best = client.post(format!("{url}/api/seats/best")).json(&json!({ "count": 1 }));
            let held = ask(with_token(best)).await?;
            ask(with_token(client.get(format!("{url}/api/seats")))).await?;
            let buy = client.post(format!("{url}/api/tickets")).json(&json!({ "seatNumbers": held["seatNumbers"] }));
            let order = ask(with_token(buy)).await?;
            if round.is_multiple_of(3) {
                let ticket = order["tickets"][0]["ticketId"].as_str()?;
                ask(with_token(client.delete(format!("{url}/api/tickets/{ticket}")))).await?;
            }
            Some(())
        };
        if way.await.is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_and_rule_gets_data_and_the_alerts_that_matter_most_fire() {
    let (db, redis) = (database().await, single_redis().await);
    let (port, management) = (ports::free().unwrap(), ports::free().unwrap());
    let small = zticket(&db.url, &redis.url())
        .on(port, management)
        .without_limits()
        .set("ZTICKET_ADMISSION_MAX_ACTIVE_USERS", 3)
        .set("ZTICKET_ADMISSION_INTERVAL_MS", 100)
        .set("ZTICKET_SEAT_TOTAL_COUNT", 20_000);
    let mut server = small.start().unwrap();
    let url = server.url().await.unwrap();
    let client = Client::new();
    // So that a page is among what is measured.
    client.get(&url).send().await.unwrap();
    let sale: Vec<_> = (0..8)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move { visit(&client, &url).await })
        })
        .collect();
    let prometheus = Prometheus::start(management, &db, &redis).await;
    let lately = |query: String| query.replace("$__rate_interval", "8s").replace("$event", ".+");
    prometheus.wait_for_data(queries().into_iter().map(|(title, query)| (title, lately(query)))).await;
    let matter_most =
        ["ZTicketRedisRefusesWrites", "ZTicketErrorRate", "ZTicketEventNeedsRepair", "ZTicketSettlingLag"];
    // Nothing is wrong yet.
    let firing = prometheus.firing().await.unwrap();
    assert!(matter_most.iter().all(|alert| !firing.contains(*alert)), "{firing:?}");

    // Redis loses everything and takes no writes: nothing can be rebuilt, and what was sold cannot be settled.
    let mut conn = redis.connect().await.unwrap();
    let config = |name: &'static str, value: u32| redis::cmd("CONFIG").arg("SET").arg(name).arg(value).clone();
    // Cancels too: the first order of each visitor is one, and a busy machine sells few others.
    let unsettle = "UPDATE tickets SET settled_at = NULL, status = replace(status, 'SYNCED', 'PAID')";
    // Both at once: a server that finds nothing rebuilds it within milliseconds.
    let mut at_once = redis::pipe();
    at_once.atomic().cmd("FLUSHALL").add_command(config("min-replicas-to-write", 1));
    let _: () = at_once.query_async(&mut conn).await.unwrap();
    db.execute(unsettle).await.unwrap();
    prometheus.wait_for_alerts(&server, true, &matter_most).await;
    // Each side of each comparison has numbers, whether they are too high or not.
    let compared = |query: String| {
        [" > ", " < ", " == "].iter().fold(query, |query, sign| query.replace(sign, &format!("{sign}bool ")))
    };
    prometheus.wait_for_data(alerts().into_iter().map(|(alert, query)| (alert, compared(query)))).await;

    let _: () = config("min-replicas-to-write", 0).query_async(&mut conn).await.unwrap();
    prometheus.wait_for_alerts(&server, false, &["ZTicketEventNeedsRepair", "ZTicketSettlingLag"]).await;
    sale.iter().for_each(tokio::task::JoinHandle::abort);
    server.stop().await.unwrap();
    prometheus.wait_for_alerts(&server, true, &["ZTicketDown"]).await;
    drop(prometheus);
    db.remove().await.unwrap();
}
