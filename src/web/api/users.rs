//! `/users`: people and their money.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::base::error::Error;
use crate::base::ids::{KeyId, SessionId};
use crate::base::paging::Page;
use crate::house::people::Name;
use crate::web::answer::{no_content, private};
use crate::web::cookies::SESSION;
use crate::web::extract::{Asked, Body, MaySignUp, MaybeStrangersKey, OnceKey, Part, Person};
use crate::web::site::Worker;

#[derive(Deserialize, ToSchema)]
pub struct SignUp {
    /// 1 to 50 letters.
    #[schema(min_length = 1, max_length = 50, example = "Kim Haneul")]
    name: String,
}

#[derive(Deserialize, ToSchema)]
pub struct Amount {
    /// In whole units of the currency.
    #[schema(minimum = 1, maximum = 10_000_000, example = 300_000)]
    amount: i64,
}

pub async fn sign_up(
    _: MaySignUp,
    worker: Data<Worker>,
    MaybeStrangersKey(once): MaybeStrangersKey,
    Body(sign_up): Body<SignUp>,
) -> Result<HttpResponse, Error> {
    let (people, name) = (&worker.site.people, Name::parse(&sign_up.name)?);
    Ok(private(&match once {
        Some(once) => people.sign_up_once(name, &once).await?,
        None => people.sign_up(name).await?,
    }))
}

pub async fn me(worker: Data<Worker>, Person(person): Person) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.people.find(person).await?))
}

/// What a key is for, in your own words.
#[derive(Deserialize, ToSchema)]
pub struct KeyName {
    /// 1 to 50 letters.
    #[schema(min_length = 1, max_length = 50, example = "box office")]
    name: String,
}

pub async fn keys(worker: Data<Worker>, Person(person): Person) -> Result<HttpResponse, Error> {
    Ok(private(&json!({ "items": worker.site.credentials.keys_of(person).await? })))
}

pub async fn make_key(
    worker: Data<Worker>,
    Person(person): Person,
    Body(key): Body<KeyName>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.credentials.make_key(person, &Name::parse(&key.name)?).await?))
}

pub async fn revoke_key(
    worker: Data<Worker>,
    Person(person): Person,
    Part(key): Part<KeyId>,
) -> Result<HttpResponse, Error> {
    worker.site.credentials.revoke_key(person, key).await?;
    Ok(no_content())
}

pub async fn sessions(
    worker: Data<Worker>,
    Person(person): Person,
    request: HttpRequest,
) -> Result<HttpResponse, Error> {
    let current = worker.site.settings.cookies.get(&request, SESSION);
    Ok(private(&json!({ "items": worker.site.credentials.sessions_of(person, current.as_deref()).await? })))
}

pub async fn end_session(
    worker: Data<Worker>,
    Person(person): Person,
    Part(session): Part<SessionId>,
) -> Result<HttpResponse, Error> {
    worker.site.credentials.end_session_of(person, session).await?;
    Ok(no_content())
}

pub async fn balance(worker: Data<Worker>, Person(person): Person) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.people.balance(person).await?))
}

pub async fn charge(
    worker: Data<Worker>,
    Person(person): Person,
    OnceKey(key): OnceKey,
    Body(charge): Body<Amount>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.people.charge(person, key, charge.amount).await?))
}

pub async fn movements(
    worker: Data<Worker>,
    Person(person): Person,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.people.movements(person, &page.check()?).await?))
}

pub async fn orders(
    worker: Data<Worker>,
    Person(person): Person,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.orders.of_person(person, &page.check()?).await?))
}

pub async fn payments(
    worker: Data<Worker>,
    Person(person): Person,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.people.payments(person, &page.check()?).await?))
}

pub async fn tickets(
    worker: Data<Worker>,
    Person(person): Person,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(private(&worker.site.tickets.of_person(person, &page.check()?).await?))
}
