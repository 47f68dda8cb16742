//! The forms of a sale's page.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::base::control::{Act, Reason};
use crate::base::error::Error;
use crate::base::policy::{Policy, SETTINGS};
use crate::event::Event;
use crate::event::estimate::Range;
use crate::house::operators::Role;
use crate::sale::control::{Decided, PolicyView};
use crate::web::pages::admin::sale::{Left, name, sale_page};
use crate::web::pages::admin::{AtDesk, with_operator};
use crate::web::pages::form::{Nothing, Posted, incomplete};
use crate::web::pages::layout::count;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

#[derive(Deserialize)]
pub struct PauseForm {
    ko: String,
    en: String,
    what: Option<String>,
}

#[derive(Deserialize)]
pub struct KickForm {
    uuid: String,
}

/// After a decision: the page of the sale, which says how it went.
fn decided(event: &Event, decided: &Decided) -> Reply {
    let done = if decided.in_force { "now" } else { "later" };
    Reply::see(format!("/admin/events/{}?done={done}", event.id))
}

/// The page again, with what was typed and what is wrong with it.
async fn refused(desk: &AtDesk, event: &Arc<Event>, left: Left) -> Result<Reply, Error> {
    Ok(sale_page(desk, event, left).await?.with_status(StatusCode::UNPROCESSABLE_ENTITY))
}

/// A broken rule in the language of the page.
fn told(desk: &AtDesk, rule: String) -> String {
    let t = desk.visit.console();
    let told = match rule.as_str() {
        Policy::PASS_OUTLASTS_HOLD => t.rule_pass,
        Policy::HOLD_OUTLASTS_SYNC => t.rule_sync,
        Act::CLOSED => t.rule_closed,
        Act::PAUSED => t.rule_paused,
        _ => return rule,
    };
    told.to_owned()
}

pub async fn pause(visit: Visit, Posted(form): Posted<PauseForm>) -> HttpResponse {
    with_operator(visit, Role::Operator, async |desk| {
        let PauseForm { ko, en, what } = form?;
        let (event, t) = (desk.visit.event().await?, desk.visit.console());
        let typed = Reason { ko, en };
        let empty = typed.ko.trim().is_empty() && typed.en.trim().is_empty();
        let reason = if empty { Ok(None) } else { typed.clone().check().map(Some) };
        let Ok(reason) = reason else {
            let problem = Some(t.refused_both.to_owned());
            return refused(desk, &event, Left { problem, reason: Some(typed), ..Left::default() }).await;
        };
        if what.as_deref() == Some("preview") {
            return sale_page(desk, &event, Left { reason, show_reason: true, ..Left::default() }).await;
        }
        match desk.visit.site().desk.act(&desk.operator, &event, Act::Pause(reason)).await {
            Ok(done) => Ok(decided(&event, &done)),
            Err(Error::InvalidPolicy(rule)) => {
                refused(desk, &event, Left { problem: Some(told(desk, rule)), ..Left::default() }).await
            }
            Err(error) => Err(error),
        }
    })
    .await
}

macro_rules! acts {
    ($($name:ident: $act:expr;)*) => { $(
        pub async fn $name(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
            with_operator(visit, Role::Operator, async |desk| {
                form?;
                let event = desk.visit.event().await?;
                match desk.visit.site().desk.act(&desk.operator, &event, $act).await {
                    Ok(done) => Ok(decided(&event, &done)),
                    Err(Error::InvalidPolicy(rule)) => {
                        refused(desk, &event, Left { problem: Some(told(desk, rule)), ..Left::default() }).await
                    }
                    Err(error) => Err(error),
                }
            })
            .await
        }
    )* };
}

acts! {
    resume: Act::Resume;
    close: Act::Close;
    reopen: Act::Reopen;
}

