//! `deploy/nginx.conf` with a real nginx, TLS and two servers: streams, addresses, restarts. `scripts/tools` finds nginx.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use zticket_testkit::process::{find, output};
use zticket_testkit::{Database, Process, Redis, Server, Zticket, eventually, ports};

use crate::process::{terminate, zticket};
use crate::support::{database, single_redis};

const CONFIG: &str = include_str!("../../deploy/nginx.conf");

/// An nginx as the file describes it, on ports of its own.
struct Nginx {
    http: u16,
    https: u16,
    _process: Process,
    files: TempDir,
}

/// Debian's nginx keeps bodies under `/var/lib/nginx`, which only an installed package has.
fn temporary(folder: &str) -> String {
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    paths.map(|kind| format!("  {kind}_temp_path {folder}{kind};\n")).concat()
}

impl Nginx {
    async fn before(servers: [u16; 2]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str| files.path().join(name).display().to_string();
        let mut openssl = Command::new(find("ZT_OPENSSL", "openssl").unwrap());
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=tickets.example.com",
        ]);
        openssl.args(["-keyout", &path("key.pem"), "-out", &path("cert.pem")]);
        output("openssl", &mut openssl, files.path(), Duration::from_secs(30)).await.unwrap();

        let (http, https) = (ports::free().unwrap(), ports::free().unwrap());
        let changes = [
            ("user www-data;".to_owned(), String::new()),
            ("worker_rlimit_nofile 120000;".to_owned(), String::new()),
            ("worker_connections 50000;".to_owned(), "worker_connections 500;".to_owned()),
            ("/run/nginx.pid".to_owned(), path("nginx.pid")),
            ("http {".to_owned(), format!("http {{\n{}", temporary(&path("")))),
            ("/var/log/nginx/".to_owned(), path("")),
            ("/etc/letsencrypt/live/tickets.example.com/fullchain.pem".to_owned(), path("cert.pem")),
            ("/etc/letsencrypt/live/tickets.example.com/privkey.pem".to_owned(), path("key.pem")),
            ("listen 80;".to_owned(), format!("listen 127.0.0.1:{http};")),
            ("listen 443 ".to_owned(), format!("listen 127.0.0.1:{https} ")),
            ("server 127.0.0.1:8080 ".to_owned(), format!("server 127.0.0.1:{} ", servers[0])),
            ("server 127.0.0.1:8081 ".to_owned(), format!("server 127.0.0.1:{} ", servers[1])),
            // A stop takes a little longer than these, so they are short here.
            ("fail_timeout=3s".to_owned(), "fail_timeout=1s".to_owned()),
            ("keepalive_timeout 4s;".to_owned(), "keepalive_timeout 1s;".to_owned()),
        ];
        let mut config = CONFIG.to_owned();
        for (wanted, instead) in changes {
            assert!(config.contains(&wanted), "nginx.conf has no {wanted}");
            config = config.replace(&wanted, &instead);
        }
        // The test machine may have no IPv6.
        let config: Vec<&str> = config.lines().filter(|line| !line.contains("listen [::]")).collect();
        fs::write(files.path().join("nginx.conf"), config.join("\n")).unwrap();
        let mut nginx = Command::new(find("ZT_NGINX", "nginx").unwrap());
        nginx.args([
            "-p",
            &path(""),
            "-c",
            &path("nginx.conf"),
            "-g",
            "daemon off; master_process off;",
            "-e",
            &path("error.log"),
        ]);
        let process = Process::start("nginx", &mut nginx).unwrap();
        let nginx = Self { http, https, _process: process, files };
        eventually("nginx answers", async || (nginx.curl(&["/livez"]).await.ok()? == "ok").then_some(())).await;
        nginx
    }

    /// What curl prints for a path and its options, and whether it was content.
    async fn run_curl(&self, path_and_options: &[&str]) -> (bool, String) {
        let mut curl = tokio::process::Command::new(find("ZT_CURL", "curl").unwrap());
        curl.args(["--silent", "--show-error", "--insecure", "--max-time", "20"]);
        curl.arg(format!("https://127.0.0.1:{}{}", self.https, path_and_options[0])).args(&path_and_options[1..]);
        let output = curl.output().await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    async fn curl(&self, path_and_options: &[&str]) -> Result<String, String> {
        let (content, said) = self.run_curl(path_and_options).await;
        if content { Ok(said) } else { Err(said) }
    }

    async fn json(&self, path_and_options: &[&str]) -> Value {
        let text = self.curl(path_and_options).await.unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }
}

