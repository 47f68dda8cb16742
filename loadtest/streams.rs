//! `make loadtest`: how soon people with an open stream are told that it is their turn. Everyone joins while the sale is
//! paused and opens a stream; then the sale goes on, and the time from each admission to its message is measured. When
//! somebody was admitted is read from Redis, on whose clock passes run. k6 knows no streams, so this is a program.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use redis::AsyncCommands;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// People who join, or open their stream, at the same time.
const AT_ONCE: usize = 64;

/// Measures how soon people with an open stream are told that it is their turn. REDIS_URL and ZTICKET_ADMIN_TOKEN are
/// those of the server.
#[derive(Parser)]
struct Cli {
    /// How many people have a stream open
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// host:port of the server
    #[arg(long, default_value = "127.0.0.1:8080")]
    server: String,
    /// An event in whose line nobody is
    #[arg(long, default_value_t = 1)]
    event: u32,
    /// How long a pass of this event lasts, as the server is configured
    #[arg(long, default_value_t = 300)]
    pass_seconds: u64,
    /// Give up after this time
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// The time in which 99 of 100 must be told, ms
    #[arg(long, default_value_t = 1000)]
    goal_ms: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match timeout(Duration::from_secs(cli.seconds), measure(&cli)).await {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            eprintln!("streams: {error}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("streams: not all were told within {} s", cli.seconds);
            ExitCode::FAILURE
        }
    }
}

async fn measure(cli: &Cli) -> Result<bool, Failure> {
    let http = reqwest::Client::new();
    control(&http, cli, "pause").await?;
    let mut people = join(&http, cli).await?;
    people.sort_unstable();
    eprintln!("streams: {} wait in the line", people.len());

    let open = Arc::new(Semaphore::new(AT_ONCE));
    let (opened, mut all_open) = tokio::sync::mpsc::channel::<()>(1);
    let mut streams = JoinSet::new();
    for (rank, token) in people {
        let (server, open, opened) = (cli.server.clone(), open.clone(), opened.clone());
        streams.spawn(async move {
            let turn = open.acquire_owned().await?;
            let mut stream = Stream::open(&server, &token).await?;
            stream.until("WAITING").await?;
            drop((turn, opened));
            stream.until("ACTIVE").await?;
            Ok::<_, Failure>((rank, now_ms()))
        });
    }
    drop(opened);
    // Ends when everyone has dropped their end of the channel.
    all_open.recv().await;
    eprintln!("streams: all are open; the sale goes on");
    control(&http, cli, "resume").await?;
    let mut told = Vec::with_capacity(cli.streams);
    while let Some(one) = streams.join_next().await {
        told.push(one??);
    }
    told.sort_unstable();

    let admitted = admissions(cli).await?;
    if admitted.len() != told.len() {
        return Err(
            format!("{} were told, {} are inside: was the line empty before?", told.len(), admitted.len()).into()
        );
    }
    // Places are handed out in the order of ranks.
    let time = |((_, told), at): (&(u64, u64), &u64)| told.checked_sub(*at);
    let times: Option<Vec<u64>> = told.iter().zip(&admitted).map(time).collect();
    let mut times = times.ok_or("somebody was told before being let in: is --pass-seconds right?")?;
    times.sort_unstable();
    let quantile = |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last()).copied().unwrap_or(0);
    let took =
        told.iter().map(|(_, at)| *at).max().unwrap_or(0).saturating_sub(admitted.iter().min().copied().unwrap_or(0));
    println!("\nStreams: from admission to being told\n");
    println!("| streams | told | p50 | p95 | p99 | p99.9 | max | all within |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    let [p50, p95, p99, p999, max] = [0.5, 0.95, 0.99, 0.999, 1.0].map(quantile);
    println!(
        "| {} | {} | {p50} ms | {p95} ms | {p99} ms | {p999} ms | {max} ms | {:.1} s |",
        cli.streams,
        told.len(),
        took as f64 / 1000.0
    );
    let kept = p99 < cli.goal_ms;
    println!("\n{}  p99 below {} ms", if kept { "kept  " } else { "BROKEN" }, cli.goal_ms);
    Ok(kept)
}

/// The ranks and tokens of all who joined.
async fn join(http: &reqwest::Client, cli: &Cli) -> Result<Vec<(u64, String)>, Failure> {
    let url = format!("http://{}/api/events/{}/queues/tokens", cli.server, cli.event);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut joining = JoinSet::new();
    for _ in 0..cli.streams {
        let (http, url, turns) = (http.clone(), url.clone(), turns.clone());
        joining.spawn(async move {
            let _turn = turns.acquire_owned().await?;
            let joined: Status = http.post(&url).send().await?.error_for_status()?.json().await?;
            let rank = joined.rank.ok_or("somebody was let in although the sale is paused")?;
            Ok::<_, Failure>((rank, joined.uuid))
        });
    }
    let mut people = Vec::with_capacity(cli.streams);
    while let Some(one) = joining.join_next().await {
        people.push(one??);
    }
    Ok(people)
}

async fn control(http: &reqwest::Client, cli: &Cli, what: &str) -> Result<(), Failure> {
    let url = format!("http://{}/api/admin/events/{}/{what}", cli.server, cli.event);
    http.post(url).bearer_auth(std::env::var("ZTICKET_ADMIN_TOKEN")?).send().await?.error_for_status()?;
    // In force on every server within a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// When each of those inside was let in, ms, in the order of their places.
async fn admissions(cli: &Cli) -> Result<Vec<u64>, Failure> {
    let mut conn = redis::Client::open(std::env::var("REDIS_URL")?)?.get_multiplexed_async_connection().await?;
    let mut passes: Vec<(u64, f64)> = conn.zrange_withscores(format!("zt1:{{e{}}}:passes", cli.event), 0, -1).await?;
    passes.sort_by_key(|(place, _)| *place);
    Ok(passes.into_iter().map(|(_, ends)| (ends as u64).saturating_sub(cli.pass_seconds * 1000)).collect())
}

/// Where a person stands.
#[derive(Deserialize)]
struct Status {
    uuid: String,
    status: String,
    /// Of those who wait.
    rank: Option<u64>,
}

/// A stream of one person.
struct Stream(BufReader<TcpStream>);

impl Stream {
    async fn open(server: &str, token: &str) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(server).await?;
        let request = format!("GET /api/queues/tokens/{token}/events HTTP/1.1\r\nHost: {server}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        Ok(Self(BufReader::with_capacity(512, stream)))
    }

    /// Reads until a message has this status.
    async fn until(&mut self, wanted: &str) -> Result<(), Failure> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line).await? == 0 {
                return Err("a stream ended early".into());
            }
            let Some(data) = line.strip_prefix("data: ").or_else(|| line.strip_prefix("data:")) else { continue };
            let status: Status = serde_json::from_str(data)?;
            if status.status == wanted {
                return Ok(());
            }
        }
    }
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
