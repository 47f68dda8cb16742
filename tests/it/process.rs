//! The binary itself: how it starts, stops and complains.

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use actix_web::web::{Bytes, Data, post};
use actix_web::{App, HttpServer};
use serde_json::{Value, json};
use zticket_testkit::{Proxy, Server, Zticket, eventually, ports};

use crate::support::{TestApp, database, empty_database, start_redis};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zticket");

pub fn zticket(db: &str, redis: &str) -> Zticket {
    Zticket::new(PROGRAM, db, redis)
}

/// Stops a server cleanly: it exits with 0 within 20 seconds.
pub async fn terminate(server: &mut Server) {
    tokio::time::timeout(Duration::from_secs(20), server.stop()).await.unwrap().unwrap();
}

#[test]
fn a_mistake_in_the_configuration_is_named_and_exits_with_2() {
    let mistakes = [
        ("DATABASE_URL", "", "DATABASE_URL: is not set"),
        ("ZTICKET_BNID", "x", "ZTICKET_BNID: is not a setting"),
        ("ZTICKET_BIND", "x", "ZTICKET_BIND: must be an address"),
        ("ZTICKET_SYNC_INTERVAL_MS", "300000", "ZTICKET_SYNC_INTERVAL_MS: must be less"),
        ("ZTICKET_LOG", "=,", "ZTICKET_LOG: "),
        ("ZTICKET_BROKER", "kafka://nowhere", "ZTICKET_BROKER: must be redis, or an address"),
        #[cfg(not(feature = "kafka"))]
        ("ZTICKET_BROKER", "kafka://127.0.0.1:9092", "ZTICKET_BROKER: this build knows no Kafka"),
    ];
    for (name, value, expected) in mistakes {
        let zticket = zticket("postgres://127.0.0.1:1/none", "redis://127.0.0.1:1").set(name, value);
        let output = zticket.command().output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{said:?} lacks {expected:?}");
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}

#[test]
fn help_and_version_need_no_configuration() {
    for flag in ["--help", "--version"] {
        let output = Command::new(PROGRAM).env_clear().arg(flag).output().unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("zticket"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_waits_for_redis_at_start_and_a_stop_exits_with_0() {
    let db = empty_database().await;
    let mut redis = start_redis().await;
    redis.kill();
    let mut server = zticket(&db.url, &redis.url()).start().unwrap();
    let line = server.logs("is not there yet").await.unwrap();
    assert!(line.contains("Redis at"), "{line}");
    redis.restart().await.unwrap();
    let url = server.url().await.unwrap();

    let client = reqwest::Client::new();
    assert_eq!(client.get(format!("{url}/livez")).send().await.unwrap().text().await.unwrap(), "ok");
    let entered: Value = client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
    assert_eq!(entered["rank"], 1);
    terminate(&mut server).await;
    let parked = "SELECT parked AS n FROM events WHERE id = 1";
    assert_eq!(db.number(parked).await.unwrap(), 1, "a clean stop is recorded");
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_timed_by_their_names() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let (port, management) = (ports::free().unwrap(), ports::free().unwrap());
    // Whatever is logged.
    let mut server = zticket(&db.url, &redis.url()).on(port, management).set("ZTICKET_LOG", "error").start().unwrap();
    server.answers(&format!("http://127.0.0.1:{port}/api/seats/available-count")).await.unwrap();
    let url = format!("http://127.0.0.1:{management}/actuator/metrics/zticket_query_duration_seconds");
    for query in ["events.all", "events.line", "changes.unsettled", "controls.all"] {
        eventually(query, async || {
            let metric: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
            let mut series = metric["series"].as_array().unwrap().iter();
            let known = series.find(|series| series["labels"]["query"] == query)?;
            (known["count"].as_u64()? > 0).then_some(())
        })
        .await;
    }
    terminate(&mut server).await;
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_of_requests_reach_a_collector_and_have_no_token_in_them() {
    let heard: Data<Mutex<Vec<u8>>> = Data::default();
    let seen = heard.clone();
    let take = async |bytes: Bytes, heard: Data<Mutex<Vec<u8>>>| -> &'static str {
        heard.lock().unwrap().extend_from_slice(&bytes);
        ""
    };
    let collector = HttpServer::new(move || App::new().app_data(seen.clone()).route("/v1/traces", post().to(take)));
    let collector = collector.workers(1).disable_signals().bind(("127.0.0.1", 0)).unwrap();
    let address = collector.addrs()[0];
    let collector = collector.run();
    let (handle, _task) = (collector.handle(), tokio::spawn(collector));

    let (db, redis) = (database().await, start_redis().await);
    let traced = zticket(&db.url, &redis.url())
        .set("ZTICKET_OTLP_URL", format!("http://{address}"))
        .set("ZTICKET_TRACE_SHARE", 1);
    let mut server = traced.start().unwrap();
    let url = server.url().await.unwrap();
    let client = reqwest::Client::new();
    let entered: Value = client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
    let token = entered["uuid"].as_str().unwrap();
    client.get(format!("{url}/api/queues/tokens/{token}")).send().await.unwrap();
    client.delete(format!("{url}/api/queues/tokens/{token}")).send().await.unwrap();
    // A stop sends what is left.
    terminate(&mut server).await;

    let heard = heard.lock().unwrap().clone();
    let has = |text: &str| heard.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    for expected in ["zticket", "POST /api/queues/tokens", "GET /api/queues/tokens/{uuid}", "line_leave", "http.route"]
    {
        assert!(has(expected), "{expected} is in no trace");
    }
    assert!(!has(token) && !has("127.0.0.1"), "a token or an address is in a trace");
    handle.stop(false).await;
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_waits_for_a_database_that_does_not_answer() {
    let (db, redis) = (database().await, start_redis().await);
    let mut url = db.url.clone();
    let proxy = Proxy::before(&mut url).unwrap();
    proxy.stall();
    let mut server = zticket(&url, &redis.url()).start().unwrap();
    let line = server.logs("is not there yet").await.unwrap();
    assert!(line.contains("PostgreSQL at"), "{line}");
    // Waiting can be stopped.
    terminate(&mut server).await;

    let mut server = zticket(&url, &redis.url()).start().unwrap();
    server.logs("is not there yet").await.unwrap();
    proxy.resume();
    server.logs("serving on").await.unwrap();
    terminate(&mut server).await;
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_a_stop_is_finished_and_settled() {
    let (db, redis) = (database().await, start_redis().await);
    let mut server = zticket(&db.url, &redis.url()).set("ZTICKET_ADMISSION_INTERVAL_MS", 20).start().unwrap();
    let url = server.url().await.unwrap();
    let client = reqwest::Client::new();
    let mut buyers = Vec::new();
    for seat in 1..=20 {
        let entered: Value =
            client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
        buyers.push((seat, entered["uuid"].as_str().unwrap().to_owned()));
    }
    for (_, token) in &buyers {
        eventually("inside", async || {
            let status: Value =
                client.get(format!("{url}/api/queues/tokens/{token}")).send().await.ok()?.json().await.ok()?;
            (status["status"] == "ACTIVE").then_some(())
        })
        .await;
    }
    let purchases = futures_util::future::join_all(buyers.iter().map(|(seat, token)| {
        let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", token);
        request.json(&json!({ "seatNumber": seat })).send()
    }));
    let (answers, ()) = tokio::join!(purchases, terminate(&mut server));
    // Every buyer with an answer has a ticket; requests that came too late were not accepted. Every sale is settled.
    let sold = answers.into_iter().filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status() == 200)).count();
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), sold as i64);
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets WHERE status <> 'SYNCED'").await.unwrap(), 0);
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_no_token_at_any_level() {
    let (db, redis) = (database().await, start_redis().await);
    let zticket = zticket(&db.url, &redis.url()).set("ZTICKET_LOG", "trace").set("ZTICKET_LOG_FORMAT", "json");
    let mut server = zticket.set("ZTICKET_ADMISSION_INTERVAL_MS", 20).start().unwrap();
    let url = server.url().await.unwrap();
    let client = reqwest::Client::new();
    let entered: Value = client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
    let token = entered["uuid"].as_str().unwrap().to_owned();
    eventually("bought", async || {
        client.get(format!("{url}/api/queues/tokens/{token}")).send().await.ok()?;
        let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", &token);
        let answer = request.json(&json!({ "seatNumber": 1 })).send().await.ok()?;
        (answer.status() == 200).then_some(())
    })
    .await;
    terminate(&mut server).await;
    let log = server.log().unwrap();
    assert!(log.lines().count() > 20);
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "not JSON: {line}");
        assert!(!line.contains(&token), "a token in the log: {line}");
    }
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_writes_a_few_lines_however_many_requests_fail() {
    let (db, mut redis) = (empty_database().await, start_redis().await);
    let mut server = zticket(&db.url, &redis.url()).without_limits().start().unwrap();
    let url = server.url().await.unwrap();
    redis.kill();
    let client = reqwest::Client::new();
    for _ in 0..5 {
        let join = async |_| client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().status();
        let answers = futures_util::future::join_all((0..40).map(join)).await;
        assert!(answers.iter().all(|status| *status == 503), "{answers:?}");
    }
    let failed = server.log().unwrap().lines().filter(|line| line.contains("a request failed")).count();
    assert!((1..=20).contains(&failed), "{failed} lines");
    redis.restart().await.unwrap();
    terminate(&mut server).await;
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_stopped_while_it_starts_exits_with_0() {
    let db = empty_database().await;
    let redis = start_redis().await;
    let mut db_url = db.url.clone();
    let wire = Proxy::before(&mut db_url).unwrap();
    wire.stall();
    let mut servers: Vec<Server> = (0..4).map(|_| zticket(&db_url, &redis.url()).start().unwrap()).collect();
    for server in &mut servers {
        server.logs("is not there yet").await.unwrap();
        terminate(server).await;
        let log = server.log().unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_when_the_web_worker_that_asked_for_it_is_gone() {
    let app = TestApp::by_hand(|_| {}).await;
    let stores = app.parts().stores.clone();
    let (go_on, mut wait) = tokio::sync::mpsc::channel::<()>(1);
    let (done, finished) = tokio::sync::oneshot::channel();
    let worker = std::thread::spawn(move || {
        // A web worker has a runtime of its own, which ends with it.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = stores.run(async move {
                for _ in 0..3 {
                    wait.recv().await;
                }
                let _ = done.send(());
                Ok(())
            });
            let _ = tokio::time::timeout(Duration::from_millis(50), work).await;
        });
    });
    worker.join().unwrap();
    for _ in 0..3 {
        go_on.send(()).await.unwrap();
        tokio::task::yield_now().await;
    }
    finished.await.unwrap();
    app.finish().await;
}
