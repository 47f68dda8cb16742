//! What pages and forms answer.

use actix_web::cookie::Cookie;
use actix_web::http::StatusCode;
use maud::Markup;

/// What a page answers.
pub struct Reply {
    pub status: StatusCode,
    pub what: What,
    pub cookies: Vec<Cookie<'static>>,
    /// For the Retry-After header, in seconds.
    pub retry_after: Option<u64>,
}

pub enum What {
    Page(Page),
    /// A piece of a page, without the shell around it.
    Part(Markup),
    See(String),
}

pub struct Page {
    pub title: String,
    pub main: Markup,
    /// Without JavaScript the page reloads after this many seconds.
    pub refresh: Option<u64>,
}

impl Reply {
    pub fn page(title: impl Into<String>, main: Markup) -> Self {
        let what = What::Page(Page { title: title.into(), main, refresh: None });
        Self { status: StatusCode::OK, what, cookies: Vec::new(), retry_after: None }
    }

    pub fn part(part: Markup) -> Self {
        Self { status: StatusCode::OK, what: What::Part(part), cookies: Vec::new(), retry_after: None }
    }

    /// After a form: the browser goes on there, and reloading that page repeats nothing.
    pub fn see(to: impl Into<String>) -> Self {
        Self { status: StatusCode::SEE_OTHER, what: What::See(to.into()), cookies: Vec::new(), retry_after: None }
    }

    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub fn retry_after(self, retry_after: Option<u64>) -> Self {
        Self { retry_after, ..self }
    }

    pub fn with_cookie(mut self, cookie: Cookie<'static>) -> Self {
        self.cookies.push(cookie);
        self
    }

    pub fn with_cookies(mut self, cookies: impl IntoIterator<Item = Cookie<'static>>) -> Self {
        self.cookies.extend(cookies);
        self
    }

    pub fn again_after(mut self, seconds: u64) -> Self {
        if let What::Page(page) = &mut self.what {
            page.refresh = Some(seconds);
        }
        self
    }
}
