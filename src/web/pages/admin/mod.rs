//! The console of operators. It calls the same functions as the admin API, works without JavaScript, and keeps its figures
//! fresh with it.

pub mod actions;
pub mod audit;
pub mod charts;
pub mod concerts;
pub mod entrance;
pub mod overview;
pub mod sale;
pub mod text;
pub mod tickets;

use actix_web::HttpResponse;
use maud::{Markup, html};

use crate::base::error::Error;
use crate::house::operators::{Operator, Role};
use crate::web::cookies;
use crate::web::pages::admin::text::Console;
use crate::web::pages::reply::Reply;
use crate::web::pages::text::fill;
use crate::web::pages::visit::Visit;

/// The cookie of an operator's session. Only the console gets it.
pub const SESSION: &str = "zt_operator";

/// An operator at a page.
pub struct AtDesk {
    pub visit: Visit,
    pub operator: Operator,
}

impl Visit {
    fn console(&self) -> &'static Console {
        self.lang.console()
    }

    async fn operator(&self) -> Result<Option<Operator>, Error> {
        match cookies::plain(&self.request, SESSION) {
            Some(session) => self.site().operators.by_session(&session).await,
            None => Ok(None),
        }
    }
}

/// Answers an operator whose role includes `needed`. Everyone else is asked to sign in, or told what is missing.
pub async fn with_operator(
    visit: Visit,
    needed: Role,
    answer: impl AsyncFnOnce(&AtDesk) -> Result<Reply, Error>,
) -> HttpResponse {
    let operator = match visit.operator().await {
        Ok(Some(operator)) => operator,
        Ok(None) => return visit.answer(Ok(Reply::see("/admin/sign-in"))),
        Err(error) => return visit.answer(Err(error)),
    };
    let desk = AtDesk { visit, operator };
    let reply = match desk.operator.check(needed) {
        Ok(()) => answer(&desk).await,
        Err(_) => Ok(role_too_low(&desk)),
    };
    desk.visit.answer(reply)
}

fn role_too_low(desk: &AtDesk) -> Reply {
    let t = desk.visit.console();
    let main = html! {
        (desk.nav())
        div.notice { h1 { (t.role_too_low) } p { (fill(t.role_hint, &[&desk.operator.role])) } }
    };
    Reply::page(t.role_too_low, main).with_status(actix_web::http::StatusCode::FORBIDDEN)
}

impl AtDesk {
    pub fn page(&self, title: &str, main: &Markup) -> Reply {
        let t = self.visit.console();
        Reply::page(format!("{title} · {}", t.console), html! { (self.nav()) (main) })
    }

    fn nav(&self) -> Markup {
        let t = self.visit.console();
        let path = self.visit.request.path();
        let link = |to: &'static str, text: &'static str| {
            html! { a href=(to) aria-current=[(path == to).then_some("page")] { (text) } }
        };
        html! {
            div.desk {
                nav aria-label=(t.console) { (link("/admin", t.sales)) (link("/admin/tickets", t.tickets)) (link("/admin/audit", t.audit))
                    @if self.operator.check(Role::Admin).is_ok() { (link("/admin/concerts/new", t.new_concert)) } }
                form method="post" action="/admin/sign-out" {
                    span.muted { (fill(t.signed_in_as, &[&self.operator.name, &self.operator.role])) }
                    button.button.small.quiet type="submit" { (t.sign_out) }
                }
            }
        }
    }
}
