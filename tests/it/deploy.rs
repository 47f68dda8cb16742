//! What people run ZTicket with: docker-compose.yml and Dockerfile, checked without an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use zticket::server::config::Config;

const COMPOSE: &str = include_str!("../../docker-compose.yml");
const DOCKERFILE: &str = include_str!("../../Dockerfile");
const EXAMPLE: &str = include_str!("../../.env.example");

/// The services by name, with what they take over from a shared block.
fn services() -> BTreeMap<String, Value> {
    let mut file: yaml_serde::Value = yaml_serde::from_str(COMPOSE).unwrap();
    file.apply_merge().unwrap();
    let file = serde_json::to_value(&file).unwrap();
    file["services"].as_object().unwrap().clone().into_iter().collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// `${NAME:-default}` as it is when nobody sets NAME.
fn by_default(text: &str) -> String {
    match text.split_once("${").and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (name, after))) => {
            let default = name.split_once(":-").map_or("", |(_, default)| default);
            by_default(&format!("{before}{default}{after}"))
        }
        None => text.to_owned(),
    }
}

#[test]
fn compose_has_every_service_pinned_limited_and_checked() {
    let services = services();
    let names: BTreeSet<&str> = services.keys().map(String::as_str).collect();
    let expected =
        ["grafana", "k6", "kafka", "postgres", "postgres-exporter", "prometheus", "redis", "redis-exporter", "server"];
    assert_eq!(names, expected.into());
    for (name, service) in &services {
        match service["image"].as_str() {
            Some(image) => {
                let tag = image.split_once(':').map_or("", |(_, tag)| tag).trim_start_matches('v');
                let numbers =
                    tag.split(['.', '-']).filter(|part| part.bytes().all(|digit| digit.is_ascii_digit())).count();
                assert!(numbers >= 2, "{name}: {image} names no exact version");
            }
            None => assert_eq!(service["build"]["context"], ".", "{name}"),
        }
        let limits = &service["deploy"]["resources"]["limits"];
        assert!(limits["memory"].is_string() && limits["cpus"].is_string(), "{name} has no limits");
        if service["profiles"].is_null() {
            assert!(service["healthcheck"].is_object(), "{name} is not checked");
            assert_eq!(service["restart"], "unless-stopped", "{name}");
        }
        for port in strings(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port} to everyone");
        }
        for needed in service["depends_on"].as_object().into_iter().flatten() {
            assert!(
                services.contains_key(needed.0) && needed.1["condition"] == "service_healthy",
                "{name}: {needed:?}"
            );
        }
    }
    let port = |name: &str, port: u16| {
        let ports: Vec<String> = strings(&services[name]["ports"]).iter().map(|port| by_default(port)).collect();
        assert!(ports.contains(&format!("127.0.0.1:{port}:{port}")), "{name}: {ports:?}");
    };
    for (name, number) in
        [("server", 8080), ("server", 18080), ("postgres", 5432), ("redis", 6379), ("prometheus", 9090)]
    {
        port(name, number);
    }
    port("grafana", 3000);
    let redis = strings(&services["redis"]["command"]).join(" ");
    assert!(redis.contains("--appendonly yes") && redis.contains("--maxmemory-policy noeviction"), "{redis}");
}

#[test]
fn what_compose_mounts_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut mounted = 0;
    for (name, service) in services() {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let Some(source) = volume["source"].as_str() else { continue };
            assert!(root.join(source).exists(), "{name} mounts {source}");
            mounted += 1;
        }
        for word in strings(&service["command"]) {
            if let Some(script) = word.strip_prefix("/scripts/") {
                assert!(root.join("loadtest/k6").join(script).is_file(), "{name} runs {script}");
            }
        }
    }
    assert_eq!(mounted, 4);
    for file in ["provisioning/datasources/prometheus.yml", "provisioning/dashboards/zticket.yml"] {
        let text = std::fs::read_to_string(root.join("monitoring/grafana").join(file)).unwrap();
        yaml_serde::from_str::<Value>(&text).unwrap();
    }
}

#[test]
fn the_program_knows_every_setting_of_compose_and_of_the_example() {
    let server = services().remove("server").unwrap();
    let environment = server["environment"].as_object().unwrap();
    let vars = environment.iter().map(|(name, value)| (name.clone(), by_default(value.as_str().unwrap()))).collect();
    let config = Config::from_vars(vars).unwrap();
    assert_eq!(
        (config.bind.to_string(), config.management_bind.to_string()),
        ("0.0.0.0:8080".into(), "0.0.0.0:18080".into())
    );

    let line = |line: &str| -> Option<(String, String)> {
        let (name, value) = line.strip_prefix('#')?.split_once('=')?;
        let ours = name.starts_with("ZTICKET_") || matches!(name, "DATABASE_URL" | "REDIS_URL");
        ours.then(|| (name.to_owned(), value.to_owned()))
    };
    let example: BTreeMap<String, String> = EXAMPLE.lines().filter_map(line).collect();
    assert!(example.len() > 30);
    Config::from_vars(example).unwrap();
}

#[test]
fn the_image_runs_without_root_and_asks_for_readiness() {
    assert!(DOCKERFILE.contains("\nUSER "), "{DOCKERFILE}");
    assert!(DOCKERFILE.contains("HEALTHCHECK") && DOCKERFILE.contains("/actuator/health/readiness"));
    for image in DOCKERFILE.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        assert!(image.split_once(':').is_some_and(|(_, tag)| tag.contains('.')), "{image} names no exact version");
    }
}