pub async fn policy(visit: Visit, Posted(form): Posted<HashMap<String, String>>) -> HttpResponse {
    with_operator(visit, Role::Operator, async |desk| {
        let form = form?;
        let event = desk.visit.event().await?;
        // Nothing may be left out: an empty field is a decision, and a version keeps others' decisions.
        let typed: Option<Vec<String>> = SETTINGS.iter().map(|setting| form.get(setting.name).cloned()).collect();
        let version = form.get("version").and_then(|version| version.parse::<i64>().ok());
        let (Some(typed), Some(version)) = (typed, version) else { return Err(incomplete()) };
        let left = |problem: Option<String>| Left { problem, settings: Some(typed.clone()), ..Left::default() };
        let house = &desk.visit.site().desk;
        let changes = match read(desk, &house.policy(&event), &typed) {
            Ok(changes) => changes,
            Err(problem) => return refused(desk, &event, left(Some(problem))).await,
        };
        let what = form.get("what").map(String::as_str);
        if what == Some("preview") {
            return match house.what_if(&event, &changes).await {
                Ok((now, then)) => {
                    let what_if = Some(what_if(desk, now, then));
                    sale_page(desk, &event, Left { what_if, ..left(None) }).await
                }
                Err(Error::InvalidPolicy(rule)) => refused(desk, &event, left(Some(told(desk, rule)))).await,
                Err(error) => Err(error),
            };
        }
        if what != Some("save") {
            return Err(incomplete());
        }
        match house.set_policy(&desk.operator, &event, Some(version), changes).await {
            Ok(done) => Ok(decided(&event, &done)),
            Err(Error::InvalidPolicy(rule)) => refused(desk, &event, left(Some(told(desk, rule)))).await,
            Err(Error::PolicyChanged { .. }) => {
                // With the settings in force, not the typed ones: saving those again would undo the change of the other.
                let problem = Some(desk.visit.console().refused_stale.to_owned());
                refused(desk, &event, Left { problem, ..Left::default() }).await
            }
            Err(error) => Err(error),
        }
    })
    .await
}

/// The typed settings that differ from those in force. What was emptied goes back to the configuration.
fn read(desk: &AtDesk, in_force: &PolicyView, typed: &[String]) -> Result<Map<String, Value>, String> {
    let mut changes = Map::new();
    for (setting, text) in SETTINGS.iter().zip(typed) {
        let text: String = text.chars().filter(|letter| !matches!(letter, ',' | ' ')).collect();
        if text.is_empty() {
            changes.insert(setting.name.to_owned(), Value::Null);
            continue;
        }
        let value = text.parse::<u64>().map_or(Value::Null, Value::from);
        if setting.check(&value).is_err() {
            let t = desk.visit.console();
            let bounds = (count(setting.lowest), count(setting.highest));
            return Err(fill(t.refused_number, &[&name(desk, setting), &bounds.0, &bounds.1]));
        }
        if in_force.settings.get(setting.name) != Some(&value) {
            changes.insert(setting.name.to_owned(), value);
        }
    }
    Ok(changes)
}

fn what_if(desk: &AtDesk, now: Option<Range>, then: Option<Range>) -> String {
    let t = desk.visit.console();
    let range = |range: Option<Range>| match range {
        Some(Range { low, high }) => fill(t.range, &[&desk.visit.span(low), &desk.visit.span(high)]),
        None => t.unknown_wait.to_owned(),
    };
    if then.is_none() { t.what_if_unknown.to_owned() } else { fill(t.what_if, &[&range(then), &range(now)]) }
}

pub async fn kick(visit: Visit, Posted(form): Posted<KickForm>) -> HttpResponse {
    with_operator(visit, Role::Operator, async |desk| {
        let KickForm { uuid } = form?;
        let event = desk.visit.event().await?;
        let Some(token) = event.token(uuid.trim()) else {
            let problem = Some(desk.visit.console().refused_token.to_owned());
            return refused(desk, &event, Left { problem, token: Some(uuid), ..Left::default() }).await;
        };
        if !desk.visit.site().desk.kick(&desk.operator, &desk.visit.worker.lane, &event, token).await? {
            let problem = Some(desk.visit.console().refused_over.to_owned());
            return refused(desk, &event, Left { problem, token: Some(uuid), ..Left::default() }).await;
        }
        Ok(Reply::see(format!("/admin/events/{}?done=now", event.id)))
    })
    .await
}
