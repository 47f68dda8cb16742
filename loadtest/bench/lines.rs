//! Polling and entering, with lines of three lengths, and what a long line costs Redis.

use std::sync::Arc;

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use zticket::base::ids::EventId;
use zticket::base::metrics::Metrics;
use zticket::store::redis::keys::{Key, Keys};
use zticket::store::redis::scripts::{Admit, PolicySet, Scripts, Sweep};
use zticket_testkit::Outcome;

use crate::Bench;
use crate::load::{Side, median};
use crate::report::{self, Target, short};
use crate::stack::{Obvious, Serving, Stack};

/// Let in at once by the admission that is timed.
const ADMITTED: u64 = 10_000;
/// Turns of the ring until every slice of it is full, and turns that are timed then.
const TURNS_TO_FILL: usize = 5;
const TURNS_TIMED: usize = 5;
const MULTIPLEXED: &str = "the obvious way, multiplexed";

impl Bench<'_> {
    /// Polling and entering, with lines of three lengths.
    pub async fn lines(&mut self, small: u32, middle: u32, large: u32) -> Outcome<()> {
        // Enough that admission, at its default pace, never runs out of seats.
        let settings = [("ZTICKET_SEAT_TOTAL_COUNT", 50_000)];
        let this = self.programs.zticket.as_path();
        self.say("filling the lines");
        let (small_stack, small_name) = (self.stack(this, "small", &settings).await?, short(small));
        let small_tokens = self.fill(&small_stack, small).await?;
        let (middle_stack, middle_name) = (self.stack(this, "middle", &settings).await?, short(middle));
        let middle_tokens = self.fill(&middle_stack, middle).await?;
        let (large_stack, large_name) = (self.stack(this, "large", &settings).await?, short(large));
        let large_tokens = self.fill(&large_stack, large).await?;
        let obvious = Obvious::new(self.programs, self.files).await?;
        let obvious_tokens = self.padded(obvious.fill(middle, self.tokens.min(middle)).await?)?;
        self.say("filled");

        let on_small = small_stack.serve().await?;
        let on_middle = middle_stack.serve().await?;
        let on_large = large_stack.serve().await?;
        let pooled = obvious.serve(false).await?;
        let multiplexed = obvious.serve(true).await?;
        let at_small = |kind| Side::new(kind, &small_name, &on_small, &small_tokens);
        let at_middle = |kind| Side::new(kind, &middle_name, &on_middle, &middle_tokens);
        let at_large = |kind| Side::new(kind, &large_name, &on_large, &large_tokens);
        let by_pool = |kind| Side::new(kind, "the obvious way", &pooled, &obvious_tokens);
        let by_link = |kind| Side::new(kind, "the obvious way, multiplexed", &multiplexed, &obvious_tokens);

        let what = |kind: &str, name: &str, beside: &str| format!("{kind}, {name} waiting ÷ {beside}");
        let [ceiling, poll] = self.alternate([self.extra(at_small("ceiling")), self.extra(at_small("poll"))]).await?;
        self.report.ratio(&what("poll", &small_name, "ceiling"), &poll, &ceiling, Target::None);
        let [ceiling, poll, pool, link] = self
            .alternate([
                self.extra(at_middle("ceiling")),
                Some(at_middle("poll")),
                Some(by_pool("poll")),
                self.extra(by_link("poll")),
            ])
            .await?;
        self.report.ratio(&what("poll", &middle_name, "ceiling"), &poll, &ceiling, Target::None);
        let obvious_polls = [(pool, "the obvious way", Target::AtLeast(4.0)), (link, MULTIPLEXED, Target::None)]
            .map(|(other, name, target)| (what("poll", &middle_name, name), other, target));
        let [ceiling, poll_large, poll_small] =
            self.alternate([at_large("ceiling"), at_large("poll"), at_small("poll")].map(Some)).await?;
        let at_least = Target::AtLeast;
        self.report.ratio(&what("poll", &large_name, "ceiling"), &poll_large, &ceiling, at_least(0.75));
        let poll_small_name = format!("poll, {small_name} waiting");
        self.report.ratio(&what("poll", &large_name, &poll_small_name), &poll_large, &poll_small, at_least(0.95));
        for (what, other, target) in obvious_polls {
            self.report.ratio(&what, &poll, &other, target);
        }
        let resident = on_large.resident()?;
        on_small.stop().await?;
        small_stack.remove().await?;

        let [ceiling, enter, pool, link] = self
            .alternate([
                Some(at_middle("ceiling")),
                Some(at_middle("enter")),
                Some(by_pool("enter")),
                self.extra(by_link("enter")),
            ])
            .await?;
        self.report.ratio("enter ÷ ceiling", &enter, &ceiling, at_least(0.65));
        self.report.ratio("enter ÷ the obvious way", &enter, &pool, at_least(4.0));
        self.report.ratio(&format!("enter ÷ {MULTIPLEXED}"), &enter, &link, Target::None);
        let [mixed, pool] = self.alternate([at_middle("mixed"), by_pool("mixed")].map(Some)).await?;
        self.report.ratio("poll and enter 9:1 ÷ the obvious way", &mixed, &pool, Target::None);
        for server in [pooled, multiplexed, on_middle] {
            server.stop().await?;
        }
        middle_stack.remove().await?;
        let mut conn = obvious.redis.connect().await?;
        let waiting: f64 = conn.zcard("obvious:order").await?;
        let obvious_bytes = memory(&mut conn, "obvious:*").await? / waiting;
        drop(obvious);

        self.say("inside Redis");
        self.inside_redis(&large_stack, on_large, &large_name, obvious_bytes, resident).await?;
        large_stack.remove().await
    }

    /// What the long line costs Redis, with nobody else calling: the server is stopped, the scripts are called from here.
    async fn inside_redis(
        &mut self,
        stack: &Stack<'_>,
        server: Serving,
        name: &str,
        obvious_bytes: f64,
        resident: u64,
    ) -> Outcome<()> {
        server.stop().await?;
        let mut starts = Vec::new();
        for _ in 0..3 {
            let server = stack.serve().await?;
            starts.push(server.ready_after.as_secs_f64() * 1000.0);
            server.stop().await?;
        }
        let mut conn = stack.redis().await?;
        let keys = Keys::new(EventId::new(1).ok_or("1 is an event")?);
        let scripts = Scripts::new(Arc::new(Metrics::new()?));
        scripts.load(&mut conn).await?;

        let mut sweeps = Vec::new();
        for _ in 0..TURNS_TO_FILL + TURNS_TIMED {
            let_a_slice_pass(&mut conn, &keys).await?;
            count_from_here(&mut conn).await?;
            let swept = scripts.sweep(&mut conn, &keys).await?;
            sweeps.push(ms_in_script(&mut conn).await?);
            if swept != Sweep::Swept(0) {
                return Err(format!("the sweep answered {swept:?}").into());
            }
            // Everyone is heard from again, so that the next sweep finds as much as this one.
            let base: u32 = conn.hget(keys.get(Key::Meta), "base").await?;
            let line: Vec<u8> = conn.get(keys.get(Key::Line)).await?;
            scripts.pulse(&mut conn, &keys, base, &line, &[]).await?;
        }
        let sweep = median(sweeps.into_iter().skip(TURNS_TO_FILL));
        let waiting: f64 = conn.hget(keys.get(Key::Meta), "waiting").await?;
        let bytes = memory(&mut conn, "zt1:*").await? / waiting;

        let policy = [("batch", ADMITTED), ("max_active", 1_000_000), ("interval_ms", 1)];
        match scripts.policy_set(&mut conn, &keys, 1, "", &policy).await? {
            PolicySet::Ok => {}
            PolicySet::Refused(rule) => return Err(format!("the policy was refused: {rule}").into()),
        }
        let mut admissions = Vec::new();
        for _ in 0..3 {
            count_from_here(&mut conn).await?;
            let admitted = scripts.admit(&mut conn, &keys).await?;
            admissions.push(ms_in_script(&mut conn).await?);
            if admitted != Admit::Admitted(ADMITTED) {
                return Err(format!("the admission answered {admitted:?}").into());
            }
        }

        let at_most = Target::AtMost;
        let figures = &mut self.report;
        let what = format!("Redis memory per waiter, {name} waiting (beside: the obvious way)");
        figures.figure(&what, bytes, Some(obvious_bytes), report::bytes, at_most(1.5));
        figures.figure(&format!("sweep, {name} waiting, inside Redis"), sweep, None, report::millis, at_most(20.0));
        let what = format!("admit {}, {name} waiting, inside Redis", report::count(ADMITTED as f64));
        figures.figure(&what, median(admissions), None, report::millis, at_most(60.0));
        let what = format!("server memory, {name} waiting");
        figures.figure(&what, resident as f64, None, report::megabytes, Target::None);
        let what = format!("start to ready, {name} waiting");
        figures.figure(&what, median(starts), None, report::millis, Target::None);
        Ok(())
    }
}

