//! One sale: its figures, and everything an operator can do about it.

use std::cmp::Reverse;
use std::sync::Arc;

use actix_web::HttpResponse;
use chrono::Utc;
use maud::{Markup, html};

use crate::base::control::{Reason, State};
use crate::base::error::Error;
use crate::base::paging::Page;
use crate::base::policy::{SETTINGS, Setting};
use crate::event::Event;
use crate::house::desk::SaleView;
use crate::house::history::{Point, RefusedBy};
use crate::house::operators::Role;
use crate::web::pages::admin::overview::{setting, state, warning};
use crate::web::pages::admin::{AtDesk, audit, charts, with_operator};
use crate::web::pages::layout::count;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// What a form left to say, and what was typed into it.
#[derive(Default)]
pub struct Left {
    /// It worked: what to say about it.
    pub good: Option<String>,
    /// It was refused: why, and what to do.
    pub problem: Option<String>,
    /// The settings as typed, in the order of [`SETTINGS`].
    pub settings: Option<Vec<String>>,
    /// What the typed settings would do.
    pub what_if: Option<String>,
    pub reason: Option<Reason>,
    /// Whether to show how the reason will look.
    pub show_reason: bool,
    pub token: Option<String>,
}

pub async fn page(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Viewer, async |desk| {
        let event = desk.visit.event().await?;
        let done = desk.visit.query::<Look>().done;
        let t = desk.visit.console();
        let good = match done.as_deref() {
            Some("now") => Some(t.saved.to_owned()),
            Some("later") => Some(t.kept.to_owned()),
            _ => None,
        };
        sale_page(desk, &event, Left { good, ..Left::default() }).await
    })
    .await
}

#[derive(Default, serde::Deserialize)]
struct Look {
    /// How the last form went.
    done: Option<String>,
}

/// The parts that change by the second.
pub async fn live(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Viewer, async |desk| {
        let event = desk.visit.event().await?;
        let sale = desk.visit.site().desk.sale(&event).await?;
        Ok(Reply::part(html! { (figures(desk, &sale)) (pictures(desk, &event).await?) }))
    })
    .await
}

pub async fn sale_page(desk: &AtDesk, event: &Arc<Event>, left: Left) -> Result<Reply, Error> {
    let (site, t) = (desk.visit.site(), desk.visit.console());
    let sale = site.desk.sale(event).await?;
    let log = site.desk.audit(Some(event.id), &Page::after(None)).await?;
    let may_act = desk.operator.check(Role::Operator).is_ok();
    let main = html! {
        p.crumb { a href="/admin" { "← " (t.sales) } }
        div.title-row {
            h1 { (sale.title) }
            p { (state(desk, &sale)) (warning(desk, site.desk.attention(event))) }
        }
        @if let Some(starts_at) = sale.starts_at { p.muted { (desk.visit.time(starts_at)) } }
        @if !sale.in_force { div.alert.warn role="status" { p { (t.kept) } } }
        @if let Some(good) = &left.good { div.alert.good role="status" { p { (good) } } }
        @if let Some(problem) = &left.problem {
            div.alert.warn role="alert" { strong { (t.refused) } p { (problem) } }
        }
        div data-live={ "/admin/events/" (event.id) "/live" } { (figures(desk, &sale)) }
        @if may_act {
            div.watch { (pausing(desk, &sale, &left)) (pictures(desk, event).await?) }
            (settings(desk, &sale, &left))
            (kicking(desk, &sale, &left))
        } @else {
            (pictures(desk, event).await?)
        }
        section aria-labelledby="log" { h2 #log { (t.audit) } (audit::entries(desk, &log.items)) }
    };
    Ok(desk.page(&sale.title, &main))
}

fn figures(desk: &AtDesk, sale: &SaleView) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let figures = &sale.figures;
    let optional = |value: Option<String>| value.unwrap_or_else(|| t.unknown.to_owned());
    html! {
        dl.figures.panel #live-figures {
            div { dt { (t.waiting) } dd.big { (count(figures.waiting)) }
                @if figures.absent > 0 { dd.muted { (fill(t.absent, &[&count(figures.absent)])) } }
            }
            div { dt { (t.inside) } dd.big { (fill(t.of, &[&count(figures.inside), &setting(sale, "maxActive")])) } }
            div { dt { (t.held) } dd.big { (count(figures.held)) } }
            div { dt { (t.sold) } dd.big { (fill(t.of, &[&count(figures.sold), &count(figures.seats)])) } }
            div { dt { (t.left) } dd.big { (count(figures.left)) } }
            div.money { dt { (t.taken) } dd.big { (visit.amount(figures.revenue)) } }
            div { dt { (t.pace) } dd { (optional(sale.pace.map(|pace| format!("{pace:.1}")))) } }
            div { dt { (t.score) } dd { (optional(sale.estimate_score.map(|score| format!("{:.0} %", score * 100.0)))) } }
            div { dt { (t.gave_up) } dd { (count(figures.gave_up)) } }
            div { dt { (t.swept) } dd { (count(figures.swept)) } }
            div { dt { (t.overdue) } dd { (count(figures.overdue)) } }
            div.wide { dt { (t.refused_lately) } dd { (refused(desk, figures.refused.as_ref())) } }
        }
    }
}

