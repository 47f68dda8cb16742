//! `/concerts`, `/events/{event}` and `/rankings`: what is offered.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::{Deserialize, Serialize};

use crate::base::error::Error;
use crate::base::ids::ConcertId;
use crate::base::paging::Page;
use crate::house::rankings::Period;
use crate::web::answer::public;
use crate::web::extract::{About, Asked, Part};
use crate::web::site::Worker;

const USUAL_RANKS: usize = 10;
const MOST_RANKS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranked {
    period: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
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

pub async fn sold_out(worker: Data<Worker>, Asked(asked): Asked<Ranked>) -> Result<HttpResponse, Error> {
    if asked.period.is_some() {
        return Err(Error::InvalidRequest("This ranking has no period.".to_owned()));
    }
    Ok(public(&Items { items: worker.site.rankings.sold_out(asked.most()?).await? }))
}

pub async fn best_selling(worker: Data<Worker>, Asked(asked): Asked<Ranked>) -> Result<HttpResponse, Error> {
    let period = asked.period.as_deref().map_or(Ok(Period::All), str::parse)?;
    Ok(public(&Items { items: worker.site.rankings.best_selling(period, asked.most()?).await? }))
}

impl Ranked {
    fn most(&self) -> Result<usize, Error> {
        let most = self.limit.unwrap_or(USUAL_RANKS);
        let fits = (1..=MOST_RANKS).contains(&most);
        fits.then_some(most).ok_or_else(|| Error::InvalidRequest(format!("limit is a number from 1 to {MOST_RANKS}.")))
    }
}
