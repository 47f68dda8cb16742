//! Which concerts sell best and which were sold out fastest.

use chrono::{TimeDelta, Timelike, Utc};
use futures_util::future::join_all;
use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use zticket::server::run::Background;
use zticket_testkit::eventually;

use crate::support::app::answer;
use crate::support::{TestApp, Visitor, plan};

async fn ranked(app: &TestApp, path: &str) -> Vec<(i64, i64)> {
    let (status, body) = answer(app.request(Method::GET, &format!("/api/rankings/{path}"))).await;
    assert_eq!(status, 200, "{body}");
    let entry = |(rank, entry): (usize, &Value)| {
        assert_eq!(entry["rank"], rank + 1);
        assert_eq!(entry["title"], "Night Train");
        let score = entry.get("ticketCount").or(entry.get("soldOutAfterMs")).unwrap();
        (entry["concertId"].as_i64().unwrap(), score.as_i64().unwrap())
    };
    body["items"].as_array().unwrap().iter().enumerate().map(entry).collect()
}

/// Waits until a ranking is as expected, which takes a second or two.
async fn becomes(app: &TestApp, path: &str, expected: &[(i64, i64)]) {
    eventually(path, async || {
        let now = ranked(app, path).await;
        (now == expected).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concerts_are_ranked_by_what_they_sold_and_a_cancel_counts() {
    // A time zone where it is noon now, so that no day ends during the test. (The signs of these zones are reversed.)
    let ahead = 12 - i64::from(Utc::now().hour());
    let noon = format!("Etc/GMT{}{}", if ahead > 0 { '-' } else { '+' }, ahead.abs());
    let app = TestApp::by_hand(|config| config.time_zone = noon.parse().unwrap()).await;
    let person = app.rich("A", 1_000_000).await;
    let (first, dates) = app.concert(&plan()).await;
    let (second, others) = app.concert(&plan()).await;
    assert_eq!(ranked(&app, "best-selling").await, []);
    let visitors = app.inside_of(dates[0], 1).await;
    app.pay(&visitors[0], &person, &[1]).await;
    let visitors = app.inside_of(others[0], 2).await;
    app.pay(&visitors[0], &person, &[1, 2]).await;
    let (_, order) = app.pay(&visitors[1], &person, &[3, 4]).await;
    let (a, b) = (i64::from(first.0), i64::from(second.0));
    app.settle().await;
    app.parts().rankings.step().await.unwrap();
    for period in ["today", "week", "all"] {
        becomes(&app, &format!("best-selling?period={period}"), &[(b, 4), (a, 1)]).await;
    }
    becomes(&app, "best-selling?limit=1", &[(b, 4)]).await;
    // Sold longer ago: neither today nor this week.
    app.db.execute("UPDATE tickets SET sold_at = now() - interval '8 days' WHERE seat_number > 2").await.unwrap();
    app.cancel(&person, &order["tickets"][0]["ticketId"]).await;
    app.settle().await;
    eventually("the cancel is settled", async || {
        app.parts().rankings.step().await.unwrap();
        (ranked(&app, "best-selling").await == [(b, 3), (a, 1)]).then_some(())
    })
    .await;
    becomes(&app, "best-selling?period=today", &[(b, 2), (a, 1)]).await;
    assert_eq!(ranked(&app, "sold-out").await, []);
    for wrong in ["best-selling?period=year", "best-selling?limit=0", "sold-out?period=week", "sold-out?x=1"] {
        let (status, body) = answer(app.request(Method::GET, &format!("/api/rankings/{wrong}"))).await;
        assert_eq!((status.as_u16(), &body["code"]), (400, &"INVALID_REQUEST".into()), "{wrong}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_on_several_servers_is_ranked_by_the_time_to_its_last_seat() {
    let app = TestApp::start_with(Background::Running, |config| config.policy.tickets_per_person = 0).await;
    let servers = [app.another(Background::Running).await, app.another(Background::Running).await];
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "price": 100, "rows": [6] }] });
    hall["dates"] =
        json!([{ "startsAt": Utc::now() + TimeDelta::days(3) }, { "startsAt": Utc::now() + TimeDelta::days(4) }]);
    let (concert, dates) = app.concert(&hall).await;
    app.concert(&plan()).await;
    let person = app.rich("A", 10_000).await;
    let addrs = [app.server.as_ref().unwrap().addr, servers[0].addr, servers[1].addr];
    // Twelve people buy the twelve seats of both dates, each on one of the servers.
    join_all((0..12_usize).map(|at| {
        let (app, person, addr, event) = (&app, &person, addrs[at % 3], dates[at / 6]);
        async move {
            let (_, body) = app.enter_as(event, None).await;
            let visitor = Visitor(body["uuid"].as_str().unwrap().to_owned());
            eventually("inside", async || (app.status(&visitor).await.1["status"] == "ACTIVE").then_some(())).await;
            let request = app.client.post(format!("http://{addr}/api/tickets")).bearer_auth(&person.key);
            let request = request.header("X-Queue-Token", &visitor.0);
            let (status, body) = answer(request.json(&json!({ "seatNumbers": [at % 6 + 1] }))).await;
            assert_eq!(status, 200, "{body}");
        }
    }))
    .await;
    let time = "SELECT (extract(epoch FROM max(t.sold_at) - min(c.opens_at)) * 1000)::bigint AS n FROM tickets t, concerts c \
                WHERE c.id = 1";
    let expected = app.db.number(time).await.unwrap();
    becomes(&app, "sold-out", &[(concert.0.into(), expected)]).await;
    for server in &servers {
        let url = format!("http://{}/api/rankings/sold-out", server.addr);
        let seen = eventually("every server shows it", async || {
            let (_, body) = answer(app.client.get(&url)).await;
            body["items"].get(0).cloned()
        })
        .await;
        assert_eq!(seen["soldOutAfterMs"], expected);
    }
    // The record stays when a seat comes back.
    let tickets = app.get_as(&person, "/api/users/me/tickets").await;
    assert_eq!(app.cancel(&person, &tickets["items"][0]["ticketId"]).await.0, 200);
    becomes(&app, "best-selling", &[(concert.0.into(), 11)]).await;
    assert_eq!(ranked(&app, "sold-out").await, [(concert.0.into(), expected)]);
    for server in servers {
        server.stop().await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_rankings_are_counted_anew_from_the_database() {
    let app = TestApp::by_hand(|_| {}).await;
    let person = app.rich("A", 1_000_000).await;
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "price": 100, "rows": [2] }] });
    let (concert, dates) = app.concert(&hall).await;
    let visitors = app.inside_of(dates[0], 1).await;
    app.pay(&visitors[0], &person, &[1, 2]).await;
    // Not counted while it sold: Redis has nothing, so the count comes from the database.
    becomes(&app, "best-selling", &[(concert.0.into(), 2)]).await;
    let sold_out = ranked(&app, "sold-out").await;
    assert_eq!(sold_out.len(), 1);
    let stored = async || {
        let mut stored = Vec::new();
        for node in &app.redis.nodes {
            let mut conn = node.connect().await.unwrap();
            let keys: Vec<String> = conn.keys("zt1:ranking:*").await.unwrap();
            stored.extend(keys.into_iter().map(|key| (conn.clone(), key)));
        }
        stored
    };
    let keys = stored().await;
    assert_eq!(keys.len(), 8);
    for (mut conn, key) in keys {
        let _: () = conn.del(key).await.unwrap();
    }
    eventually("they are there again", async || {
        assert_eq!(ranked(&app, "sold-out").await, sold_out);
        (stored().await.len() == 8).then_some(())
    })
    .await;
    becomes(&app, "best-selling?period=today", &[(concert.0.into(), 2)]).await;
    app.finish().await;
}
