//! A ticket, for its buyer: to show at the door, print, or cancel.

use actix_web::HttpResponse;
use chrono::Utc;
use maud::{Markup, PreEscaped, html};
use qrcode::QrCode;
use qrcode::render::svg;
use serde::Deserialize;

use crate::base::error::Error;
use crate::base::seal::Sealed;
use crate::sale::tickets::{Buyer, Shown, Ticket};
use crate::web::pages::form::{Nothing, Posted};
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

#[derive(Default, Deserialize)]
struct Look {
    new: Option<u8>,
    problem: Option<String>,
}

impl Visit {
    pub async fn buyer(&self) -> Result<Buyer, Error> {
        Ok(Buyer { claims: self.claims(), person: self.owner().await?, event: None })
    }
}

pub async fn page(visit: Visit) -> HttpResponse {
    let reply = ticket_page(&visit).await;
    visit.answer(reply)
}

async fn ticket_page(visit: &Visit) -> Result<Reply, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let id = visit.part("ticket").ok_or(Error::TicketNotFound)?;
    let buyer = visit.buyer().await?;
    let Shown { ticket, order: others, event, nobodys } = match site.tickets.with_order(&buyer, id).await {
        Err(Error::Unauthorized(_)) if buyer.person.is_none() => return Ok(visit.to_sign_in()),
        shown => shown?,
    };
    let living = ticket.cancelled_at.is_none();
    let in_time = event.facts().cancel_until.is_none_or(|until| Utc::now() < until);
    let problem = visit.query::<Look>().problem;
    let main = html! {
        @if problem.as_deref() == Some("limit") { div.alert.warn role="alert" { p { (t.claim_limit) } } }
        @if living && visit.query::<Look>().new.is_some() { div.alert.good role="status" { p { (t.bought) } } }
        article.ticket {
            div.ticket-text {
                p.brand { "ZTicket" }
                h1 { (ticket.title) }
                dl.figures {
                    @if let Some(starts_at) = ticket.starts_at { div { dt { (t.date) } dd { (visit.time(starts_at)) } } }
                    div { dt { (t.seat) } dd.big { (ticket.label) } }
                    div { dt { (t.price) } dd { (visit.money(ticket.price)) } }
                    div { dt { (t.status) } dd { @if living { (t.paid) } @else { strong.over { (t.cancelled) } } } }
                    div.wide { dt { (t.ticket_number) } dd.code { (ticket.ticket_id) } }
                }
            }
            @if living {
                div.qr {
                    (qr(visit, &ticket)?)
                    p.hint { (t.qr_hint) }
                }
            }
        }
        @if others.len() > 1 {
            section.no-print aria-labelledby="order" {
                h2 #order { (t.same_order) }
                ul.chips {
                    @for other in &others {
                        li { a href={ "/tickets/" (other.ticket_id) } aria-current=[(other.ticket_id == ticket.ticket_id).then_some("page")] {
                            (other.label) @if other.cancelled_at.is_some() { " · " (t.cancelled) } } }
                    }
                }
            }
        }
        @if nobodys && living {
            div.no-print {
                p { (t.nobodys) }
                @if buyer.person.is_some() {
                    form method="post" action={ "/tickets/" (ticket.ticket_id) "/claim" } { button.button type="submit" { (t.claim) } }
                }
            }
        }
        @if living {
            div.no-print {
                p.actions { button.button type="button" data-print hidden { (t.print) } }
                @if in_time {
                    details.cancel { summary { (t.cancel_ticket) }
                        p { @if ticket.price > 0 { (fill(t.cancel_money, &[&visit.amount(ticket.price)])) } @else { (t.cancel_free) } }
                        form method="post" action={ "/tickets/" (ticket.ticket_id) "/cancel" } {
                            button.button.danger type="submit" { (t.cancel_sure) }
                        }
                    }
                } @else { p.muted { (t.cancel_over) } }
            }
        }
    };
    Ok(Reply::page(format!("{} {}", t.ticket, ticket.label), main))
}

/// The seal as a picture: black on white whatever the colours of the page, because scanners need that.
fn qr(visit: &Visit, ticket: &Ticket) -> Result<Markup, Error> {
    let facts = Sealed { ticket: ticket.ticket_id, event: ticket.event_id, seat: ticket.seat_number };
    let text = visit.site().seal.sign(&facts);
    let code = QrCode::new(&text).map_err(Error::internal)?;
    let picture = code.render::<svg::Color>().min_dimensions(240, 240).build();
    // Without the XML declaration, which does not belong inside a page.
    let drawn = picture.split_once("?>").map_or(picture.as_str(), |(_, svg)| svg);
    let label = fill(visit.texts().qr_label, &[&ticket.label]);
    Ok(html! { div role="img" aria-label=(label) { (PreEscaped(drawn)) } })
}

pub async fn cancel(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let id = visit.part("ticket").ok_or(Error::TicketNotFound)?;
        visit.within(|limits| &limits.buy)?;
        match visit.site().tickets.cancel(&visit.buyer().await?, id).await {
            Ok(_) | Err(Error::CancelTooLate { .. }) => Ok(Reply::see(format!("/tickets/{id}"))),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

/// Keeps a ticket that was bought without signing in with the account of whoever signed in since.
pub async fn claim(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        let id = visit.part("ticket").ok_or(Error::TicketNotFound)?;
        visit.within(|limits| &limits.buy)?;
        match visit.site().tickets.claim(&visit.buyer().await?, id).await {
            Ok(()) => Ok(Reply::see(format!("/tickets/{id}"))),
            Err(Error::TicketLimit { .. }) => Ok(Reply::see(format!("/tickets/{id}?problem=limit"))),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}
