//! Two versions of the server side by side, as during every update: each calls the scripts it came with.

use std::borrow::Cow;
use std::net::TcpListener;
use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use zticket::base::metrics::Metrics;
use zticket::server::loops::Loops;
use zticket::server::parts::{self, Parts};
use zticket::server::run::Background;
use zticket::store::redis::scripts::{SOURCES, Scripts, Source};
use zticket::web::serve;
use zticket_testkit::{PATIENCE, eventually};

use crate::support::app::answer;
use crate::support::{TestApp, Visitor};

/// The same script, as a later version has it.
fn later(source: &Source) -> Cow<'static, str> {
    format!("{}\n-- a later version\n", source.text).into()
}

fn hash(text: &str) -> String {
    redis::Script::new(text).get_hash().to_owned()
}

/// A server with later scripts, on the same Redis and database. Returns its address.
async fn later_server(app: &TestApp) -> (Arc<Parts>, String) {
    let metrics = Arc::new(Metrics::new().unwrap());
    let scripts = Scripts::with_texts(metrics.clone(), later);
    let (built, to_settle) = parts::build_with(app.config(), scripts, metrics).await.unwrap();
    built.start_settling(to_settle);
    assert!(built.restorer.prepare_all(PATIENCE).await.failed.is_empty());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(serve::serve(built.site.clone(), listener).unwrap());
    let loops = Loops::start(&built);
    tokio::spawn(async move {
        // They run as long as the test does.
        let _loops = loops;
        std::future::pending::<()>().await;
    });
    (built, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_different_script_versions_work_side_by_side() {
    let app = TestApp::start_with(Background::Running, |config| {
        config.seat_count = 200;
        (config.policy.batch, config.policy.max_active) = (100, 100);
    })
    .await;
    let (_later, later_url) = later_server(&app).await;
    let urls = [app.url(""), later_url];
    let forgets = app.redis.connect().await.unwrap();
    let visits = (0..60_usize).map(|at| {
        let (app, urls, mut forgets) = (&app, &urls, forgets.clone());
        async move {
            // Every step at the other server than the one before.
            let post = |step: usize, path: &str| app.client.post(format!("{}{path}", urls[(at + step) % 2]));
            let (status, body) = answer(post(0, "/api/queues/tokens")).await;
            assert_eq!(status, 200, "{body}");
            let visitor = Visitor(body["uuid"].as_str().unwrap().to_owned());
            if at % 10 == 5 {
                let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut forgets).await.unwrap();
            }
            eventually("inside", async || {
                let poll = format!("{}/api/queues/tokens/{}", urls[(at + 1) % 2], visitor.0);
                let (status, body) = answer(app.client.request(Method::GET, poll)).await;
                assert_eq!(status, 200, "{body}");
                (body["status"] == "ACTIVE").then_some(())
            })
            .await;
            let as_visitor = |step, path: &str| post(step, path).header("X-Queue-Token", &visitor.0);
            let (status, body) = answer(as_visitor(1, &format!("/api/seats/{}/hold", at + 1))).await;
            assert_eq!(status, 200, "{body}");
            let (status, body) = answer(as_visitor(2, "/api/tickets").json(&json!({ "seatNumber": at + 1 }))).await;
            assert_eq!(status, 200, "{body}");
            visitor.place()
        }
    });
    let mut places = join_all(visits).await;
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 60, "no place was given twice");

    // Each knows its own text by its own hash, and Redis knows both.
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
    for url in &urls {
        assert_eq!(answer(app.client.post(format!("{url}/api/queues/tokens"))).await.0, 200);
    }
    let enter = SOURCES.iter().find(|source| source.name == "1_line_enter").unwrap();
    let hashes = [hash(enter.text), hash(&later(enter))];
    assert_ne!(hashes[0], hashes[1]);
    let mut ask = redis::cmd("SCRIPT");
    ask.arg("EXISTS").arg(&hashes);
    let known: Vec<bool> = ask.query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
    assert_eq!(known, [true, true]);
    assert_eq!(app.db.number("SELECT count(*) AS n FROM tickets").await.unwrap(), 60);
    app.finish().await;
}
