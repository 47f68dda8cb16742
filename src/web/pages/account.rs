//! The account: the balance and its movements, one's tickets.

use actix_web::HttpResponse;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use crate::base::error::Error;
use crate::base::ids::PersonId;
use crate::base::paging::{Page, PageOf};
use crate::house::people::{IdempotencyKey, LARGEST_CHARGE, Movement};
use crate::sale::tickets::Ticket;
use crate::web::cookies::SESSION;
use crate::web::pages::access::{self, again, next_field};
use crate::web::pages::form::Posted;
use crate::web::pages::layout::{encode, number};
use crate::web::pages::path::own_path;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

#[derive(Default, Deserialize)]
struct Look {
    /// Where to go on afterwards.
    next: Option<String>,
    /// The price to pay there.
    need: Option<i64>,
    problem: Option<String>,
    charged: Option<u8>,
    /// Where older movements and tickets begin.
    moved: Option<String>,
    tickets: Option<String>,
}

#[derive(Deserialize)]
pub struct Charge {
    amount: String,
    /// Identifies this form: sending it twice charges once.
    once: String,
    next: Option<String>,
}

pub async fn page(visit: Visit) -> HttpResponse {
    let reply = account_page(&visit).await;
    visit.answer(reply)
}

async fn account_page(visit: &Visit) -> Result<Reply, Error> {
    let t = visit.texts();
    let look: Look = visit.query();
    match visit.owner().await? {
        None => {
            let main = html! {
                (access::welcome(visit, look.problem.as_deref(), look.next.as_deref()))
                (of_nobody(visit).await?)
            };
            Ok(Reply::page(t.sign_up, main))
        }
        Some(person) if visit.cookie(SESSION).is_none() => access::exchange_old_key(visit, person).await,
        Some(person) => Ok(Reply::page(t.account, own(visit, person, &look).await?)),
    }
}

async fn own(visit: &Visit, person: PersonId, look: &Look) -> Result<Markup, Error> {
    let (site, t) = (visit.site(), visit.texts());
    let me = site.people.find(person).await?;
    let movements = site.people.movements(person, &Page::after(look.moved.clone())).await?;
    let tickets = site.tickets.of_person(person, &Page::after(look.tickets.clone())).await?;
    let missing = look.need.map(|need| need.saturating_sub(me.balance)).filter(|missing| *missing > 0);
    Ok(html! {
        h1 { (fill(t.hello, &[&me.name])) }
        @if let (Some(need), Some(missing)) = (look.need, missing) {
            div.alert.warn role="alert" { p { (fill(t.too_little, &[&visit.amount(need), &visit.amount(me.balance), &visit.amount(missing)])) } }
        }
        @if look.charged.is_some() {
            div.alert.good role="status" { p { (fill(t.charged, &[&visit.amount(me.balance)])) } }
        }
        @if let Some(next) = look.next.as_deref().filter(|_| missing.is_none()) {
            p.actions { a.button.primary href=(own_path(Some(next), "/")) { (t.go_on) } }
        }
        div.columns {
            (balance_panel(visit, look, me.balance, missing))
            (tickets_panel(visit, &tickets))
        }
        (of_nobody(visit).await?)
        (ledger(visit, &movements))
        (access::panel(visit, person, look.problem.as_deref()).await?)
    })
}

fn balance_panel(visit: &Visit, look: &Look, balance: i64, missing: Option<i64>) -> Markup {
    let t = visit.texts();
    html! {
        section.panel aria-labelledby="balance" {
            h2 #balance { (t.balance) }
            p.big { (visit.amount(balance)) }
            form method="post" action="/account/charge" {
                @match look.problem.as_deref() {
                    Some("amount") => p.problem role="alert" { (fill(t.wrong_amount, &[&number(LARGEST_CHARGE)])) },
                    Some("limit") => p.problem role="alert" { (t.balance_limit) },
                    _ => {},
                }
                label { span { (t.amount) }
                    input type="text" inputmode="numeric" name="amount" required pattern="[0-9, ]+" autocomplete="off"
                        value=(missing.map_or(100_000, |missing| missing.min(LARGEST_CHARGE))) aria-describedby="charge-hint";
                }
                p.hint #charge-hint { (fill(t.charge_hint, &[&number(LARGEST_CHARGE)])) }
                input type="hidden" name="once" value=(Uuid::now_v7());
                (next_field(look.next.as_deref()))
                button.button.primary type="submit" { (t.charge) }
            }
        }
    }
}

