//! Health and metrics.

use serde_json::{Value, json};
use zticket::server::run::Background;

use crate::support::{TestApp, single_redis};

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_the_server_and_its_stores() {
    let app = TestApp::by_hand(|_| {}).await;
    let response = app.client.get(app.management_url("/actuator/health")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let health: serde_json::Value = response.json().await.unwrap();
    assert_eq!(health["status"], "UP");
    for component in ["server", "postgres", "redis"] {
        assert_eq!(health["components"][component]["status"], "UP");
        assert!(health["components"][component]["detail"].is_string());
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_by_route_pattern_and_never_by_token() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitor = app.inside().await;
    app.hold(&visitor, 1).await;
    app.look().await;
    let text = app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap().text().await.unwrap();
    for line in [
        r#"zticket_http_requests_total{method="POST",route="/api/seats/{seat}/hold",status="200"} 1"#,
        r#"zticket_script_calls_total{reply="HELD",script="3_seat_hold"} 1"#,
        r#"zticket_inside{event="1"} 1"#,
        r#"zticket_seats_held{event="1"} 1"#,
        r#"zticket_seats_available{event="1"} 49"#,
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(&visitor.0));
    app.finish().await;
}

/// If a counter began at 0 and then jumped to what all servers counted before, a rate would show a crowd that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_nothing_of_an_event_that_it_has_not_looked_at() {
    let mut app = TestApp::by_hand(|_| {}).await;
    let visitor = app.enter().await;
    app.restart().await;
    let metrics = async |app: &TestApp| {
        app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap().text().await.unwrap()
    };
    let text = metrics(&app).await;
    for name in ["entered_total", "admitted_total", "waiting", "seats_available"] {
        assert!(!text.contains(&format!("zticket_{name}{{event=\"1\"}}")), "{name} is in\n{text}");
    }
    assert!(text.contains("zticket_tickets_sold_total{event=\"1\"} 0"), "what a server counts itself begins at 0");
    app.look().await;
    let text = metrics(&app).await;
    assert!(text.contains("zticket_entered_total{event=\"1\"} 1"), "{text}");
    assert!(!text.contains("zticket_waiting{"), "nobody asks about the event, so this would soon be old");
    app.status(&visitor).await;
    let text = metrics(&app).await;
    assert!(text.contains("zticket_waiting{event=\"1\"} 1"), "{text}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_needs_repair_until_any_server_has_repaired_it() {
    let app = TestApp::start_on(single_redis().await, Background::ByHand, |_| {}).await;
    let needs = async || {
        let text =
            app.client.get(app.management_url("/actuator/prometheus")).send().await.unwrap().text().await.unwrap();
        let line = text.lines().find(|line| line.starts_with("zticket_event_needs_repair{event=\"1\"}")).unwrap();
        line.ends_with(" 1")
    };
    assert!(!needs().await);
    let mut conn = app.redis.connect().await.unwrap();
    let refuse = |replicas: u32| redis::cmd("CONFIG").arg("SET").arg("min-replicas-to-write").arg(replicas).clone();
    let _: () = redis::cmd("FLUSHALL").query_async(&mut conn).await.unwrap();
    let _: () = refuse(1).query_async(&mut conn).await.unwrap();
    assert!(app.parts().restorer.ready(&app.event()).await.is_err());
    assert!(needs().await);
    let _: () = refuse(0).query_async(&mut conn).await.unwrap();
    // Another server repairs it, and this one only sees that it is there.
    app.another(Background::ByHand).await.stop().await;
    app.look().await;
    assert!(!needs().await);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_metrics_can_be_listed_and_looked_at_one_by_one() {
    let app = TestApp::by_hand(|_| {}).await;
    app.inside().await;
    let get = async |path: &str| {
        let response = app.client.get(app.management_url(path)).send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (_, list) = get("/actuator/metrics").await;
    let names: Vec<&str> = list["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.is_sorted());
    for wanted in [
        "zticket_http_requests_total",
        "zticket_http_request_duration_seconds",
        "zticket_script_duration_seconds",
        "zticket_pool_connections",
        "zticket_pool_wait_seconds",
        "zticket_pool_waiting",
        "zticket_web_worker_busy_seconds_total",
        "zticket_machine_cpu_seconds_total",
        "zticket_allocated_bytes",
        "zticket_build_info",
        "zticket_waiting",
        "zticket_settling_lag_seconds",
        "process_threads",
        "process_open_fds",
    ] {
        assert!(names.contains(&wanted), "{wanted} is missing in {names:?}");
        let (status, metric) = get(&format!("/actuator/metrics/{wanted}")).await;
        assert_eq!((status, &metric["name"]), (200, &json!(wanted)));
        assert!(metric["description"].as_str().is_some_and(|text| !text.is_empty()), "{metric}");
        assert!(metric["series"].as_array().is_some_and(|series| !series.is_empty()), "{metric}");
    }
    let (_, inside) = get("/actuator/metrics/zticket_admitted_total").await;
    assert_eq!((&inside["type"], &inside["labels"]), (&json!("counter"), &json!({ "event": ["1"] })));
    assert_eq!(inside["series"], json!([{ "labels": { "event": "1" }, "value": 1.0 }]));
    let (_, scripts) = get("/actuator/metrics/zticket_script_duration_seconds").await;
    assert!(scripts["series"][0]["count"].as_u64().unwrap() > 0, "{scripts}");
    assert_eq!(get("/actuator/metrics/unknown").await.0, 404);

    assert_eq!(get("/actuator/health/liveness").await, (200, json!({ "status": "UP" })));
    assert_eq!(get("/actuator/health/readiness").await, (200, json!({ "status": "UP" })));
    let (_, info) = get("/actuator/info").await;
    assert_eq!((&info["build"]["name"], &info["events"]), (&json!("zticket"), &json!(1)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn management_is_not_served_to_the_public() {
    let app = TestApp::by_hand(|_| {}).await;
    for path in ["/actuator/health", "/actuator/health/readiness", "/actuator/prometheus", "/actuator/metrics"] {
        assert_eq!(app.client.get(app.url(path)).send().await.unwrap().status(), 404);
    }
    app.finish().await;
}
