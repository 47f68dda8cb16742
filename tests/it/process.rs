//! The binary itself: how it starts, stops and complains.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::database::TestDatabase;
use crate::support::{Proxy, TestRedis, eventually};

pub fn zticket(db: &str, redis: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zticket"));
    command.env_clear().env("DATABASE_URL", db).env("REDIS_URL", redis).kill_on_drop(true);
    command.env("ZTICKET_BIND", "127.0.0.1:0").env("ZTICKET_MANAGEMENT_BIND", "127.0.0.1:0");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Reads the log until a line has this text, and returns that line.
pub async fn log_line(child: &mut Child, text: &str) -> String {
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let find = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("the log ended without {text:?}");
    };
    tokio::time::timeout(Duration::from_secs(20), find).await.unwrap()
}

pub fn address(line: &str) -> String {
    let (_, rest) = line.split_once("serving on ").unwrap();
    rest.split(',').next().unwrap().to_owned()
}

pub async fn terminate(child: &mut Child) -> Option<i32> {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    tokio::time::timeout(Duration::from_secs(20), child.wait()).await.unwrap().unwrap().code()
}

async fn complaint(name: &str, value: &str) -> Output {
    zticket("postgres://127.0.0.1:1/none", "redis://127.0.0.1:1").env(name, value).output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_in_the_configuration_is_named_and_exits_with_2() {
    let mistakes = [
        ("DATABASE_URL", "", "DATABASE_URL: is not set"),
        ("ZTICKET_BNID", "x", "ZTICKET_BNID: is not a setting"),
        ("ZTICKET_BIND", "x", "ZTICKET_BIND: must be an address"),
        ("ZTICKET_SYNC_INTERVAL_MS", "300000", "ZTICKET_SYNC_INTERVAL_MS: must be less"),
        ("ZTICKET_LOG", "=,", "ZTICKET_LOG: "),
    ];
    for (name, value, expected) in mistakes {
        let output = complaint(name, value).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{said:?} lacks {expected:?}");
        assert_eq!(output.status.code(), Some(2), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn help_and_version_need_no_configuration() {
    for flag in ["--help", "--version"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zticket"));
        let output = command.env_clear().arg(flag).output().await.unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("zticket"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_not_there_yet_is_waited_for_and_a_stop_exits_with_0() {
    let db = TestDatabase::empty().await;
    let mut redis = TestRedis::start().await;
    redis.kill();
    let mut server = zticket(&db.url, &redis.url()).spawn().unwrap();
    let line = log_line(&mut server, "is not there yet").await;
    assert!(line.contains("Redis at"), "{line}");
    redis.restart().await;
    let url = address(&log_line(&mut server, "serving on").await);

    let client = reqwest::Client::new();
    assert_eq!(client.get(format!("{url}/livez")).send().await.unwrap().text().await.unwrap(), "ok");
    let entered: serde_json::Value =
        client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
    assert_eq!(entered["rank"], 1);
    assert_eq!(terminate(&mut server).await, Some(0));
    let parked = "SELECT parked AS n FROM events WHERE id = 1";
    assert_eq!(db.number(parked).await, 1, "the stop in good order is noted");
    db.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_takes_connections_and_says_nothing_is_waited_for() {
    let (db, redis) = (TestDatabase::new().await, TestRedis::start().await);
    let mut url = db.url.clone();
    let proxy = Proxy::before(&mut url);
    proxy.stall();
    let mut server = zticket(&url, &redis.url()).spawn().unwrap();
    let line = log_line(&mut server, "is not there yet").await;
    assert!(line.contains("PostgreSQL at"), "{line}");
    assert_eq!(terminate(&mut server).await, Some(0), "waiting can be stopped");

    let mut server = zticket(&url, &redis.url()).spawn().unwrap();
    log_line(&mut server, "is not there yet").await;
    proxy.resume();
    log_line(&mut server, "serving on").await;
    assert_eq!(terminate(&mut server).await, Some(0));
    db.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_a_stop_is_finished_and_settled() {
    let (db, redis) = (TestDatabase::new().await, TestRedis::start().await);
    let mut server = zticket(&db.url, &redis.url()).env("ZTICKET_ADMISSION_INTERVAL_MS", "20").spawn().unwrap();
    let url = address(&log_line(&mut server, "serving on").await);
    let client = reqwest::Client::new();
    let mut buyers = Vec::new();
    for seat in 1..=20 {
        let entered: serde_json::Value =
            client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
        buyers.push((seat, entered["uuid"].as_str().unwrap().to_owned()));
    }
    for (_, token) in &buyers {
        eventually("inside", async || {
            let status: serde_json::Value =
                client.get(format!("{url}/api/queues/tokens/{token}")).send().await.ok()?.json().await.ok()?;
            (status["status"] == "ACTIVE").then_some(())
        })
        .await;
    }
    let purchases = futures_util::future::join_all(buyers.iter().map(|(seat, token)| {
        let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", token);
        request.json(&serde_json::json!({ "seatNumber": seat })).send()
    }));
    let (answers, code) = tokio::join!(purchases, terminate(&mut server));
    assert_eq!(code, Some(0));
    // Who was answered has a ticket; who came too late was not heard at all. Nothing sold is left unsettled.
    let sold = answers.into_iter().filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status() == 200)).count();
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets").await, sold as i64);
    assert_eq!(db.number("SELECT count(*) AS n FROM tickets WHERE status <> 'SYNCED'").await, 0);
    db.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_is_written_to_the_log_however_talkative() {
    let (db, redis) = (TestDatabase::new().await, TestRedis::start().await);
    let mut command = zticket(&db.url, &redis.url());
    command.env("ZTICKET_LOG", "trace").env("ZTICKET_LOG_FORMAT", "json").env("ZTICKET_ADMISSION_INTERVAL_MS", "20");
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let mut log = Vec::new();
    let url = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        let found = line.contains("serving on ").then(|| address(&line));
        log.push(line);
        if let Some(url) = found {
            break url;
        }
    };
    // Read on while the server is used, or it would wait for someone to read.
    let reading = tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            log.push(line);
        }
        log
    });
    let client = reqwest::Client::new();
    let entered: serde_json::Value =
        client.post(format!("{url}/api/queues/tokens")).send().await.unwrap().json().await.unwrap();
    let token = entered["uuid"].as_str().unwrap().to_owned();
    eventually("bought", async || {
        client.get(format!("{url}/api/queues/tokens/{token}")).send().await.ok()?;
        let request = client.post(format!("{url}/api/tickets")).header("X-Queue-Token", &token);
        let answer = request.json(&serde_json::json!({ "seatNumber": 1 })).send().await.ok()?;
        (answer.status() == 200).then_some(())
    })
    .await;
    assert_eq!(terminate(&mut server).await, Some(0));
    let log = reading.await.unwrap();
    assert!(log.len() > 20);
    for line in &log {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
        assert!(!line.contains(&token), "a token in the log: {line}");
    }
    db.drop().await;
}
