//! `/concerts`, `/events/{event}` and `/rankings`: what is offered.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::base::error::Error;
use crate::base::ids::ConcertId;
use crate::base::paging::Page;
use crate::house::rankings::Period;
use crate::web::answer::{Items, public};
use crate::web::extract::{About, Asked, Part};
use crate::web::site::Worker;

const USUAL_RANKS: usize = 10;
const MOST_RANKS: usize = 100;

/// How many ranks the caller asks for.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct MostRanks {
    /// How many: 10 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Ranked {
    /// `today`, `week`, or `all`, which is the default.
    #[param(pattern = "^(today|week|all)$")]
    period: Option<String>,
    /// How many: 10 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

pub async fn list(worker: Data<Worker>, Asked(page): Asked<Page>) -> Result<HttpResponse, Error> {
    Ok(public(&worker.site.concerts.list(&page.check()?)?))
}

pub async fn find(worker: Data<Worker>, Part(concert): Part<ConcertId>) -> Result<HttpResponse, Error> {
    Ok(public(&worker.site.concerts.find(concert).await?))
}

pub async fn dates(
    worker: Data<Worker>,
    Part(concert): Part<ConcertId>,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(public(&worker.site.concerts.dates(concert, &page.check()?).await?))
}

pub async fn event(worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    Ok(public(&worker.site.concerts.event(&event).await?))
}

pub async fn sold_out(worker: Data<Worker>, Asked(asked): Asked<MostRanks>) -> Result<HttpResponse, Error> {
    Ok(public(&Items { items: worker.site.rankings.sold_out(most(asked.limit)?).await? }))
}

pub async fn best_selling(worker: Data<Worker>, Asked(asked): Asked<Ranked>) -> Result<HttpResponse, Error> {
    let period = asked.period.as_deref().map_or(Ok(Period::All), str::parse)?;
    Ok(public(&Items { items: worker.site.rankings.best_selling(period, most(asked.limit)?).await? }))
}

fn most(limit: Option<usize>) -> Result<usize, Error> {
    let most = limit.unwrap_or(USUAL_RANKS);
    let fits = (1..=MOST_RANKS).contains(&most);
    fits.then_some(most).ok_or_else(|| Error::InvalidRequest(format!("limit is a number from 1 to {MOST_RANKS}.")))
}
