//! Setting up what is sold: concerts with their dates and halls, and a few to look at.

use chrono::{DateTime, Days, DurationRound, TimeDelta, Utc};
use diesel_async::AsyncConnection;
use serde::Deserialize;

use crate::db;
use crate::db::concerts::{NewConcert, NewDate};
use crate::error::Error;
use crate::hall::{Layout, SectionPlan};
use crate::ids::ConcertId;

const LONGEST_TITLE: usize = 200;
const LONGEST_DESCRIPTION: usize = 5000;
const MOST_DATES: usize = 100;

/// A concert to be set up.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConcertPlan {
    pub title: String,
    #[serde(default)]
    pub description: String,
    pub booking_opens_at: DateTime<Utc>,
    pub booking_closes_at: DateTime<Utc>,
    pub dates: Vec<DatePlan>,
    pub layout: Layout,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatePlan {
    pub starts_at: DateTime<Utc>,
    /// Not given: until it starts.
    pub cancel_until: Option<DateTime<Utc>>,
    #[serde(default)]
    pub one_place_per_person: bool,
}

impl ConcertPlan {
    fn check(&self) -> Result<(), Error> {
        let refuse = |problem: String| Err(Error::InvalidRequest(problem));
        let title = self.title.chars().count();
        if self.title.trim().is_empty() || title > LONGEST_TITLE || self.title.chars().any(char::is_control) {
            return refuse(format!("title is 1 to {LONGEST_TITLE} letters."));
        }
        // PostgreSQL keeps no null, and pages show no other control but the end of a line.
        let strange = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t');
        if self.description.chars().count() > LONGEST_DESCRIPTION || self.description.chars().any(strange) {
            return refuse(format!("description is {LONGEST_DESCRIPTION} letters at most."));
        }
        if self.booking_closes_at <= self.booking_opens_at {
            return refuse("bookingClosesAt is after bookingOpensAt.".to_owned());
        }
        if self.dates.is_empty() || self.dates.len() > MOST_DATES {
            return refuse(format!("dates is a list of 1 to {MOST_DATES}."));
        }
        Ok(())
    }
}

/// Makes the default event with so many free seats, if there is no event at all.
pub async fn open(pool: &db::Pool, seats: u32) -> Result<bool, Error> {
    let layout = Layout::free(seats).map_err(|error| Error::Internal(error.to_string()))?;
    db::events::create_default(&mut pool.get().await?, &layout).await
}

/// Sets up a concert, all of it or nothing. Servers that run learn of it within seconds.
pub async fn add(pool: &db::Pool, plan: &ConcertPlan) -> Result<ConcertId, Error> {
    plan.check()?;
    pool.get().await?.transaction(async |conn| create(conn, plan).await).await
}