/// Moves the last turn of the ring back, so that the next one is due.
async fn let_a_slice_pass(conn: &mut MultiplexedConnection, keys: &Keys) -> Outcome<()> {
    let ttl: i64 = conn.hget(keys.get(Key::Policy), "queue_ttl_ms").await?;
    let (seconds, _): (i64, i64) = redis::cmd("TIME").query_async(conn).await?;
    let () = conn.hset(keys.get(Key::Meta), "turned", seconds * 1000 - ttl / 4 * 3 / 2).await?;
    Ok(())
}

async fn count_from_here(conn: &mut MultiplexedConnection) -> Outcome<()> {
    Ok(redis::cmd("CONFIG").arg("RESETSTAT").query_async(conn).await?)
}

/// How long Redis was busy with the one script called since [`count_from_here`].
async fn ms_in_script(conn: &mut MultiplexedConnection) -> Outcome<f64> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(conn).await?;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=1,usec="));
    let micros = line.and_then(|line| line.split(',').next()).ok_or("other scripts were called too")?;
    Ok(micros.parse::<f64>()? / 1000.0)
}

/// Bytes of all keys of this pattern.
async fn memory(conn: &mut MultiplexedConnection, pattern: &str) -> Outcome<f64> {
    let keys: Vec<String> = conn.keys(pattern).await?;
    let mut bytes = 0;
    for key in keys {
        let of_key: u64 = redis::cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0).query_async(conn).await?;
        bytes += of_key;
    }
    Ok(bytes as f64)
}