/// Two servers on the same stores, as the guide sets them up.
async fn two(change: impl Fn(Zticket) -> Zticket) -> ([Server; 2], [(Zticket, u16); 2], Database, Redis) {
    let (db, redis) = (database().await, single_redis().await);
    let make = || {
        let port = ports::free().unwrap();
        let server = zticket(&db.url, &redis.url()).on(port, 0).set("ZTICKET_TRUSTED_PROXIES", "127.0.0.1");
        (change(server.set("ZTICKET_DRAIN_MS", 1500)), port)
    };
    let (one, two) = (make(), make());
    let mut servers = [one.0.start().unwrap(), two.0.start().unwrap()];
    for server in &mut servers {
        server.logs("serving on").await.unwrap();
    }
    (servers, [one, two], db, redis)
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_reach_the_servers_through_tls_by_their_own_address_and_nothing_else() {
    let (mut servers, settings, db, _redis) = two(|server| server.set("ZTICKET_LIMIT_ENTER_PER_SECOND", 1)).await;
    let nginx = Nginx::before([settings[0].1, settings[1].1]).await;
    let plain = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let to_https = plain.get(format!("http://127.0.0.1:{}/concerts/1", nginx.http)).send().await.unwrap();
    assert_eq!(
        (to_https.status().as_u16(), to_https.headers()["location"].to_str().unwrap()),
        (308, "https://127.0.0.1/concerts/1")
    );

    let place = nginx.json(&["/api/queues/tokens", "-X", "POST"]).await;
    let token = place["uuid"].as_str().unwrap();
    // The first event of a stream comes at once; the stream itself goes on until curl gives up.
    let stream = [&format!("/api/queues/tokens/{token}/events"), "--no-buffer", "--max-time", "2"];
    let (ended, heard) = nginx.run_curl(&stream).await;
    assert!(!ended && heard.contains("event: status"), "{heard}");

    // A made-up address does not help: all joins come from one.
    let mut joins = tokio::process::Command::new(find("ZT_CURL", "curl").unwrap());
    for number in 0..40 {
        joins.args(["--silent", "--insecure", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code}\n"]);
        joins.args(["-X", "POST", "-H", &format!("X-Forwarded-For: 203.0.113.{number}")]);
        joins.args([&format!("https://127.0.0.1:{}/api/queues/tokens", nginx.https), "--next"]);
    }
    let answers = String::from_utf8(joins.output().await.unwrap().stdout).unwrap();
    let refused = answers.lines().filter(|code| *code == "429").count();
    assert!(refused > 10, "{refused} of 40 joins were refused: {answers}");
    for path in ["/actuator/health", "/actuator/prometheus", "/actuator", "//actuator/health", "/x/../actuator/health"]
    {
        let code = nginx.curl(&[path, "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}"]).await.unwrap();
        assert_eq!(code, "404", "{path}");
    }
    for server in &mut servers {
        terminate(server).await;
    }
    let away = nginx.json(&["/api/seats"]).await;
    assert_eq!(away["code"], "SERVICE_UNAVAILABLE", "programs get an answer of the usual form");
    // nginx writes its log now and then.
    let log = eventually("the log has the place", async || {
        let log = fs::read_to_string(nginx.files.path().join("access.log")).ok()?;
        log.contains(&format!("{}...", &token[..17])).then_some(log)
    });
    assert!(!log.await.contains(token), "a token is in the access log");
    db.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_restart_one_after_the_other_and_no_request_fails() {
    let (mut servers, settings, db, _redis) = two(Zticket::without_limits).await;
    let nginx = Nginx::before([settings[0].1, settings[1].1]).await;
    let place = nginx.json(&["/api/queues/tokens", "-X", "POST"]).await;
    let token = place["uuid"].as_str().unwrap();
    let numbers = "?n=[1-900]";
    let reads = [format!("/api/queues/tokens/{token}{numbers}"), format!("/api/seats{numbers}"), format!("/{numbers}")];
    // About twelve seconds, one after the other on one connection.
    let options = ["--rate", "70/s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}\n", "-X"];
    let codes = async |path: &str, method: &str| {
        let asked: Vec<&str> = [path].into_iter().chain(options).chain([method]).collect();
        nginx.curl(&asked).await.unwrap()
    };
    let restart = async {
        for (server, (settings, port)) in servers.iter_mut().zip(&settings) {
            terminate(server).await;
            *server = settings.start().unwrap();
            server.answers(&format!("http://127.0.0.1:{port}/livez")).await.unwrap();
        }
    };
    let joins = format!("/api/queues/tokens{numbers}");
    let (polls, seats, pages, joins, ()) = tokio::join!(
        codes(&reads[0], "GET"),
        codes(&reads[1], "GET"),
        codes(&reads[2], "GET"),
        codes(&joins, "POST"),
        restart,
    );
    for (what, codes) in [("polls", polls), ("seats", seats), ("pages", pages), ("joins", joins)] {
        let codes: Vec<&str> = codes.lines().collect();
        let failed: Vec<&&str> = codes.iter().filter(|code| **code != "200").collect();
        let said = || fs::read_to_string(nginx.files.path().join("error.log")).unwrap();
        assert!(codes.len() == 900 && failed.is_empty(), "{what}: {} answers, {failed:?}\n{}", codes.len(), said());
    }
    for server in &mut servers {
        terminate(server).await;
    }
    db.remove().await.unwrap();
}
