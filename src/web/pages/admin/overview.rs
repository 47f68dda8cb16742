//! All sales, those that need attention first.

use actix_web::HttpResponse;
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::control::State;
use crate::base::error::Error;
use crate::base::recent::RECENT;
use crate::house::desk::{Attention, BookingTime, SaleView};
use crate::house::operators::Role;
use crate::web::pages::admin::{AtDesk, with_operator};
use crate::web::pages::layout::count;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// Sales on one page.
const SHOWN: usize = 50;

#[derive(Default, Deserialize)]
struct Look {
    /// How many pages were turned.
    page: Option<usize>,
}

pub async fn page(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Viewer, async |desk| overview(desk).await).await
}

async fn overview(desk: &AtDesk) -> Result<Reply, Error> {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let page = visit.query::<Look>().page.unwrap_or(0);
    let (sales, more) = visit.site().desk.by_attention(page.saturating_mul(SHOWN), SHOWN).await;
    let main = html! {
        h1 { (t.sales) }
        @if sales.is_empty() { p.muted { (t.no_sales) } }
        @else {
            p.muted { (t.needs_attention) }
            div.scroll tabindex="0" role="region" aria-label=(t.sales) {
                table.sales {
                    thead { tr {
                        th scope="col" { (t.event) } th scope="col" { (t.state) }
                        th.number scope="col" { (t.waiting) } th.number scope="col" { (t.inside) }
                        th.number scope="col" { (t.sold) } th.number scope="col" { (t.taken) }
                    } }
                    tbody { @for (sale, attention) in &sales { (row(desk, sale, *attention)) } }
                }
            }
            @if more { p { a href={ "/admin?page=" (page + 1) } { (t.more) } } }
        }
        (troubles(desk))
    };
    Ok(desk.page(t.sales, &main))
}

fn troubles(desk: &AtDesk) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let troubles = RECENT.list();
    html! {
        section aria-labelledby="troubles" {
            h2 #troubles { (t.troubles) }
            @if troubles.is_empty() { p.muted { (t.no_troubles) } }
            @else {
                ul.plain { @for trouble in &troubles {
                    li.code { (visit.time(trouble.at)) " " @if trouble.error { strong.over { (trouble.text) } } @else { (trouble.text) } }
                } }
            }
        }
    }
}

fn row(desk: &AtDesk, sale: &SaleView, attention: Attention) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let figures = &sale.figures;
    html! {
        tr {
            th scope="row" {
                a href={ "/admin/events/" (sale.event_id) } { (sale.title) }
                @if let Some(starts_at) = sale.starts_at { br; span.muted { (visit.time(starts_at)) } }
            }
            td { (state(desk, sale)) (warning(desk, attention)) }
            td.number { (count(figures.waiting)) }
            td.number { (fill(t.of, &[&count(figures.inside), &setting(sale, "maxActive")])) }
            td.number { (fill(t.of, &[&count(figures.sold), &count(figures.seats)])) }
            td.number { (visit.amount(figures.revenue)) }
        }
    }
}

pub fn setting(sale: &SaleView, name: &str) -> String {
    sale.policy.settings.get(name).and_then(serde_json::Value::as_u64).map(count).unwrap_or_default()
}

pub fn state(desk: &AtDesk, sale: &SaleView) -> Markup {
    let t = desk.visit.console();
    let (class, text) = match (sale.state, sale.booking) {
        (State::Closed, _) => ("over", t.closed),
        (_, BookingTime::Over) => ("over", t.booking_over),
        (State::Paused, _) => ("soon", t.paused),
        (State::Open, BookingTime::NotYet) => ("soon", t.not_yet),
        (State::Open, BookingTime::Open) => ("open", t.open),
    };
    html! { span class={ "badge " (class) } { (text) } }
}

pub fn warning(desk: &AtDesk, attention: Attention) -> Markup {
    let t = desk.visit.console();
    let text = match attention {
        Attention::DatabaseBehind => t.attention_lost,
        Attention::NoFigures => t.attention_old,
        _ => return html! {},
    };
    html! { br; strong.over { (text) } }
}
