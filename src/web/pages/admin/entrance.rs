//! Signing in to the console, and out.

use actix_web::HttpResponse;
use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use maud::html;
use serde::Deserialize;

use crate::base::error::Error;
use crate::web::cookies;
use crate::web::pages::admin::SESSION;
use crate::web::pages::form::{Nothing, Posted};
use crate::web::pages::reply::Reply;
use crate::web::pages::visit::Visit;

#[derive(Deserialize)]
pub struct SignIn {
    key: String,
}

pub async fn page(visit: Visit) -> HttpResponse {
    match visit.operator().await {
        Ok(Some(_)) => visit.answer(Ok(Reply::see("/admin"))),
        Ok(None) => visit.answer(Ok(sign_in_page(&visit, false))),
        Err(error) => visit.answer(Err(error)),
    }
}

fn sign_in_page(visit: &Visit, wrong: bool) -> Reply {
    let t = visit.console();
    let main = html! {
        form.panel.narrow method="post" action="/admin/sign-in/key" {
            h1 { (t.sign_in_title) }
            p.hint #key-hint { (t.key_hint) }
            @if wrong { p.problem #key-problem role="alert" { (t.wrong_key) } }
            label { span { (t.key) }
                input type="password" name="key" required autocomplete="current-password" autofocus
                    aria-describedby=(if wrong { "key-problem key-hint" } else { "key-hint" }) aria-invalid=[wrong.then_some("true")];
            }
            button.button.primary type="submit" { (t.sign_in) }
        }
    };
    let status = if wrong { 401 } else { 200 };
    let reply = Reply::page(t.sign_in_title, main);
    reply.with_status(actix_web::http::StatusCode::from_u16(status).unwrap_or_default())
}

pub async fn sign_in(visit: Visit, Posted(form): Posted<SignIn>) -> HttpResponse {
    let reply = async {
        match visit.site().operators.sign_in(form?.key.trim()).await {
            Ok(session) => Ok(Reply::see("/admin").with_cookie(cookie(&visit, session))),
            Err(Error::Unauthorized(_)) => {
                // Guessing is as limited as signing up.
                visit.within(|limits| &limits.sign_up)?;
                Ok(sign_in_page(&visit, true))
            }
            Err(error) => Err(error),
        }
    };
    visit.answer(reply.await)
}

pub async fn sign_out(visit: Visit, Posted(form): Posted<Nothing>) -> HttpResponse {
    let reply = async {
        form?;
        if let Some(session) = cookies::plain(&visit.request, SESSION) {
            visit.site().operators.sign_out(&session).await?;
        }
        let mut gone = cookie(&visit, String::new());
        gone.make_removal();
        gone.set_path("/admin");
        Ok(Reply::see("/admin/sign-in").with_cookie(gone))
    };
    visit.answer(reply.await)
}

/// Hidden from scripts, sent to the console alone, and never along from another site.
fn cookie(visit: &Visit, session: String) -> Cookie<'static> {
    let secure = visit.request.connection_info().scheme() == "https";
    Cookie::build(SESSION, session)
        .path("/admin")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(secure)
        .max_age(Duration::hours(12))
        .finish()
}
