//! Health and metrics.

use crate::support::TestApp;

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

#[tokio::test(flavor = "multi_thread")]
async fn management_is_not_served_to_the_public() {
    let app = TestApp::by_hand(|_| {}).await;
    for path in ["/actuator/health", "/actuator/prometheus"] {
        assert_eq!(app.client.get(app.url(path)).send().await.unwrap().status(), 404);
    }
    app.finish().await;
}