/// What was refused in the last hour, most often first.
fn refused(desk: &AtDesk, refused: Option<&RefusedBy>) -> Markup {
    let t = desk.visit.console();
    let mut reasons: Vec<(&String, &i64)> = refused.into_iter().flatten().collect();
    reasons.sort_by_key(|(_, times)| Reverse(**times));
    html! {
        @if refused.is_none() { (t.unknown) } @else if reasons.is_empty() { "0" }
        @else {
            ul.plain {
                @for (reason, times) in reasons { li { code { (reason) } " " (count(u64::try_from(*times).unwrap_or(0))) } }
            }
        }
    }
}

/// The last hour, and the hall.
async fn pictures(desk: &AtDesk, event: &Arc<Event>) -> Result<Markup, Error> {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let points = visit.site().history.points(event, 60).await?;
    let snapshot = event.snapshot.load_full();
    Ok(html! {
        div #live-pictures {
            section aria-labelledby="hour" {
                h2 #hour { (t.last_hour) }
                @if points.len() < 2 { p.muted { (t.no_points) } }
                @else { div.charts { (chart_row(desk, &points)) } }
            }
            @if let Some(snapshot) = &snapshot {
                section aria-labelledby="hall" { h2 #hall { (t.hall) } (charts::hall(desk, event, snapshot)) }
            }
        }
    })
}

fn chart_row(desk: &AtDesk, points: &[Point]) -> Markup {
    let (t, now) = (desk.visit.console(), Utc::now());
    let of = |value: fn(&Point) -> i64| points.iter().map(|point| (point.at, value(point) as f64)).collect::<Vec<_>>();
    // Counters become paces: how much each rose from one point to the next. Cancelled tickets are no sales.
    let pace = |value: fn(&Point) -> i64| {
        let pairs = points.iter().zip(points.iter().skip(1));
        let rise = |(before, after): (&Point, &Point)| {
            let seconds = ((after.at - before.at).num_milliseconds() as f64 / 1000.0).max(1.0);
            (after.at, (value(after) - value(before)).max(0) as f64 / seconds)
        };
        pairs.map(rise).collect::<Vec<_>>()
    };
    html! {
        (charts::line(desk, t.waiting, &of(|point| point.waiting), now))
        (charts::line(desk, t.inside, &of(|point| point.inside), now))
        (charts::line(desk, t.sold, &of(|point| point.sold), now))
        (charts::line(desk, t.pace, &pace(|point| point.admitted), now))
        (charts::line(desk, t.ticket_pace, &pace(|point| point.sold), now))
    }
}

