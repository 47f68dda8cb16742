//! Which concerts sold out fastest and which sell best. PostgreSQL counts, Redis keeps the order, and a server shows what
//! it read there a moment ago. What Redis lost is counted again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use chrono::{DateTime, TimeDelta, Utc};
use redis::aio::ConnectionLike;
use serde::Serialize;

use crate::app::App;
use crate::db;
use crate::db::rankings::{Calendar, Count};
use crate::error::Error;
use crate::ids::ConcertId;
use crate::redis::keys::{Key, Keys};

/// Counting costs a look at every ticket of a concert, so it is done for many sales at once.
const EVERY: Duration = Duration::from_secs(1);
/// What was read is shown for so long, and for so much longer while Redis is away.
const FRESH: Duration = Duration::from_secs(1);
const TOO_OLD: Duration = Duration::from_secs(60);
/// Concerts read of each ranking.
const LONGEST: isize = 100;
/// The ranking of a day or week is kept a little longer than it is shown.
const KEPT_DAYS: i64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    Today,
    Week,
    All,
}

impl std::str::FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "today" => Ok(Self::Today),
            "week" => Ok(Self::Week),
            "all" => Ok(Self::All),
            _ => Err(Error::InvalidRequest("period is today, week or all.".to_owned())),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SoldOut {
    pub rank: usize,
    pub concert_id: ConcertId,
    pub title: String,
    /// From the opening to the last seat.
    pub sold_out_after_ms: i64,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BestSelling {
    pub rank: usize,
    pub concert_id: ConcertId,
    pub title: String,
    /// Sold in the period and not cancelled.
    pub ticket_count: i64,
}

/// What a server remembers about the rankings.
#[derive(Default)]
pub struct Rankings {
    /// Concerts of which something was sold or taken back, and whether all seats of a date are sold.
    touched: Mutex<BTreeMap<ConcertId, bool>>,
    shown: ArcSwapOption<Shown>,
    /// Taken by whoever reads them, so that all who wait share one reading.
    reading: tokio::sync::Mutex<()>,
}

/// Concerts with their scores, best first.
type Order = Vec<(ConcertId, i64)>;

struct Shown {
    read: Instant,
    calendar: Calendar,
    sold_out: Order,
    today: Order,
    week: Order,
    all: Order,
}

impl Rankings {
    /// Something of this concert was settled.
    pub fn touch(&self, concert: ConcertId, date_sold_out: bool) {
        *self.touched().entry(concert).or_default() |= date_sold_out;
    }

    /// What is known may be old: all are counted again.
    pub fn touch_all(&self, concerts: impl Iterator<Item = ConcertId>) {
        concerts.for_each(|concert| self.touch(concert, true));
    }

    fn touched(&self) -> MutexGuard<'_, BTreeMap<ConcertId, bool>> {
        self.touched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn sold_out(app: &Arc<App>, most: usize) -> Result<Vec<SoldOut>, Error> {
    let shown = current(app).await?;
    let entry = |(rank, concert_id, title, score)| SoldOut { rank, concert_id, title, sold_out_after_ms: score };
    Ok(named(app, &shown.sold_out, most).map(entry).collect())
}

pub async fn best_selling(app: &Arc<App>, period: Period, most: usize) -> Result<Vec<BestSelling>, Error> {
    let shown = current(app).await?;
    let order = match period {
        Period::Today => &shown.today,
        Period::Week => &shown.week,
        Period::All => &shown.all,
    };
    let entry = |(rank, concert_id, title, score)| BestSelling { rank, concert_id, title, ticket_count: score };
    Ok(named(app, order, most).map(entry).collect())
}

fn named(app: &App, order: &Order, most: usize) -> impl Iterator<Item = (usize, ConcertId, String, i64)> {
    let concerts = app.events.concerts();
    let known =
        order.iter().filter_map(move |(concert, score)| Some((*concert, concerts.get(concert)?.title.clone(), *score)));
    let known: Vec<_> = known.take(most).collect();
    (1..).zip(known).map(|(rank, (concert, title, score))| (rank, concert, title, score))
}

/// What was read at most a second ago or, while Redis is away, at most a minute.
async fn current(app: &Arc<App>) -> Result<Arc<Shown>, Error> {
    let age = |shown: &Arc<Shown>| shown.read.elapsed();
    if let Some(shown) = app.rankings.shown.load_full().filter(|shown| age(shown) <= FRESH) {
        return Ok(shown);
    }
    let since = Instant::now();
    let app_ = app.clone();
    let read = app.run(async move {
        let _reading = app_.rankings.reading.lock().await;
        if let Some(shown) = app_.rankings.shown.load_full().filter(|shown| shown.read >= since) {
            return Ok(shown);
        }
        let shown = Arc::new(read(&app_).await?);
        app_.rankings.shown.store(Some(shown.clone()));
        Ok(shown)
    });
    match (read.await, app.rankings.shown.load_full()) {
        (Ok(shown), _) => Ok(shown),
        (Err(error), Some(shown)) if age(&shown) <= TOO_OLD => {
            tracing::debug!(%error, "rankings are shown as they were");
            Ok(shown)
        }
        (Err(error), _) => Err(error),
    }
}

async fn read(app: &App) -> Result<Shown, Error> {
    let read = Instant::now();
    let calendar = calendar(app).await?;
    for attempt in 0..2 {
        let mut conn = app.redis.get().await?;
        let [sold_out, today, week, all] = boards(&calendar);
        // One call each: in a cluster they live apart.
        let (sold_out, today) = (board(&mut conn, sold_out).await?, board(&mut conn, today).await?);
        let (week, all) = (board(&mut conn, week).await?, board(&mut conn, all).await?);
        if let (Some(sold_out), Some(today), Some(week), Some(all)) = (sold_out, today, week, all) {
            return Ok(Shown { read, calendar, sold_out, today, week, all });
        }
        if attempt == 0 {
            rebuild(app).await?;
        }
    }
    Err(Error::Stale)
}

/// A ranking, best first; `None` if it is not in Redis.
async fn board(conn: &mut impl ConnectionLike, (keys, ascending): (Keys, bool)) -> Result<Option<Order>, Error> {
    let ranking = keys.get(Key::Ranking);
    let mut pipe = redis::pipe();
    pipe.hexists(keys.get(Key::AsOf), "*");
    if ascending {
        pipe.zrange_withscores(ranking, 0, LONGEST - 1);
    } else {
        pipe.zrevrange_withscores(ranking, 0, LONGEST - 1);
    }
    let (built, board): (bool, Vec<(i32, f64)>) = pipe.query_async(conn).await?;
    Ok(built.then(|| board.into_iter().map(|(id, score)| (ConcertId(id), score as i64)).collect()))
}

/// The rankings in the order they are read and written, and whether the lowest score is the best.
fn boards(calendar: &Calendar) -> [(Keys, bool); 4] {
    [
        (Keys::ranking("sold-out"), true),
        (Keys::ranking(&format!("best-selling:{}", calendar.day)), false),
        (Keys::ranking(&format!("best-selling:{}", calendar.week)), false),
        (Keys::ranking("best-selling:all"), false),
    ]
}

/// Today and this week, asked anew when the day is over.
async fn calendar(app: &App) -> Result<Calendar, Error> {
    let shown = app.rankings.shown.load_full();
    match shown.filter(|shown| (shown.calendar.now..shown.calendar.day_ends).contains(&Utc::now())) {
        Some(shown) => Ok(shown.calendar.clone()),
        None => db::rankings::calendar(&mut app.db.get().await?, app.config.time_zone.name()).await,
    }
}

/// Counts what was touched since the last round.
pub async fn step(app: &App) -> Result<Duration, Error> {
    let touched = std::mem::take(&mut *app.rankings.touched());
    if touched.is_empty() {
        return Ok(EVERY);
    }
    let outcome = count(app, &touched).await;
    if outcome.is_err() {
        for (concert, date_sold_out) in touched {
            app.rankings.touch(concert, date_sold_out);
        }
    }
    outcome.map(|()| EVERY)
}

async fn count(app: &App, touched: &BTreeMap<ConcertId, bool>) -> Result<(), Error> {
    let mut conn = app.db.get().await?;
    let full: Vec<ConcertId> = touched.iter().filter(|(_, sold_out)| **sold_out).map(|(concert, _)| *concert).collect();
    if !full.is_empty() {
        db::concerts::note_sold_out(&mut conn, &full).await?;
    }
    let calendar = db::rankings::calendar(&mut conn, app.config.time_zone.name()).await?;
    let concerts: Vec<ConcertId> = touched.keys().copied().collect();
    let counts = db::rankings::count(&mut conn, &calendar, Some(&concerts)).await?;
    drop(conn);
    write(app, &calendar, &counts, false).await
}

/// Counts everything.
pub async fn rebuild(app: &App) -> Result<(), Error> {
    let mut conn = app.db.get().await?;
    let concerts: Vec<ConcertId> = app.events.concerts().keys().copied().collect();
    db::concerts::note_sold_out(&mut conn, &concerts).await?;
    let calendar = db::rankings::calendar(&mut conn, app.config.time_zone.name()).await?;
    let counts = db::rankings::count(&mut conn, &calendar, None).await?;
    drop(conn);
    write(app, &calendar, &counts, true).await?;
    tracing::info!(concerts = counts.len(), "the rankings were counted anew");
    Ok(())
}

async fn write(app: &App, calendar: &Calendar, counts: &[Count], whole: bool) -> Result<(), Error> {
    let Some(as_of) = counts.iter().map(|count| count.as_of).min().or(whole.then_some(calendar.now)) else {
        return Ok(());
    };
    let some = |count: i64| (count > 0).then_some(count);
    let score: [fn(&Count) -> Option<i64>; 4] = [
        |count| count.sold_out_ms,
        |count| Some(count.today),
        |count| Some(count.this_week),
        |count| Some(count.in_all),
    ];
    let ends = |began: DateTime<Utc>| (began + TimeDelta::days(KEPT_DAYS) - calendar.now).to_std().ok();
    let lasts = [None, ends(calendar.day_began), ends(calendar.week_began), None];
    let mut conn = app.redis.get().await?;
    for (((keys, lowest_first), score), lasts) in boards(calendar).into_iter().zip(score).zip(lasts) {
        // A concert that sold out at once has 0 ms; one that sold nothing has no place.
        let score = |count: &Count| if lowest_first { score(count) } else { score(count).and_then(some) };
        let scores: Vec<_> = counts.iter().map(|count| (ConcertId(count.concert_id), score(count))).collect();
        app.scripts.ranking_set(&mut conn, &keys, as_of.timestamp_millis(), lasts, whole, &scores).await?;
    }
    Ok(())
}
