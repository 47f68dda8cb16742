//! Setting up what is sold: concerts with their dates and halls, and a few examples.

use chrono::{DateTime, Datelike, Days, DurationRound, NaiveTime, TimeDelta, Utc};
use diesel_async::AsyncConnection;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::hall::{BadLayout, Described, Layout};
use crate::base::ids::ConcertId;
use crate::store::db;
use crate::store::db::concerts::{NewConcert, NewDate};
use crate::store::db::locks;
use crate::store::db::pool::{Conn, Pool};

const LONGEST_TITLE: usize = 200;
const LONGEST_DESCRIPTION: usize = 5000;
const MOST_DATES: usize = 100;

/// The description of a concert.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConcertPlan {
    #[schema(min_length = 1, max_length = 200)]
    pub title: String,
    #[serde(default)]
    #[schema(max_length = 5000)]
    pub description: String,
    pub booking_opens_at: DateTime<Utc>,
    pub booking_closes_at: DateTime<Utc>,
    #[schema(min_items = 1, max_items = 100)]
    pub dates: Vec<DatePlan>,
    #[schema(value_type = Described)]
    pub layout: Layout,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatePlan {
    pub starts_at: DateTime<Utc>,
    /// Not given: until it starts.
    pub cancel_until: Option<DateTime<Utc>>,
    #[serde(default)]
    pub one_place_per_person: bool,
}

/// Why a concert cannot be set up or changed like this.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadPlan {
    #[error("title must be 1 to {LONGEST_TITLE} letters.")]
    Title,
    #[error("description must be {LONGEST_DESCRIPTION} letters at most.")]
    Description,
    #[error("bookingClosesAt must be after bookingOpensAt.")]
    ClosesFirst,
    #[error("bookingClosesAt must be in the future.")]
    ClosedAlready,
    #[error("dates must be a list of 1 to {MOST_DATES}.")]
    Dates,
    #[error("startsAt must be in the future, and {0} is not.")]
    Past(DateTime<Utc>),
    #[error("dates must differ: {0} is there twice.")]
    Twice(DateTime<Utc>),
    #[error("startsAt must be after bookingOpensAt, and {0} is not.")]
    BeforeBooking(DateTime<Utc>),
    #[error("cancelUntil must be startsAt or before.")]
    CancelAfterStart,
    #[error("Years must be from 2000 to 2999, not {0}.")]
    Year(i32),
    #[error(transparent)]
    Layout(#[from] BadLayout),
}

impl From<BadPlan> for Error {
    fn from(problem: BadPlan) -> Self {
        Self::InvalidRequest(problem.to_string())
    }
}

impl ConcertPlan {
    pub fn check(&self, now: DateTime<Utc>) -> Result<(), BadPlan> {
        check_concert(&self.title, &self.description, self.booking_opens_at, self.booking_closes_at)?;
        if self.booking_closes_at <= now {
            return Err(BadPlan::ClosedAlready);
        }
        if self.dates.is_empty() || self.dates.len() > MOST_DATES {
            return Err(BadPlan::Dates);
        }
        for (at, date) in self.dates.iter().enumerate() {
            let starts_at = date.starts_at;
            check_date(Some(starts_at), date.cancel_until, now)?;
            if starts_at < self.booking_opens_at {
                return Err(BadPlan::BeforeBooking(starts_at));
            }
            if self.dates.iter().take(at).any(|other| other.starts_at == starts_at) {
                return Err(BadPlan::Twice(starts_at));
            }
        }
        Ok(())
    }
}