fn pausing(desk: &AtDesk, sale: &SaleView, left: &Left) -> Markup {
    let t = desk.visit.console();
    let path = |action: &str| format!("/admin/events/{}/{action}", sale.event_id);
    let typed = left
        .reason
        .clone()
        .or_else(|| sale.reason.clone())
        .unwrap_or_else(|| Reason { ko: String::new(), en: String::new() });
    html! {
        section.panel aria-labelledby="pausing" {
            h2 #pausing { (t.state) ": " (state(desk, sale)) }
            @match sale.state {
                State::Open => {},
                State::Paused => { (reading(desk, sale.reason.as_ref())) form method="post" action=(path("resume")) { button.button.primary type="submit" { (t.resume) } } },
                State::Closed => form method="post" action=(path("reopen")) { button.button.primary type="submit" { (t.reopen) } },
            }
            @if sale.state == State::Open {
                form method="post" action=(path("pause")) {
                    p.hint { (t.pause_hint) }
                    fieldset {
                        legend { (t.reason) }
                        label { span { (t.reason_ko) } input type="text" name="ko" lang="ko" maxlength="200" value=(typed.ko); }
                        label { span { (t.reason_en) } input type="text" name="en" lang="en" maxlength="200" value=(typed.en); }
                    }
                    @if left.show_reason { (reading(desk, left.reason.as_ref())) }
                    p.actions {
                        button.button.primary type="submit" name="what" value="pause" { (t.pause) }
                        button.button type="submit" name="what" value="preview" { (t.preview) }
                    }
                }
                details { summary { (t.close) }
                    p { (t.close_hint) }
                    form method="post" action=(path("close")) { button.button.danger type="submit" { (t.close_sure) } }
                }
            }
        }
    }
}

/// What visitors read about a pause, in both languages.
fn reading(desk: &AtDesk, reason: Option<&Reason>) -> Markup {
    use crate::web::pages::text::Lang;
    html! {
        p.hint { (desk.visit.console().visitors_read) }
        @for lang in Lang::ALL {
            div.alert.warn lang=(lang.code()) {
                strong { (lang.texts().pause_title) }
                p { (reason.map_or(lang.texts().pause_hint, |reason| lang.of(reason))) }
            }
        }
    }
}

fn settings(desk: &AtDesk, sale: &SaleView, left: &Left) -> Markup {
    let t = desk.visit.console();
    let value = |at: usize, setting: &Setting| {
        let typed = left.settings.as_ref().and_then(|typed| typed.get(at).cloned());
        typed.unwrap_or_else(|| sale.policy.settings.get(setting.name).map(ToString::to_string).unwrap_or_default())
    };
    html! {
        section.panel aria-labelledby="settings" {
            h2 #settings { (t.settings) }
            p.hint { (t.settings_hint) }
            form method="post" action={ "/admin/events/" (sale.event_id) "/policy" } data-preview {
                input type="hidden" name="version" value=(sale.policy.version);
                div.knobs {
                    @for (at, setting) in SETTINGS.iter().enumerate() {
                        @let changed = sale.policy.changed.iter().any(|name| name == setting.name);
                        div {
                            label {
                                span { (name(desk, setting)) @if changed { " · " strong { (t.changed) } } }
                                input type="text" inputmode="numeric" pattern="[0-9]*" name=(setting.name) value=(value(at, setting)) autocomplete="off"
                                    data-slider={ (setting.lowest) " " (setting.highest) };
                            }
                        }
                    }
                }
                div #preview aria-live="polite" {
                    @if let Some(what_if) = &left.what_if { div.alert.good { p { (what_if) } } }
                    @else if left.settings.is_some() && let Some(problem) = &left.problem { p.problem { (problem) } }
                }
                p.actions {
                    button.button.primary type="submit" name="what" value="save" { (t.save) }
                    button.button type="submit" name="what" value="preview" { (t.preview) }
                }
            }
        }
    }
}

/// What a setting is called here.
pub fn name(desk: &AtDesk, setting: &Setting) -> &'static str {
    let t = desk.visit.console();
    match setting.name {
        "batch" => t.batch,
        "intervalMs" => t.interval,
        "maxActive" => t.max_active,
        "activeTtlSeconds" => t.active_ttl,
        "holdTtlSeconds" => t.hold_ttl,
        "queueTtlSeconds" => t.queue_ttl,
        "maxQueue" => t.max_queue,
        "seatsPerPass" => t.seats_per_pass,
        _ => t.tickets_per_person,
    }
}

fn kicking(desk: &AtDesk, sale: &SaleView, left: &Left) -> Markup {
    let t = desk.visit.console();
    html! {
        section.panel aria-labelledby="kicking" {
            h2 #kicking { (t.kick) }
            form method="post" action={ "/admin/events/" (sale.event_id) "/kick" } {
                p.hint #kick-hint { (t.kick_hint) }
                label { span { (t.token) }
                    input type="text" name="uuid" required autocomplete="off" spellcheck="false" aria-describedby="kick-hint" value=[left.token.as_deref()];
                }
                button.button.danger type="submit" { (t.kick_sure) }
            }
        }
    }
}
