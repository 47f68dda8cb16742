//! `/concerts`, `/events/{event}` and `/rankings`: what is offered.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::{Deserialize, Serialize};

use crate::app::Lane;
use crate::concerts;
use crate::error::Error;
use crate::http::extract::{About, Asked, Part};
use crate::http::public;
use crate::ids::ConcertId;
use crate::page::Page;
use crate::rankings::{self, Period};

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

pub async fn list(lane: Data<Lane>, Asked(page): Asked<Page>) -> Result<HttpResponse, Error> {
    Ok(public(&concerts::list(&lane.app, &page.check()?)?))
}

pub async fn find(lane: Data<Lane>, Part(concert): Part<ConcertId>) -> Result<HttpResponse, Error> {
    Ok(public(&concerts::find(&lane.app, concert).await?))
}

pub async fn dates(
    lane: Data<Lane>,
    Part(concert): Part<ConcertId>,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(public(&concerts::dates(&lane.app, concert, &page.check()?).await?))
}

pub async fn event(lane: Data<Lane>, About(event): About) -> Result<HttpResponse, Error> {
    Ok(public(&concerts::event(&lane.app, &event).await?))
}

pub async fn sold_out(lane: Data<Lane>, Asked(asked): Asked<Ranked>) -> Result<HttpResponse, Error> {
    if asked.period.is_some() {
        return Err(Error::InvalidRequest("This ranking has no period.".to_owned()));
    }
    Ok(public(&Items { items: rankings::sold_out(&lane.app, asked.most()?).await? }))
}

pub async fn best_selling(lane: Data<Lane>, Asked(asked): Asked<Ranked>) -> Result<HttpResponse, Error> {
    let period = asked.period.as_deref().map_or(Ok(Period::All), str::parse)?;
    Ok(public(&Items { items: rankings::best_selling(&lane.app, period, asked.most()?).await? }))
}

impl Ranked {
    fn most(&self) -> Result<usize, Error> {
        let most = self.limit.unwrap_or(USUAL_RANKS);
        let fits = (1..=MOST_RANKS).contains(&most);
        fits.then_some(most).ok_or_else(|| Error::InvalidRequest(format!("limit is a number from 1 to {MOST_RANKS}.")))
    }
}
