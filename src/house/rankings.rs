//! Which concerts sold out fastest and which sell best. PostgreSQL counts, Redis keeps the order, and a server shows what it
//! read there a moment ago. What Redis lost is counted again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::ConcertId;
use crate::event::catalogue::Catalogue;
use crate::sale::settle::Touched;
use crate::store::db::rankings::{Calendar, Count};
use crate::store::redis::keys::Keys;
use crate::store::redis::reads;
use crate::store::{Stores, db};

/// Counting reads every ticket of a concert, so it is done for many sales at once.
const EVERY: Duration = Duration::from_secs(1);
/// Concerts counted by one query when all are counted: with a long history, one query for all would take too long.
const TOGETHER: usize = 20;
/// How long a ranking is shown after it was read, and how long while Redis is away.
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

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SoldOut {
    pub rank: usize,
    pub concert_id: ConcertId,
    pub title: String,
    /// From the opening to the last seat.
    pub sold_out_after_ms: i64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BestSelling {
    pub rank: usize,
    pub concert_id: ConcertId,
    pub title: String,
    /// Sold in the period and not cancelled.
    pub ticket_count: i64,
}

pub struct Rankings {
    stores: Arc<Stores>,
    catalogue: Arc<Catalogue>,
    /// Where settling says which concerts need a new count.
    touched: Arc<Touched>,
    /// Whose midnight begins a day.
    time_zone: String,
    shown: ArcSwapOption<Shown>,
    /// Held during a read, so that all waiting requests share it.
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
    pub fn new(stores: Arc<Stores>, catalogue: Arc<Catalogue>, touched: Arc<Touched>, time_zone: String) -> Self {
        let (shown, reading) = (ArcSwapOption::empty(), tokio::sync::Mutex::default());
        Self { stores, catalogue, touched, time_zone, shown, reading }
    }

    pub async fn sold_out(self: &Arc<Self>, most: usize) -> Result<Vec<SoldOut>, Error> {
        let shown = self.current().await?;
        let entry = |(rank, concert_id, title, score)| SoldOut { rank, concert_id, title, sold_out_after_ms: score };
        Ok(self.named(&shown.sold_out, most).map(entry).collect())
    }

    pub async fn best_selling(self: &Arc<Self>, period: Period, most: usize) -> Result<Vec<BestSelling>, Error> {
        let shown = self.current().await?;
        let order = match period {
            Period::Today => &shown.today,
            Period::Week => &shown.week,
            Period::All => &shown.all,
        };
        let entry = |(rank, concert_id, title, score)| BestSelling { rank, concert_id, title, ticket_count: score };
        Ok(self.named(order, most).map(entry).collect())
    }

    fn named(&self, order: &Order, most: usize) -> impl Iterator<Item = (usize, ConcertId, String, i64)> + use<> {
        let concerts = self.catalogue.concerts();
        let title = |concert: &ConcertId| Some(concerts.get(concert)?.title.clone());
        let known = order.iter().filter_map(|(concert, score)| Some((*concert, title(concert)?, *score)));
        let known: Vec<_> = known.take(most).collect();
        (1..).zip(known).map(|(rank, (concert, title, score))| (rank, concert, title, score))
    }

    /// What was read at most a second ago or, while Redis is away, at most a minute.
    async fn current(self: &Arc<Self>) -> Result<Arc<Shown>, Error> {
        let age = |shown: &Arc<Shown>| shown.read.elapsed();
        if let Some(shown) = self.shown.load_full().filter(|shown| age(shown) <= FRESH) {
            return Ok(shown);
        }
        let since = Instant::now();
        let rankings = self.clone();
        let read = self.stores.run(async move {
            let _reading = rankings.reading.lock().await;
            if let Some(shown) = rankings.shown.load_full().filter(|shown| shown.read >= since) {
                return Ok(shown);
            }
            let shown = Arc::new(rankings.read().await?);
            rankings.shown.store(Some(shown.clone()));
            Ok(shown)
        });
        match (read.await, self.shown.load_full()) {
            (Ok(shown), _) => Ok(shown),
            (Err(error), Some(shown)) if age(&shown) <= TOO_OLD => {
                tracing::debug!(%error, "showing rankings read earlier");
                Ok(shown)
            }
            (Err(error), _) => Err(error),
        }
    }

    async fn read(&self) -> Result<Shown, Error> {
        let read = Instant::now();
        let calendar = self.calendar().await?;
        for attempt in 0..2 {
            if let [Some(sold_out), Some(today), Some(week), Some(all)] = self.read_boards(&calendar).await? {
                return Ok(Shown { read, calendar, sold_out, today, week, all });
            }
            if attempt == 0 {
                self.rebuild().await?;
            }
        }
        Err(Error::Stale)
    }

    /// The rankings, best first; `None` where one is not in Redis. One call each: in a cluster they live apart.
    async fn read_boards(&self, calendar: &Calendar) -> Result<[Option<Order>; 4], Error> {
        let mut conn = self.stores.redis.get().await?;
        let mut read = [const { None }; 4];
        for (order, (keys, lowest_first)) in read.iter_mut().zip(boards(calendar)) {
            *order = reads::ranking(&mut conn, &keys, lowest_first, LONGEST).await?;
        }
        Ok(read)
    }

    /// Today and this week, asked again when the day is over.
    async fn calendar(&self) -> Result<Calendar, Error> {
        let shown = self.shown.load_full();
        match shown.filter(|shown| (shown.calendar.now..shown.calendar.day_ends).contains(&Utc::now())) {
            Some(shown) => Ok(shown.calendar.clone()),
            None => db::rankings::calendar(&mut self.stores.db.get().await?, &self.time_zone).await,
        }
    }

    /// At a start: earlier servers may have stopped before they counted. Concerts that closed long ago sell nothing any more.
    pub fn recount_lately_open(&self) {
        let long_ago = Utc::now() - TimeDelta::days(KEPT_DAYS);
        let concerts = self.catalogue.concerts();
        let lately = concerts.values().filter(|concert| concert.closes_at > long_ago);
        self.touched.add_all(lately.map(|concert| concert.id));
    }

    /// Counts the concerts that sold something since the last round.
    pub async fn step(&self) -> Result<Duration, Error> {
        let touched = self.touched.take();
        if touched.is_empty() {
            return Ok(EVERY);
        }
        let outcome = self.count(&touched).await;
        if outcome.is_err() {
            touched.into_iter().for_each(|(concert, date_sold_out)| self.touched.add(concert, date_sold_out));
        }
        outcome.map(|()| EVERY)
    }

    async fn count(&self, touched: &BTreeMap<ConcertId, bool>) -> Result<(), Error> {
        let mut conn = self.stores.db.get().await?;
        let full: Vec<ConcertId> =
            touched.iter().filter(|(_, sold_out)| **sold_out).map(|(concert, _)| *concert).collect();
        if !full.is_empty() {
            db::concerts::note_sold_out(&mut conn, &full).await?;
        }
        let calendar = db::rankings::calendar(&mut conn, &self.time_zone).await?;
        let concerts: Vec<ConcertId> = touched.keys().copied().collect();
        let counts = db::rankings::count(&mut conn, &calendar, &concerts).await?;
        drop(conn);
        self.write(&calendar, &counts, false).await
    }

    /// Counts everything.
    async fn rebuild(&self) -> Result<(), Error> {
        let mut conn = self.stores.db.get().await?;
        let concerts: Vec<ConcertId> = self.catalogue.concerts().keys().copied().collect();
        let calendar = db::rankings::calendar(&mut conn, &self.time_zone).await?;
        let mut counts = Vec::with_capacity(concerts.len());
        for some in concerts.chunks(TOGETHER) {
            db::concerts::note_sold_out(&mut conn, some).await?;
            counts.extend(db::rankings::count(&mut conn, &calendar, some).await?);
        }
        drop(conn);
        self.write(&calendar, &counts, true).await?;
        tracing::info!(concerts = counts.len(), "counted the rankings again");
        Ok(())
    }

    async fn write(&self, calendar: &Calendar, counts: &[Count], whole: bool) -> Result<(), Error> {
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
        let mut conn = self.stores.redis.get().await?;
        for (((keys, lowest_first), score), lasts) in boards(calendar).into_iter().zip(score).zip(lasts) {
            // A concert that sold out at once has 0 ms; one that sold nothing has no place.
            let score = |count: &Count| if lowest_first { score(count) } else { score(count).and_then(some) };
            let scores: Vec<_> = counts.iter().map(|count| (ConcertId(count.concert_id), score(count))).collect();
            let as_of_ms = as_of.timestamp_millis();
            self.stores.scripts.ranking_set(&mut conn, &keys, as_of_ms, lasts, whole, &scores).await?;
        }
        Ok(())
    }
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