async fn create(conn: &mut db::Conn, plan: &ConcertPlan) -> Result<ConcertId, Error> {
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

/// Sets up a few concerts to look at, once: where there is any concert, nothing is done. Returns how many were made.
pub async fn seed(pool: &db::Pool) -> Result<usize, Error> {
    let plans = examples(Utc::now())?;
    let mut conn = pool.get().await?;
    conn.transaction(async |conn| {
        db::lock_until_commit(conn, db::SEED_LOCK).await?;
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

fn examples(now: DateTime<Utc>) -> Result<Vec<ConcertPlan>, Error> {
    // Whole minutes read better.
    let now = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now);
    let section = |name: &str, price, rows| SectionPlan { name: name.to_owned(), price, rows };
    let layout = |sections| Layout::new(sections).map_err(|error| Error::Internal(error.to_string()));
    // Evenings in Seoul: 19:30 there is 10:30 UTC.
    let evening = |days| {
        let day = now.date_naive().checked_add_days(Days::new(days))?;
        day.and_hms_opt(10, 30, 0).map(|time| time.and_utc())
    };
    let date = |days: u64, one_place_per_person| {
        let starts_at = evening(days).ok_or_else(|| Error::Internal("no such date".to_owned()))?;
        Ok::<_, Error>(DatePlan { starts_at, cancel_until: Some(starts_at - TimeDelta::days(1)), one_place_per_person })
    };
    let plan = |title: &str, description: &str, opens: TimeDelta, closes: i64, dates, layout| ConcertPlan {
        title: title.to_owned(),
        description: description.to_owned(),
        booking_opens_at: now + opens,
        booking_closes_at: now + TimeDelta::days(closes),
        dates,
        layout,
    };
    Ok(vec![
        plan(
            "한강의 달빛 · Moonlight on the Han",
            "현악 사중주와 가야금이 함께하는 밤. A string quartet meets the gayageum, on three evenings.",
            TimeDelta::zero(),
            40,
            vec![date(30, false)?, date(31, false)?, date(32, false)?],
            layout(vec![
                section("VIP", 165_000, vec![12, 14, 16]),
                section("R", 132_000, vec![18, 18, 20, 20]),
                section("S", 99_000, vec![20, 20, 20, 20, 20]),
            ])?,
        ),
        plan(
            "오로라 라이브 · Aurora Live",
            "5천 석 아레나, 한 사람에 한 자리. An arena of five thousand seats; everyone has one place in line.",
            TimeDelta::zero(),
            60,
            vec![date(50, true)?],
            layout(vec![
                section("Floor", 154_000, vec![50; 20]),
                section("R", 143_000, vec![80; 25]),
                section("S", 110_000, vec![100; 20]),
            ])?,
        ),
        plan(
            "골목길 재즈 · Back Alley Jazz",
            "작은 클럽, 가까운 무대. A small club and a stage within reach. Booking opens tomorrow.",
            TimeDelta::days(1),
            20,
            vec![date(14, false)?, date(21, false)?],
            layout(vec![section("Table", 70_000, vec![4; 5]), section("Bar", 40_000, vec![12])])?,
        ),
        plan(
            "정오의 음악회 · Concert at Noon",
            "누구나 무료로. Free for everyone.",
            TimeDelta::zero(),
            10,
            vec![date(9, false)?],
            layout(vec![section("", 0, vec![15; 8])])?,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_are_fit_to_be_set_up() {
        for plan in examples(Utc::now()).unwrap() {
            plan.check().unwrap();
        }
    }

    #[test]
    fn a_plan_is_read_from_json_and_checked() {
        let json = r#"{"title":"T","bookingOpensAt":"2027-01-01T10:00:00Z","bookingClosesAt":"2027-02-01T10:00:00+09:00",
            "dates":[{"startsAt":"2027-03-01T10:00:00Z"}],
            "layout":{"sections":[{"name":"R","price":50000,"rows":10,"seatsPerRow":20}]}}"#;
        let plan: ConcertPlan = serde_json::from_str(json).unwrap();
        assert!(plan.check().is_ok());
        assert!(ConcertPlan { title: " ".to_owned(), ..plan.clone() }.check().is_err());
        assert!(ConcertPlan { dates: Vec::new(), ..plan.clone() }.check().is_err());
        assert!(ConcertPlan { description: "a\u{0}b".to_owned(), ..plan.clone() }.check().is_err());
        assert!(ConcertPlan { description: "two\r\nlines".to_owned(), ..plan.clone() }.check().is_ok());
        assert!(ConcertPlan { booking_closes_at: plan.booking_opens_at, ..plan }.check().is_err());
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
            let date = DatePlan { starts_at: time(closes), cancel_until: None, one_place_per_person: false };
            let layout = Layout::free(10).unwrap();
            let (booking_opens_at, booking_closes_at) = (time(opens), time(closes));
            let dates = vec![date; dates];
            let plan = ConcertPlan { title, description, booking_opens_at, booking_closes_at, dates, layout };
            if plan.check().is_ok() {
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
