//! `/users`: people and their money.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde::Deserialize;

use crate::app::Lane;
use crate::error::Error;
use crate::http::extract::{Asked, Body, MaySignUp, OnceKey, Person};
use crate::http::private;
use crate::page::Page;
use crate::people::{self, Name};
use crate::tickets;

#[derive(Deserialize)]
pub struct SignUp {
    name: String,
}

#[derive(Deserialize)]
pub struct Amount {
    amount: i64,
}

pub async fn sign_up(_: MaySignUp, lane: Data<Lane>, Body(sign_up): Body<SignUp>) -> Result<HttpResponse, Error> {
    Ok(private(&people::sign_up(&lane.app, Name::parse(&sign_up.name)?).await?))
}

pub async fn me(lane: Data<Lane>, Person(user): Person) -> Result<HttpResponse, Error> {
    Ok(private(&people::me(&lane.app, user).await?))
}

pub async fn balance(lane: Data<Lane>, Person(user): Person) -> Result<HttpResponse, Error> {
    Ok(private(&people::balance(&lane.app, user).await?))
}

pub async fn charge(
    lane: Data<Lane>,
    Person(user): Person,
    OnceKey(key): OnceKey,
    Body(charge): Body<Amount>,
) -> Result<HttpResponse, Error> {
    Ok(private(&people::charge(&lane.app, user, key, charge.amount).await?))
}

pub async fn movements(
    lane: Data<Lane>,
    Person(user): Person,
    Asked(page): Asked<Page>,
) -> Result<HttpResponse, Error> {
    Ok(private(&people::movements(&lane.app, user, &page.check()?).await?))
}

pub async fn payments(lane: Data<Lane>, Person(user): Person, Asked(page): Asked<Page>) -> Result<HttpResponse, Error> {
    Ok(private(&people::payments(&lane.app, user, &page.check()?).await?))
}

pub async fn tickets(lane: Data<Lane>, Person(user): Person, Asked(page): Asked<Page>) -> Result<HttpResponse, Error> {
    Ok(private(&tickets::of_user(&lane.app, user, &page.check()?).await?))
}