/// The rules for the times of a date.
pub fn check_date(
    starts_at: Option<DateTime<Utc>>,
    cancel_until: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<(), BadPlan> {
    starts_at.map_or(Ok(()), check_year)?;
    cancel_until.map_or(Ok(()), check_year)?;
    match (starts_at, cancel_until) {
        (Some(starts_at), _) if starts_at <= now => Err(BadPlan::Past(starts_at)),
        (Some(starts_at), Some(until)) if until > starts_at => Err(BadPlan::CancelAfterStart),
        _ => Ok(()),
    }
}

/// Other years are typing errors, and some programs cannot read them.
fn check_year(time: DateTime<Utc>) -> Result<(), BadPlan> {
    if (2000..3000).contains(&time.year()) { Ok(()) } else { Err(BadPlan::Year(time.year())) }
}

pub fn check_title(title: &str) -> Result<(), BadPlan> {
    let length = title.chars().count();
    if title.trim().is_empty() || length > LONGEST_TITLE || title.chars().any(char::is_control) {
        return Err(BadPlan::Title);
    }
    Ok(())
}

/// The rules for what a concert says about itself.
pub fn check_concert(
    title: &str,
    description: &str,
    opens_at: DateTime<Utc>,
    closes_at: DateTime<Utc>,
) -> Result<(), BadPlan> {
    check_title(title)?;
    // PostgreSQL stores no null, and pages show no control characters but line ends and tabs.
    let strange = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
    if description.chars().count() > LONGEST_DESCRIPTION || description.chars().any(strange) {
        return Err(BadPlan::Description);
    }
    check_year(opens_at)?;
    check_year(closes_at)?;
    if closes_at <= opens_at { Err(BadPlan::ClosesFirst) } else { Ok(()) }
}

/// Makes the default event with this many free seats, if there is no event at all. Returns whether it did.
pub async fn ensure_default_event(pool: &Pool, seats: u32) -> Result<bool, Error> {
    let layout = Layout::free(seats).map_err(Error::internal)?;
    db::events::create_default(&mut pool.get().await?, &layout).await
}

/// Sets up a concert, all of it or nothing. Running servers learn of it within seconds.
pub async fn add(pool: &Pool, plan: &ConcertPlan) -> Result<ConcertId, Error> {
    plan.check(Utc::now())?;
    pool.get().await?.transaction(async |conn| create(conn, plan).await).await
}

/// Writes a checked plan.
pub async fn create(conn: &mut Conn, plan: &ConcertPlan) -> Result<ConcertId, Error> {
    let concert = NewConcert {
        title: &plan.title,
        description: &plan.description,
        opens_at: plan.booking_opens_at,
        closes_at: plan.booking_closes_at,
    };
    let concert = db::concerts::create(conn, &concert).await?;
    for date in &plan.dates {
        let date = NewDate {
            concert_id: concert.0,
            title: &plan.title,
            starts_at: date.starts_at,
            cancel_until: date.cancel_until,
            one_place_per_person: date.one_place_per_person,
        };
        let event = db::concerts::create_date(conn, &date).await?;
        db::events::furnish(conn, event, &plan.layout).await?;
    }
    Ok(concert)
}

/// Sets up the example concerts, unless there is any concert. Returns how many it made.
pub async fn seed(pool: &Pool) -> Result<usize, Error> {
    let plans = examples(Utc::now())?;
    let mut conn = pool.get().await?;
    conn.transaction(async |conn| {
        locks::lock_until_commit(conn, locks::SEED_LOCK).await?;
        if db::concerts::any(conn).await? {
            return Ok(0);
        }
        for plan in &plans {
            create(conn, plan).await?;
        }
        Ok(plans.len())
    })
    .await
}

/// A concert of `examples.json`, whose times are relative to the day it is set up.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Example {
    title: String,
    description: String,
    opens_in_days: i64,
    closes_in_days: i64,
    dates: Vec<ExampleDate>,
    layout: Layout,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExampleDate {
    in_days: u64,
    /// UTC.
    at: NaiveTime,
    #[serde(default)]
    one_place_per_person: bool,
}

fn examples(now: DateTime<Utc>) -> Result<Vec<ConcertPlan>, Error> {
    // Whole minutes read better.
    let now = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now);
    let date = |date: ExampleDate| {
        let day = now.date_naive().checked_add_days(Days::new(date.in_days));
        let starts_at = day.ok_or_else(|| Error::internal("no such day"))?.and_time(date.at).and_utc();
        let cancel_until = Some(starts_at - TimeDelta::days(1));
        Ok(DatePlan { starts_at, cancel_until, one_place_per_person: date.one_place_per_person })
    };
    let plan = |example: Example| {
        Ok(ConcertPlan {
            title: example.title,
            description: example.description,
            booking_opens_at: now + TimeDelta::days(example.opens_in_days),
            booking_closes_at: now + TimeDelta::days(example.closes_in_days),
            dates: example.dates.into_iter().map(date).collect::<Result<_, Error>>()?,
            layout: example.layout,
        })
    };
    let examples: Vec<Example> = serde_json::from_str(include_str!("examples.json")).map_err(Error::internal)?;
    examples.into_iter().map(plan).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_are_valid_plans() {
        for plan in examples(Utc::now()).unwrap() {
            plan.check(Utc::now()).unwrap();
        }
    }

    #[test]
    fn a_plan_is_read_from_json_and_checked() {
        let json = r#"{"title":"T","bookingOpensAt":"2027-01-01T10:00:00Z","bookingClosesAt":"2027-02-01T10:00:00+09:00",
            "dates":[{"startsAt":"2027-03-01T10:00:00Z"}],
            "layout":{"sections":[{"name":"R","price":50000,"rows":10,"seatsPerRow":20}]}}"#;
        let plan: ConcertPlan = serde_json::from_str(json).unwrap();
        let now = "2026-06-01T10:00:00Z".parse().unwrap();
        let check = |change: &dyn Fn(&mut ConcertPlan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan.check(now)
        };
        let time = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        let (start, past) = (time("2027-03-01T10:00:00Z"), time("2026-05-01T10:00:00Z"));
        assert_eq!(check(&|_| {}), Ok(()));
        assert_eq!(check(&|plan| plan.description = "two\r\nlines".to_owned()), Ok(()));
        assert_eq!(check(&|plan| plan.title = " ".to_owned()), Err(BadPlan::Title));
        assert_eq!(check(&|plan| plan.description = "a\u{0}b".to_owned()), Err(BadPlan::Description));
        assert_eq!(check(&|plan| plan.booking_closes_at = plan.booking_opens_at), Err(BadPlan::ClosesFirst));
        let over = |plan: &mut ConcertPlan| {
            (plan.booking_opens_at, plan.booking_closes_at) = (past, past + TimeDelta::days(1));
        };
        assert_eq!(check(&over), Err(BadPlan::ClosedAlready));
        assert_eq!(check(&|plan| plan.dates.clear()), Err(BadPlan::Dates));
        assert_eq!(check(&|plan| plan.dates[0].starts_at = past), Err(BadPlan::Past(past)));
        assert_eq!(check(&|plan| plan.dates.push(plan.dates[0].clone())), Err(BadPlan::Twice(start)));
        let early = time("2026-12-31T10:00:00Z");
        assert_eq!(check(&|plan| plan.dates[0].starts_at = early), Err(BadPlan::BeforeBooking(early)));
        let late = start + TimeDelta::seconds(1);
        assert_eq!(check(&|plan| plan.dates[0].cancel_until = Some(late)), Err(BadPlan::CancelAfterStart));
        assert_eq!(check(&|plan| plan.dates[0].cancel_until = Some(start)), Ok(()));
        for year in [-1, 0, 1999, 3000, 99_999] {
            let strange = start.with_year(year).unwrap();
            assert_eq!(check(&|plan| plan.dates[0].starts_at = strange), Err(BadPlan::Year(year)));
            assert_eq!(check(&|plan| plan.booking_opens_at = strange), Err(BadPlan::Year(year)));
        }
    }

    proptest! {
        #[test]
        fn a_plan_that_is_taken_keeps_its_bounds(
            title in r"(?s).{0,3}|\PC{0,210}",
            description in r"(?s).{0,20}",
            opens in -9_000_000_000_000_i64..9_000_000_000_000,
            closes in -9_000_000_000_000_i64..9_000_000_000_000,
            dates in 0..120_usize,
        ) {
            let time = |ms| DateTime::from_timestamp_millis(ms).unwrap_or_default();
            let date = |at: usize| DatePlan {
                starts_at: time(closes + at as i64),
                cancel_until: None,
                one_place_per_person: false,
            };
            let layout = Layout::free(10).unwrap();
            let (booking_opens_at, booking_closes_at) = (time(opens), time(closes));
            let dates = (0..dates).map(date).collect();
            let plan = ConcertPlan { title, description, booking_opens_at, booking_closes_at, dates, layout };
            if plan.check(DateTime::default()).is_ok() {
                prop_assert!((1..=LONGEST_TITLE).contains(&plan.title.chars().count()) && !plan.title.trim().is_empty());
                prop_assert!(!plan.title.contains('\0') && !plan.description.contains('\0'));
                prop_assert!(plan.booking_opens_at < plan.booking_closes_at);
                prop_assert!((1..=MOST_DATES).contains(&plan.dates.len()));
            }
        }

        #[test]
        fn any_text_is_a_plan_or_refused_without_a_panic(text in r"(?s).{0,80}", time in r"[-+0-9TZ:.]{0,30}") {
            prop_assert!(serde_json::from_str::<ConcertPlan>(&text).is_err());
            let date = serde_json::json!({ "startsAt": time }).to_string();
            if let Ok(date) = serde_json::from_str::<DatePlan>(&date) {
                let again = serde_json::json!({ "startsAt": date.starts_at }).to_string();
                prop_assert_eq!(serde_json::from_str::<DatePlan>(&again).unwrap().starts_at, date.starts_at);
            }
        }
    }
}