fn tickets_panel(visit: &Visit, tickets: &PageOf<Ticket>) -> Markup {
    let t = visit.texts();
    html! {
        section.panel aria-labelledby="tickets" {
            h2 #tickets { (t.my_tickets) }
            @if tickets.items.is_empty() { p.muted { (t.no_tickets) } }
            ul.list {
                @for ticket in &tickets.items { li { (ticket_line(visit, ticket)) } }
            }
            @if let Some(cursor) = &tickets.next_cursor { p { a href={ "/account?tickets=" (encode(cursor)) } { (t.older) } } }
        }
    }
}

/// Tickets that this browser alone has.
async fn of_nobody(visit: &Visit) -> Result<Markup, Error> {
    let (t, tickets) = (visit.texts(), visit.tickets_of_nobody().await?);
    Ok(html! {
        @if !tickets.is_empty() {
            section.panel aria-labelledby="of-nobody" {
                h2 #of-nobody { (t.of_nobody) }
                p.hint { (t.of_nobody_hint) }
                ul.list { @for ticket in &tickets { li { (ticket_line(visit, ticket)) } } }
            }
        }
    })
}

fn ticket_line(visit: &Visit, ticket: &Ticket) -> Markup {
    let t = visit.texts();
    html! {
        a href={ "/tickets/" (ticket.ticket_id) } { (ticket.title) " · " (ticket.label) }
        @if ticket.cancelled_at.is_some() { " " span.badge.over { (t.cancelled) } }
        @else if let Some(starts_at) = ticket.starts_at { " " span.muted { (visit.time(starts_at)) } }
    }
}

fn ledger(visit: &Visit, movements: &PageOf<Movement>) -> Markup {
    let t = visit.texts();
    html! {
        section aria-labelledby="movements" {
            h2 #movements { (t.movements) }
            @if movements.items.is_empty() { p.muted { (t.no_movements) } }
            @else {
                div.scroll tabindex="0" role="region" aria-labelledby="movements" {
                    table {
                        thead { tr { th scope="col" { (t.when) } th scope="col" { (t.what) }
                            th.number scope="col" { (t.amount) } th.number scope="col" { (t.after) } } }
                        tbody {
                            @for movement in &movements.items {
                                tr {
                                    td { (visit.time(movement.moved_at)) }
                                    td { @match movement.kind.as_str() { "CHARGE" => (t.kind_charge), "PAYMENT" => (t.kind_payment), _ => (t.kind_refund) } }
                                    td.number { (visit.amount(movement.amount)) }
                                    td.number { (visit.amount(movement.balance)) }
                                }
                            }
                        }
                    }
                }
                @if let Some(cursor) = &movements.next_cursor { p { a href={ "/account?moved=" (encode(cursor)) } { (t.older) } } }
            }
        }
    }
}

pub async fn charge(visit: Visit, Posted(form): Posted<Charge>) -> HttpResponse {
    let reply = async {
        let Charge { amount, once, next } = form?;
        let Some(person) = visit.owner().await? else { return Ok(Reply::see("/account")) };
        let Some(amount) = typed_amount(&amount) else { return Ok(again("amount", next.as_deref())) };
        match visit.site().people.charge(person, IdempotencyKey::parse(&once)?, amount).await {
            Ok(_) => {
                Ok(Reply::see(next.map_or("/account?charged=1".to_owned(), |next| own_path(Some(&next), "/account"))))
            }
            Err(Error::InvalidRequest(_) | Error::KeyReused) => Ok(again("amount", next.as_deref())),
            Err(Error::BalanceLimit(_)) => Ok(again("limit", next.as_deref())),
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

/// A number as people write it, with its digits in groups or not.
fn typed_amount(text: &str) -> Option<i64> {
    let digits: String = text.chars().filter(|letter| !matches!(letter, ',' | ' ')).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_amount_is_read_as_it_is_shown(amount in 0..=i64::MAX) {
            prop_assert_eq!(typed_amount(&number(amount)), Some(amount));
            prop_assert_eq!(typed_amount(&format!(" {amount} ")), Some(amount));
        }

        #[test]
        fn any_text_is_an_amount_or_none(text in r"[-+0-9,. ]{0,24}|(?s).{0,10}") {
            let plain = text.chars().all(|letter| letter.is_ascii_digit() || ",-+ ".contains(letter));
            prop_assert!(plain || typed_amount(&text).is_none());
        }
    }
}
