//! The obvious way to run a waiting line, for `make bench` to measure against: two sorted sets in Redis, one for the
//! order and one for the last sign of life, and one command after the other. Web server, allocator, number of workers
//! and connection pool are those of ZTicket.
//!
//! With `--multiplex` it does without the pool and shares one connection among all requests of a worker, which is less
//! obvious and faster: no connection has to be checked before use, and commands of many requests travel together.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use actix_web::error::{ErrorInternalServerError, ErrorServiceUnavailable};
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::web::{self, Data, Path};
use actix_web::{App, HttpResponse, HttpServer};
use clap::Parser;
use redis::aio::ConnectionLike;
use redis::{AsyncCommands, RedisError};
use serde::Serialize;
use uuid::Uuid;
use zticket::store::redis::links::{Address, Link, Pool, Pooled};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Member: token; score: when it came, µs.
const ORDER: &str = "obvious:order";
/// Member: token; score: when it was last heard from, ms.
const HEARTBEAT: &str = "obvious:heartbeat";
/// As a server without a policy would say it.
const POLL_AFTER_MS: u64 = 5000;
/// Members in one command while filling.
const TOGETHER: u32 = 2000;

/// A waiting line on two sorted sets. Reads REDIS_URL.
#[derive(Parser)]
struct Cli {
    #[arg(long, default_value = "127.0.0.1:8090")]
    bind: SocketAddr,
    /// One shared connection a worker instead of a pool
    #[arg(long)]
    multiplex: bool,
    /// Put this many into the line and exit
    #[arg(long, value_name = "N")]
    fill: Option<u32>,
    /// While filling: how many of their tokens to print, evenly spread
    #[arg(long, value_name = "N", default_value_t = 0)]
    tokens: u32,
}

#[derive(Serialize)]
#[serde(tag = "status", rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
enum Status {
    Waiting { uuid: Uuid, rank: u64, ahead_count: u64, poll_after_ms: u64 },
    Active { uuid: Uuid, poll_after_ms: u64 },
}

fn waiting(uuid: Uuid, ahead_count: u64) -> Status {
    Status::Waiting { uuid, rank: ahead_count + 1, ahead_count, poll_after_ms: POLL_AFTER_MS }
}

fn answer(status: &Status) -> HttpResponse {
    let mut response = HttpResponse::Ok().json(status);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// How a request comes by a connection.
trait Connect: Sized + 'static {
    type Conn: ConnectionLike + Send + Sync;

    fn new(url: &str) -> Result<Self, zticket::base::error::Error>;

    async fn connection(&self) -> actix_web::Result<Self::Conn>;
}

impl Connect for Pool {
    type Conn = Pooled;

    fn new(url: &str) -> Result<Self, zticket::base::error::Error> {
        zticket::store::redis::links::pool(&Address::parse(url)?)
    }

    async fn connection(&self) -> actix_web::Result<Pooled> {
        self.get().await.map_err(ErrorServiceUnavailable)
    }
}

impl Connect for Link {
    type Conn = Link;

    fn new(url: &str) -> Result<Self, zticket::base::error::Error> {
        zticket::store::redis::links::link(&Address::parse(url)?)
    }

    async fn connection(&self) -> actix_web::Result<Link> {
        Ok(self.clone())
    }
}

fn failed(error: RedisError) -> actix_web::Error {
    ErrorServiceUnavailable(error)
}

async fn enter<C: Connect>(redis: Data<C>) -> actix_web::Result<HttpResponse> {
    let mut conn = redis.connection().await?;
    let (uuid, now) = (Uuid::now_v7(), now_us());
    let mut buffer = Uuid::encode_buffer();
    let member: &str = uuid.hyphenated().encode_lower(&mut buffer);
    let () = conn.zadd(ORDER, member, now).await.map_err(failed)?;
    let () = conn.zadd(HEARTBEAT, member, now / 1000).await.map_err(failed)?;
    let ahead: Option<u64> = conn.zrank(ORDER, member).await.map_err(failed)?;
    let ahead = ahead.ok_or_else(|| ErrorInternalServerError("the token is gone already"))?;
    Ok(answer(&waiting(uuid, ahead)))
}

async fn status<C: Connect>(redis: Data<C>, uuid: Path<Uuid>) -> actix_web::Result<HttpResponse> {
    let mut conn = redis.connection().await?;
    let uuid = uuid.into_inner();
    let mut buffer = Uuid::encode_buffer();
    let member: &str = uuid.hyphenated().encode_lower(&mut buffer);
    if conn.exists(format!("obvious:pass:{member}")).await.map_err(failed)? {
        return Ok(answer(&Status::Active { uuid, poll_after_ms: POLL_AFTER_MS }));
    }
    let ahead: Option<u64> = conn.zrank(ORDER, member).await.map_err(failed)?;
    let Some(ahead) = ahead else { return Ok(HttpResponse::NotFound().finish()) };
    let () = conn.zadd(HEARTBEAT, member, now_us() / 1000).await.map_err(failed)?;
    Ok(answer(&waiting(uuid, ahead)))
}

async fn livez() -> &'static str {
    "ok"
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

async fn fill(pool: &Pool, count: u32, tokens: u32) -> Result<(), Box<dyn std::error::Error>> {
    let mut conn = pool.get().await?;
    let start = now_us();
    let tokens = tokens.min(count);
    let mut printed = 0;
    for first in (0..count).step_by(TOGETHER as usize) {
        let members: Vec<(u64, String)> = (first..count.min(first + TOGETHER))
            .map(|at| (start + u64::from(at), Uuid::now_v7().to_string()))
            .collect();
        for (at, (_, member)) in (first..).zip(&members) {
            if u64::from(printed) * u64::from(count) / u64::from(tokens.max(1)) == u64::from(at) && printed < tokens {
                println!("{member}");
                printed += 1;
            }
        }
        let heard: Vec<(u64, &String)> = members.iter().map(|(at, member)| (at / 1000, member)).collect();
        let () = redis::pipe()
            .zadd_multiple(ORDER, &members)
            .ignore()
            .zadd_multiple(HEARTBEAT, &heard)
            .ignore()
            .query_async(&mut conn)
            .await?;
    }
    Ok(())
}

#[actix_web::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("obvious: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").map_err(|_| "REDIS_URL is not set")?;
    if let Some(count) = cli.fill {
        return fill(&zticket::store::redis::links::pool(&Address::parse(&url)?)?, count, cli.tokens).await;
    }
    if cli.multiplex { serve::<Link>(cli.bind, url).await } else { serve::<Pool>(cli.bind, url).await }
}

async fn serve<C: Connect>(bind: SocketAddr, url: String) -> Result<(), Box<dyn std::error::Error>> {
    drop(C::new(&url)?);
    // The default number of workers, as in ZTicket. Each has a pool to itself: a connection that is used by another
    // thread than its own would wake that one for every command.
    let server = HttpServer::new(move || {
        let redis = C::new(&url);
        App::new()
            .configure(|config| {
                // The address was found to be good above.
                if let Ok(redis) = redis {
                    config.app_data(Data::new(redis));
                }
            })
            .route("/livez", web::get().to(livez))
            .route("/api/queues/tokens", web::post().to(enter::<C>))
            .route("/api/queues/tokens/{uuid}", web::get().to(status::<C>))
    });
    Ok(server.bind(bind)?.run().await?)
}
