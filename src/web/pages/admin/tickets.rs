//! Tickets of any buyer: found, and taken back.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::ids::{EventId, TicketId};
use crate::house::desk::Found;
use crate::house::operators::Role;
use crate::web::pages::admin::{AtDesk, with_operator};
use crate::web::pages::form::Posted;
use crate::web::pages::reply::Reply;
use crate::web::pages::visit::Visit;

#[derive(Default, Deserialize)]
struct Look {
    wanted: Option<String>,
    event: Option<String>,
}

#[derive(Deserialize)]
pub struct CancelForm {
    why: String,
}

pub async fn page(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Viewer, async |desk| {
        let Look { wanted, event } = desk.visit.query();
        let event = event.unwrap_or_default();
        let found = match &wanted {
            Some(wanted) => Some(find(desk, wanted, &event).await?),
            None => None,
        };
        Ok(list(desk, wanted.as_deref().unwrap_or_default(), &event, found.as_deref(), None))
    })
    .await
}

/// A seat of an event that does not exist is not found either.
async fn find(desk: &AtDesk, wanted: &str, event: &str) -> Result<Vec<Found>, Error> {
    let event: Option<EventId> = event.trim().parse().ok();
    match desk.visit.site().desk.find_tickets(wanted, event).await {
        Err(Error::EventNotFound) => Ok(Vec::new()),
        found => found,
    }
}

fn list(desk: &AtDesk, wanted: &str, event: &str, found: Option<&[Found]>, problem: Option<&str>) -> Reply {
    let t = desk.visit.console();
    let main = html! {
        h1 { (t.find_tickets) }
        @if let Some(problem) = problem { div.alert.warn role="alert" { strong { (t.refused) } p { (problem) } } }
        form.panel method="get" action="/admin/tickets" role="search" {
            label { span { (t.wanted) } input type="text" name="wanted" required value=(wanted) autocomplete="off"; }
            label { span { (t.in_event) } input type="text" inputmode="numeric" name="event" value=(event) autocomplete="off"; }
            button.button.primary type="submit" { (t.find) }
        }
        @match found {
            None => {},
            Some([]) => p role="status" { (t.none_found) },
            Some(found) => ul.cards { @for found in found { li { (card(desk, found)) } } },
        }
    };
    desk.page(t.tickets, &main)
}

fn card(desk: &AtDesk, Found { ticket, person }: &Found) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    let living = ticket.cancelled_at.is_none();
    html! {
        article.panel {
            h2 { (ticket.title) " · " (ticket.label) }
            dl.figures {
                div { dt { (t.event) } dd { a href={ "/admin/events/" (ticket.event_id) } { (ticket.event_id) } } }
                div { dt { (t.price) } dd { (visit.amount(ticket.price)) } }
                div { dt { (t.state) } dd { @if living { (t.paid) } @else { strong.over { (t.cancelled) } } } }
                div { dt { (t.when) } dd { (visit.time(ticket.cancelled_at.unwrap_or(ticket.sold_at))) } }
                div.wide { dt { (t.number) } dd.code { (ticket.ticket_id) } }
                div.wide { dt { (t.buyer) } dd.code { @match person { Some(person) => (person.0), None => (t.guest) } } }
            }
            @if living && desk.operator.check(Role::Operator).is_ok() {
                details.cancel { summary { (t.cancel) }
                    form method="post" action={ "/admin/tickets/" (ticket.ticket_id) "/cancel" } {
                        p.hint { (t.cancel_hint) }
                        label { span { (t.why) } input type="text" name="why" required maxlength="500" autocomplete="off"; }
                        button.button.danger type="submit" { (t.cancel) }
                    }
                }
            }
        }
    }
}

pub async fn cancel(visit: Visit, Posted(form): Posted<CancelForm>) -> HttpResponse {
    with_operator(visit, Role::Operator, async |desk| {
        let CancelForm { why } = form?;
        let ticket: TicketId = desk.visit.part("ticket").ok_or(Error::TicketNotFound)?;
        match desk.visit.site().desk.cancel(&desk.operator, ticket, &why).await {
            Ok(_) => Ok(Reply::see(format!("/admin/tickets?wanted={ticket}"))),
            Err(Error::InvalidRequest(_)) => {
                let wanted = ticket.to_string();
                let found = find(desk, &wanted, "").await?;
                let problem = Some(desk.visit.console().refused_why);
                Ok(list(desk, &wanted, "", Some(&found), problem).with_status(StatusCode::UNPROCESSABLE_ENTITY))
            }
            Err(error) => Err(error),
        }
    })
    .await
}
