//! The lab: its strategies keep or break what they are said to keep or break, and it leaves nothing behind.

use std::path::PathBuf;

use redis::AsyncCommands;
use zticket::lab::command::{self, Failure, Lab, Part};
use zticket::store::redis::keys::Keys;
use zticket_testkit::{Database, Redis, eventually};

use crate::support::{empty_database, start_redis};

const CONNECTIONS: usize = 10;

fn lab(part: Part) -> Lab {
    Lab { buyers: vec![30], seats: 1, runs: 3, waiting: vec![1000], seconds: 1, only: vec![part], html: None }
}

async fn run(lab: &Lab, db: &Database, redis: &Redis) -> Result<String, Failure> {
    let mut out = Vec::new();
    command::run(lab, &db.url, CONNECTIONS, &redis.url(), &mut out).await?;
    Ok(String::from_utf8(out).unwrap())
}

/// Name and cells of each row of the tables.
fn rows(report: &str) -> Vec<(String, Vec<String>)> {
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let table = report.lines().filter(|line| line.starts_with("| ")).map(cells);
    table.map(|cells| (cells[0].clone(), cells[1..].to_vec())).collect()
}

/// The highest number in a cell such as `2–7` or `−3,000 (!)`.
fn most(cell: &str) -> u64 {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    cell.split('–').map(|text| digits(text).parse().unwrap()).max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_broken_strategies_sell_a_seat_twice() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let report = run(&lab(Part::Seats), &db, &redis).await.unwrap();
    let rows = rows(&report);
    assert_eq!(rows.iter().filter(|(name, _)| name.ends_with("(broken)")).count(), 3, "{report}");
    for (name, cells) in rows.iter().filter(|(name, _)| name != "strategy") {
        assert_eq!(cells[0].trim_end_matches(" (!)"), cells[1], "{name}: {report}");
        if name.ends_with("(broken)") {
            assert!(most(&cells[0]) > 1, "{name} shows no bug: {report}");
        } else {
            assert_eq!((cells[0].as_str(), cells[4].as_str()), ("1", "0"), "{name}: {report}");
        }
    }

    // Nothing is left in either store.
    let schemas = db.number("SELECT count(*) AS n FROM pg_namespace WHERE nspname = 'zticket_lab'").await.unwrap();
    assert_eq!(schemas, 0);
    let mut conn = redis.connect_for(&Keys::lab()).await.unwrap();
    eventually("no key of the lab is left", async || {
        let left: Vec<String> = conn.keys("zt1:{lab}:*").await.unwrap();
        left.is_empty().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_broken_strategies_lose_money() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let report = run(&lab(Part::Balance), &db, &redis).await.unwrap();
    let rows = rows(&report);
    assert_eq!(rows.len(), 13, "all strategies that can count, and a head: {report}");
    for (name, cells) in rows.iter().filter(|(name, _)| name != "strategy") {
        if name.ends_with("(broken)") {
            assert!(most(&cells[1]) > 0, "{name} shows no bug: {report}");
        } else {
            assert_eq!(cells[1], "0", "{name}: {report}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_seats_are_sold_once_each() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let lab = Lab { buyers: vec![60], seats: 7, runs: 1, ..lab(Part::Seats) };
    let report = run(&lab, &db, &redis).await.unwrap();
    let sound = rows(&report).into_iter().filter(|(name, _)| name != "strategy" && !name.ends_with("(broken)"));
    assert!(sound.map(|(_, cells)| cells[0].clone()).all(|sold| sold == "7"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_tells_the_right_rank_and_the_bitmap_is_the_smallest() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let folder = tempfile::tempdir().unwrap();
    let page: PathBuf = folder.path().join("lab.html");
    // The lab itself fails if a rank is wrong.
    let report = run(&Lab { html: Some(page.clone()), ..lab(Part::Lines) }, &db, &redis).await.unwrap();
    let bytes = |line: &str| {
        let rows = rows(&report);
        let (_, cells) = rows.iter().find(|(name, _)| name == line).unwrap();
        cells[1].parse::<f64>().unwrap()
    };
    let bitmap = bytes("ZTicket: bitmap");
    assert!(bitmap < 1.0, "{report}");
    assert!(["table", "sorted set, Lua"].iter().all(|line| bytes(line) > 20.0 * bitmap), "{report}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("lang=\"ko\"") && page.ends_with("</html>"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lab_at_a_time_uses_a_database() {
    let (db, redis) = (empty_database().await, start_redis().await);
    let first = lab(Part::Lines);
    let second = lab(Part::Seats);
    let (first, second) = tokio::join!(run(&first, &db, &redis), async {
        eventually("the first lab is at work", async || {
            let schemas = "SELECT count(*) AS n FROM pg_namespace WHERE nspname = 'zticket_lab'";
            (db.number(schemas).await.unwrap() == 1).then_some(())
        })
        .await;
        run(&second, &db, &redis).await
    });
    first.unwrap();
    assert!(second.unwrap_err().to_string().contains("another lab"));
}
