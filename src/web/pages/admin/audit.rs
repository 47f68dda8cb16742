//! What operators did.

use actix_web::HttpResponse;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use crate::base::error::Error;
use crate::base::paging::Page;
use crate::house::desk::Done;
use crate::house::operators::Role;
use crate::web::pages::admin::{AtDesk, with_operator};
use crate::web::pages::layout::encode;
use crate::web::pages::reply::Reply;
use crate::web::pages::visit::Visit;

#[derive(Default, Deserialize)]
struct Look {
    before: Option<String>,
}

pub async fn page(visit: Visit) -> HttpResponse {
    with_operator(visit, Role::Viewer, async |desk| audit(desk).await).await
}

async fn audit(desk: &AtDesk) -> Result<Reply, Error> {
    let t = desk.visit.console();
    let page = Page::after(desk.visit.query::<Look>().before);
    let log = desk.visit.site().desk.audit(None, &page).await?;
    let main = html! {
        h1 { (t.audit) }
        (entries(desk, &log.items))
        @if let Some(cursor) = &log.next_cursor { p { a href={ "/admin/audit?before=" (encode(cursor)) } { (t.older) } } }
    };
    Ok(desk.page(t.audit, &main))
}

pub fn entries(desk: &AtDesk, entries: &[Done]) -> Markup {
    let (visit, t) = (&desk.visit, desk.visit.console());
    html! {
        @if entries.is_empty() { p.muted { (t.nothing_done) } }
        @else {
            div.scroll tabindex="0" role="region" aria-label=(t.audit) {
                table {
                    thead { tr { th scope="col" { (t.when) } th scope="col" { (t.who) } th scope="col" { (t.what) } th scope="col" { (t.difference) } } }
                    tbody {
                        @for entry in entries {
                            tr {
                                td { (visit.time(entry.at)) }
                                td { (entry.who) }
                                td { (action(desk, &entry.action)) @if let Some(event) = entry.event { " · " a href={ "/admin/events/" (event) } { (t.event) " " (event) } } }
                                td { ul.plain { @for line in differences(entry) { li.code { (line) } } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What was done, in the language of the page. Words that it does not know are shown as they are.
fn action<'a>(desk: &AtDesk, word: &'a str) -> &'a str {
    let t = desk.visit.console();
    match word {
        "pause" => t.did_pause,
        "resume" => t.did_resume,
        "close" => t.did_close,
        "reopen" => t.did_reopen,
        "policy" => t.did_policy,
        "kick" => t.did_kick,
        "kick failed" => t.did_not_kick,
        "cancel ticket" => t.did_cancel,
        "add concert" => t.did_add_concert,
        "change concert" => t.did_change_concert,
        "change event" => t.did_change_event,
        _ => word,
    }
}

/// What changed, a line for each value.
fn differences(entry: &Done) -> Vec<String> {
    let (mut lines, none) = (Vec::new(), Value::Null);
    let (before, after) = match (&entry.before, &entry.after) {
        // Something ended: what it was.
        (Some(before), None) => (&none, before),
        (before, after) => (before.as_ref().unwrap_or(&none), after.as_ref().unwrap_or(&none)),
    };
    compare("", before, after, &mut lines);
    lines
}

fn compare(name: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    // Every decision counts its version up.
    if before == after || name.ends_with("version") || name.ends_with("changed") {
        return;
    }
    if let Value::Object(after) = after {
        for (field, value) in after {
            let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
            compare(&name, before.get(field).unwrap_or(&Value::Null), value, lines);
        }
    } else if before.is_null() {
        lines.push(format!("{name}: {after}"));
    } else {
        lines.push(format!("{name}: {before} → {after}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_shown() {
        let entry = Done {
            id: 1,
            at: DateTime::UNIX_EPOCH,
            who: "Kim".to_owned(),
            action: "policy".to_owned(),
            event: Some(1),
            before: Some(
                json!({ "state": "OPEN", "policy": { "version": 1, "batch": 5, "maxActive": 7, "changed": [] } }),
            ),
            after: Some(
                json!({ "state": "OPEN", "policy": { "version": 2, "batch": 6, "maxActive": 7, "changed": ["batch"] } }),
            ),
        };
        assert_eq!(differences(&entry), ["policy.batch: 5 → 6"]);
        let first = Done { before: None, after: Some(json!({ "place": 3 })), ..entry };
        assert_eq!(differences(&first), ["place: 3"]);
    }
}
