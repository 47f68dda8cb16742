//! `/admin`: what operators see and do.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ETAG, HeaderValue};
use actix_web::web::Data;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::base::control::{Act, Reason};
use crate::base::error::Error;
use crate::base::ids::{ConcertId, EventId, TicketId};
use crate::base::paging::Page;
use crate::event::Event;
use crate::house::programme::{ConcertChange, EventChange};
use crate::house::setup::ConcertPlan;
use crate::sale::control::{Decided, PolicyChange};
use crate::web::answer::{Items, no_content, private};
use crate::web::extract::{About, Asked, Body, MaybeBody, Part, Then};
use crate::web::operator::{Acting, Admin, BasedOn, Viewer};
use crate::web::site::Worker;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct Minutes {
    /// How far back: 60 if not given.
    #[param(minimum = 1, maximum = 60)]
    minutes: Option<u32>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AuditPage {
    /// Only what was done about this event.
    #[param(minimum = 1, maximum = 16_777_215)]
    event: Option<u32>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
    /// Items on a page: 20 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
}

#[derive(Default, Deserialize, ToSchema)]
#[schema(as = PauseRequest)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    reason: Option<Reason>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Kick {
    #[schema(example = "00000200-0000-800b-bf4f-4e79db2f800d")]
    uuid: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// One line, for the audit log.
    #[schema(min_length = 1, max_length = 500)]
    why: String,
}

pub async fn sales(_: Viewer, worker: Data<Worker>, Asked(page): Asked<Page>) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.desk.sales(&page.check()?).await?))
}

pub async fn sale(_: Viewer, worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    shown(&worker, &event, StatusCode::OK).await
}

/// The sale, with the version of its settings for If-Match.
async fn shown(worker: &Worker, event: &Arc<Event>, status: StatusCode) -> Result<HttpResponse, Error> {
    let sale = worker.site.desk.sale(event).await?;
    let mut response = private(&sale);
    *response.status_mut() = status;
    if let Ok(version) = HeaderValue::from_str(&format!("\"{}\"", sale.policy.version)) {
        response.headers_mut().insert(ETAG, version);
    }
    Ok(response)
}

/// The sale after a decision: 202 if Redis could not be told yet.
async fn decided(worker: &Worker, event: &Arc<Event>, decided: Decided) -> Result<HttpResponse, Error> {
    shown(worker, event, if decided.in_force { StatusCode::OK } else { StatusCode::ACCEPTED }).await
}

pub async fn policy(
    Then(Acting(who), Body(PolicyChange(changes))): Then<Acting, Body<PolicyChange>>,
    worker: Data<Worker>,
    About(event): About,
    BasedOn(version): BasedOn,
) -> Result<HttpResponse, Error> {
    let done = worker.site.desk.set_policy(&who, &event, version, changes).await?;
    decided(&worker, &event, done).await
}

pub async fn pause(
    Then(Acting(who), MaybeBody(pause)): Then<Acting, MaybeBody<Pause>>,
    worker: Data<Worker>,
    About(event): About,
) -> Result<HttpResponse, Error> {
    let done = worker.site.desk.act(&who, &event, Act::Pause(pause.reason)).await?;
    decided(&worker, &event, done).await
}

pub async fn resume(Acting(who): Acting, worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    let done = worker.site.desk.act(&who, &event, Act::Resume).await?;
    decided(&worker, &event, done).await
}

pub async fn close(Acting(who): Acting, worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    let done = worker.site.desk.act(&who, &event, Act::Close).await?;
    decided(&worker, &event, done).await
}

pub async fn reopen(Acting(who): Acting, worker: Data<Worker>, About(event): About) -> Result<HttpResponse, Error> {
    let done = worker.site.desk.act(&who, &event, Act::Reopen).await?;
    decided(&worker, &event, done).await
}

pub async fn history(
    _: Viewer,
    worker: Data<Worker>,
    About(event): About,
    Asked(asked): Asked<Minutes>,
) -> Result<HttpResponse, Error> {
    let items = worker.site.history.points(&event, asked.minutes.unwrap_or(60)).await?;
    Ok(private(&Items { items }))
}

pub async fn kick(
    Then(Acting(who), Body(kick)): Then<Acting, Body<Kick>>,
    worker: Data<Worker>,
    About(event): About,
) -> Result<HttpResponse, Error> {
    let token = event.token(&kick.uuid).ok_or(Error::TokenNotFound)?;
    worker.site.desk.kick(&who, &worker.lane, &event, token).await?;
    Ok(no_content())
}

pub async fn cancel(
    Then(Acting(who), Body(cancel)): Then<Acting, Body<Cancel>>,
    worker: Data<Worker>,
    Part(ticket): Part<TicketId>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.desk.cancel(&who, ticket, &cancel.why).await?))
}

pub async fn audit(_: Viewer, worker: Data<Worker>, Asked(asked): Asked<AuditPage>) -> Result<HttpResponse, Error> {
    let event = asked.event.map(|event| EventId::new(event).ok_or(Error::EventNotFound)).transpose()?;
    let page = Page::new(asked.cursor, asked.limit).check()?;
    Ok(private(&worker.site.desk.audit(event, &page).await?))
}

pub async fn add_concert(
    Then(Admin(who), Body(plan)): Then<Admin, Body<ConcertPlan>>,
    worker: Data<Worker>,
) -> Result<HttpResponse, Error> {
    let concert = worker.site.programme.add_concert(&who, plan).await?;
    Ok(private(&worker.site.concerts.find(concert).await?))
}

pub async fn change_concert(
    Then(Admin(who), Body(change)): Then<Admin, Body<ConcertChange>>,
    worker: Data<Worker>,
    Part(concert): Part<ConcertId>,
) -> Result<HttpResponse, Error> {
    worker.site.programme.change_concert(&who, concert, change).await?;
    Ok(private(&worker.site.concerts.find(concert).await?))
}

pub async fn change_event(
    Then(Admin(who), Body(change)): Then<Admin, Body<EventChange>>,
    worker: Data<Worker>,
    About(event): About,
) -> Result<HttpResponse, Error> {
    worker.site.programme.change_event(&who, event.id, change).await?;
    Ok(private(&worker.site.concerts.event(&event).await?))
}
