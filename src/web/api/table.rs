//! Every route of the API, with what its description says. The first that matches a path wins, so plain paths come before
//! patterns.

use chrono::DateTime;

use crate::base::error::Error;
use crate::base::ids::SeatNumber;
use crate::base::paging::Page;
use crate::base::seal::PublicKeys;
use crate::base::seat::SeatState;
use crate::house::concerts::{ConcertDetails, ConcertView, DateView, EventView};
use crate::house::credentials::{Key, NewKey, Session};
use crate::house::desk::{Done, SaleView};
use crate::house::history::Point;
use crate::house::operators::Role;
use crate::house::people::{Balance, Charged, Movement, Payment, Person};
use crate::house::programme::{ConcertChange, EventChange};
use crate::house::rankings::{BestSelling, SoldOut};
use crate::house::setup::ConcertPlan;
use crate::sale::control::PolicyChange;
use crate::sale::line::Status;
use crate::sale::orders::OrderView;
use crate::sale::seats::{AvailableCount, HeldSeat, HeldSeats, Wish};
use crate::sale::tickets::Ticket;
use crate::web::api::endpoint::{Caller, Endpoint, Group, Row, delete, get, patch, post};
use crate::web::api::{admin, concerts, openapi, orders, queue, seats, tickets, users};
use crate::web::seat_maps::SeatView;

pub const API: &str = "/api";
pub const OF_EVENT: &str = "/api/events/{event}";

/// All of them.
pub fn all() -> impl Iterator<Item = Row> {
    let of = |prefix: &'static str, group: Group, endpoints: Vec<Endpoint>| {
        endpoints.into_iter().map(move |endpoint| Row { prefix, group, endpoint })
    };
    of(API, Group::Sale, sale())
        .chain(of(API, Group::House, house()))
        .chain(of(API, Group::Operators, operators()))
        .chain(of(OF_EVENT, Group::Sale, sale()))
}

/// An error that names seats.
fn taken(state: SeatState) -> Error {
    Error::SeatsTaken(vec![(SeatNumber(51), state)])
}

/// The errors of a hold.
fn of_a_hold() -> [Error; 7] {
    [
        Error::NotActive,
        Error::InvalidSeat,
        Error::InvalidRequest("You can hold 4 seats at most. Give one back first.".to_owned()),
        taken(SeatState::Held),
        taken(SeatState::Sold),
        Error::PlaceOfAnother,
        Error::RateLimited { seconds: 1 },
    ]
}

/// The errors of giving back what somebody else has.
fn of_a_release() -> [Error; 4] {
    [Error::InvalidSeat, taken(SeatState::Held), taken(SeatState::Sold), Error::RateLimited { seconds: 1 }]
}

/// The sale: the same handlers under `/api` and under `/api/events/{event}`.
pub fn sale() -> Vec<Endpoint> {
    vec![
        post("/queues/tokens", queue::enter)
            .says(
                "Join the line",
                "Takes the next place. Joining again takes another place, except in an event that takes one place per \
                 person: there, send your API key.",
            )
            .by(Caller::MaybePerson)
            .answers::<Status>("Your queue token and where it stands.")
            .of_an_event()
            .errors([Error::EventClosed, Error::SoldOut, Error::NotOpen { opens_at: DateTime::UNIX_EPOCH }, Error::TokenExpired])
            .errors([Error::QueueFull, Error::RateLimited { seconds: 1 }, Error::CrossSite]),
        get("/queues/tokens/{uuid}", queue::status)
            .says("Where a token stands", "Ask again after `pollAfterMs`. Asking keeps the place.")
            .answers::<Status>("WAITING with a rank, ACTIVE while the pass lasts, or SOLD_OUT.")
            .errors([Error::TokenExpired, Error::EventClosed]),
        delete("/queues/tokens/{uuid}", queue::leave)
            .says("Give up a place or a pass", "Seats that the pass holds are free again.")
            .answers_nothing("Given up, or gone before."),
        get("/queues/tokens/{uuid}/events", queue::events)
            .says(
                "Be told where a token stands",
                "Server-sent events: `status` with the same JSON as a poll, whenever it changes and every 15 seconds, and \
                 `end` with a code when it is over. Use it while `push` is true. An open stream keeps the place.",
            )
            .streams("The stream.")
            .errors([Error::TokenExpired, Error::EventClosed, Error::RateLimited { seconds: 1 }]),
        get("/seats", seats::map)
            .says("All seats", "With a queue token, `mine` marks the seats that it holds.")
            .by(Caller::MaybeVisitor)
            .header("If-None-Match", false, "The ETag of the map you have.", "W/\"0f1e2d3c4b5a69788796a5b4\"")
            .answers_list::<SeatView>("Every seat, in order of its number.")
            .not_modified("You have the newest map.")
            .with_header("ETag", "Changes when the map does.")
            .of_an_event(),
        get("/seats/available-count", seats::available)
            .says("How many seats are available", "Reads no queue token: under `/api` it is about the default event.")
            .answers::<AvailableCount>("Seats that are neither sold nor held.")
            .of_an_event(),
        post("/seats/hold", seats::hold_party)
            .says(
                "Hold seats",
                "All or none. The same seats again: the same deadline. A priced seat needs a person, and whoever holds first \
                 with a place is the one who buys with it.",
            )
            .by(Caller::Buyer)
            .body::<seats::Wanted>()
            .answers::<HeldSeats>("They are yours until the deadline.")
            .errors(of_a_hold()),
        delete("/seats/hold", seats::release_party)
            .says("Give seats back", "")
            .by(Caller::Visitor)
            .body::<seats::Wanted>()
            .answers_nothing("None of them is held by you now.")
            .errors(of_a_release()),
        post("/seats/best", seats::best)
            .says(
                "Hold the best seats",
                "The best free seats next to each other, in one section or in any. If you hold as many already, and they \
                 are next to each other, you get those.",
            )
            .by(Caller::Buyer)
            .body::<Wish>()
            .answers::<HeldSeats>("They are yours until the deadline.")
            .errors([Error::NotActive, Error::NotTogether, Error::PlaceOfAnother, Error::RateLimited { seconds: 1 }])
            .errors([Error::InvalidRequest("The event has no section with this name.".to_owned())]),
        post("/seats/{seat}/hold", seats::hold)
            .says("Hold a seat", "The same seat again: the same deadline. A priced seat needs a person.")
            .by(Caller::Buyer)
            .answers::<HeldSeat>("It is yours until the deadline.")
            .errors(of_a_hold()),
        delete("/seats/{seat}/hold", seats::release)
            .says("Give a seat back", "")
            .by(Caller::Visitor)
            .answers_nothing("It is not held by you now.")
            .errors(of_a_release()),
        post("/tickets", tickets::buy)
            .says(
                "Buy seats",
                "Send either `seatNumber` or `seatNumbers`, once per pass. Holds first what you do not hold yet. Priced seats need an API key, whose balance pays. The same request again gets the same tickets and costs \
                 nothing. With `Prefer: respond-async` the order is accepted at once and written in its turn: nothing is held \
                 for it, the time of your pass stands still until it is decided, and `/orders/{order}` tells how it went.",
            )
            .by(Caller::Buyer)
            .header("Prefer", false, "`respond-async`: accept the order, and write it later.", "respond-async")
            .body::<tickets::Purchase>()
            .accepts::<OrderView>("Accepted, and not written yet.")
            .with_header("Location", "Where the order is.")
            .with_header("Preference-Applied", "`respond-async`.")
            .answers::<tickets::Bought>("For `seatNumber` the ticket, for `seatNumbers` the order with its tickets.")
            .errors(of_a_hold())
            .errors([Error::InsufficientBalance { balance: 100_000, total: 264_000 }, Error::OrderPending])
            .errors([Error::TicketLimit { limit: 4, owned: 3 }]),
        get("/tickets/{ticket}", tickets::find)
            .says(
                "A ticket",
                "For its buyer: the person who bought it, or where nobody signed in, whoever has the queue token.",
            )
            .by(Caller::TicketOwner)
            .answers::<Ticket>("The ticket."),
        delete("/tickets/{ticket}", tickets::cancel)
            .says(
                "Cancel a ticket",
                "The money comes back, and the seat is on sale again. A ticket that a person bought takes their API key. \
                 Cancelling again changes nothing.",
            )
            .by(Caller::TicketOwner)
            .answers::<Ticket>("The ticket, cancelled.")
            .errors([Error::CancelTooLate { until: DateTime::UNIX_EPOCH }]),
    ]
}

/// What is offered, and people with their money.
pub fn house() -> Vec<Endpoint> {
    vec![
        get("/openapi.json", openapi::serve)
            .says("This description", "OpenAPI 3.1. `/docs` shows it to people.")
            .header("If-None-Match", false, "The ETag of the description you have.", "W/\"0f1e2d3c4b5a69788796a5b4\"")
            .answers::<openapi::Document>("The description.")
            .not_modified("You have it.")
            .with_header("ETag", "Changes when the API does."),
        post("/users", users::sign_up)
            .says(
                "Sign up",
                "Signing up again makes another person, unless you send the same Idempotency-Key: then you get the same person \
                 and key again. It leads to your key, so make it hard to guess.",
            )
            .header(
                "Idempotency-Key",
                false,
                "128 random bits or more: 22 letters of base64, or 32 hexadecimal digits.",
                "8c0d6f3b9b1f4e5a9c7d2e4f6a8b0c1d",
            )
            .body::<users::SignUp>()
            .answers::<Person>("You, with your first API key. Only the same Idempotency-Key shows it again.")
            .errors([Error::RateLimited { seconds: 1 }, Error::KeyReused]),
        get("/users/me", users::me).says("Your account", "").by(Caller::Person).answers::<Person>("You."),
        get("/users/me/keys", users::keys)
            .says("Your API keys", "Oldest first, without the keys themselves.")
            .by(Caller::Person)
            .answers_items::<Key>("Your keys."),
        post("/users/me/keys", users::make_key)
            .says("Make an API key", "Up to 20. Each call makes another one.")
            .by(Caller::Person)
            .body::<users::KeyName>()
            .answers::<NewKey>("The key. It is shown this once."),
        delete("/users/me/keys/{key}", users::revoke_key)
            .says("Revoke an API key", "Every server refuses it within two seconds.")
            .by(Caller::Person)
            .answers_nothing("Revoked."),
        get("/users/me/sessions", users::sessions)
            .says("The browsers in which you are signed in", "Newest first.")
            .by(Caller::Person)
            .answers_items::<Session>("Your sessions."),
        delete("/users/me/sessions/{session}", users::end_session)
            .says("Sign a browser out", "Every server refuses it within two seconds.")
            .by(Caller::Person)
            .answers_nothing("Signed out."),
        get("/users/me/balance", users::balance)
            .says("Your balance", "")
            .by(Caller::Person)
            .answers::<Balance>("In whole units of the currency."),
        post("/users/me/balance/charges", users::charge)
            .says("Add money to your balance", "The same key again changes nothing and gets the same answer.")
            .by(Caller::Person)
            .header("Idempotency-Key", true, "1 to 100 printable letters, a new one for each charge.", "first")
            .body::<users::Amount>()
            .answers::<Charged>("The charge, and your balance after it.")
            .errors([Error::KeyReused, Error::BalanceLimit("A balance can be charged up to 1000000000.".to_owned())]),
        get("/users/me/balance/movements", users::movements)
            .says("What moved your balance", "Newest first.")
            .by(Caller::Person)
            .query::<Page>()
            .answers_page::<Movement>("A page of movements."),
        get("/users/me/tickets", users::tickets)
            .says("Your tickets", "Newest first.")
            .by(Caller::Person)
            .query::<Page>()
            .answers_page::<Ticket>("A page of tickets."),
        get("/users/me/payments", users::payments)
            .says("Your payments", "Newest first, with what was refunded.")
            .by(Caller::Person)
            .query::<Page>()
            .answers_page::<Payment>("A page of payments."),
        get("/users/me/orders", users::orders)
            .says("Your orders", "What you bought, newest first.")
            .by(Caller::Person)
            .query::<Page>()
            .answers_page::<OrderView>("A page of orders."),
        get("/orders/{order}", orders::find)
            .says(
                "An order",
                "One that was accepted is PENDING, then PROCESSING, then PAID or FAILED; one that was written at once is PAID. \
                 Whoever has the number of an accepted order may ask how it stands. Tickets are shown to the buyer: send the \
                 queue token or the API key. A failed order is known for an hour.",
            )
            .by(Caller::MaybeOwner)
            .answers::<OrderView>("The order.")
            .errors([Error::OrderNotFound]),
        delete("/orders/{order}", orders::cancel)
            .says(
                "Take an order back that is not written yet",
                "Nothing is bought, and the time of the pass goes on. To cancel what was bought, cancel its tickets.",
            )
            .by(Caller::MaybeOwner)
            .answers::<OrderView>("FAILED, with the code ORDER_CANCELLED.")
            .errors([Error::OrderNotFound, Error::OrderNotPending]),
        get("/orders/{order}/events", orders::events)
            .says(
                "Be told how an order stands",
                "Server-sent events: `status` with the same JSON as a poll, whenever it changes and every 15 seconds, and \
                 `end` with a code when the order is decided: PAID, or why it failed.",
            )
            .by(Caller::MaybeOwner)
            .streams("The stream.")
            .errors([Error::OrderNotFound]),
        get("/concerts", concerts::list)
            .says("All concerts", "")
            .query::<Page>()
            .answers_page::<ConcertView>("A page of concerts."),
        get("/concerts/{concert}", concerts::find)
            .says("A concert with all its dates", "")
            .answers::<ConcertDetails>("The concert."),
        get("/concerts/{concert}/dates", concerts::dates)
            .says("The dates of a concert that can still be booked", "")
            .query::<Page>()
            .answers_page::<DateView>("A page of dates."),
        get("/rankings/sold-out", concerts::sold_out)
            .says("Sold-out concerts, fastest first", "By the time from the opening to the last seat.")
            .query::<concerts::MostRanks>()
            .answers_items::<SoldOut>("The ranking."),
        get("/rankings/best-selling", concerts::best_selling)
            .says("Concerts by tickets sold", "")
            .query::<concerts::Ranked>()
            .answers_items::<BestSelling>("The ranking."),
        get("/keys/tickets", tickets::public_keys)
            .says("The keys to check tickets with", "Anyone can check the QR code of a ticket offline.")
            .answers::<PublicKeys>("The public keys."),
        get("/events/{event}", concerts::event)
            .says("An event", "A date with its sections, deadlines and rules.")
            .answers::<EventView>("The event."),
    ]
}

/// A decision about a sale, and its answers.
fn decision(endpoint: Endpoint, summary: &'static str, details: &'static str) -> Endpoint {
    endpoint
        .says(summary, details)
        .by(Caller::Operator(Role::Operator))
        .answers::<SaleView>("The sale. The decision is in force on every server within a second.")
        .accepts::<SaleView>("Decided and kept, but Redis cannot take it at the moment. Servers go on trying.")
        .with_header("ETag", "The version of the settings, for If-Match.")
        .errors([Error::InvalidPolicy("The sale is closed. Reopen it first.".to_owned())])
}

/// What operators see and do.
pub fn operators() -> Vec<Endpoint> {
    vec![
        get("/admin/events", admin::sales)
            .says("All sales", "In order of their numbers.")
            .by(Caller::Operator(Role::Viewer))
            .query::<Page>()
            .answers_page::<SaleView>("A page of sales."),
        get("/admin/events/{event}", admin::sale)
            .says("A sale", "")
            .by(Caller::Operator(Role::Viewer))
            .answers::<SaleView>("The sale.")
            .with_header("ETag", "The version of the settings, for If-Match."),
        patch("/admin/events/{event}", admin::change_event)
            .says("Change an event", "Seats and prices of an event never change.")
            .by(Caller::Operator(Role::Admin))
            .body::<EventChange>()
            .answers::<EventView>("The event."),
        decision(
            patch("/admin/events/{event}/policy", admin::policy),
            "Change settings of a sale",
            "Settings that are not named stay as they are.",
        )
        .header("If-Match", false, "The version of the settings that you saw.", "\"3\"")
        .body::<PolicyChange>()
        .errors([Error::PolicyChanged { version: 4 }]),
        decision(
            post("/admin/events/{event}/pause", admin::pause),
            "Pause a sale",
            "Nobody is let in until it is resumed; people inside go on. Visitors read the reason.",
        )
        .optional_body::<admin::Pause>(),
        decision(post("/admin/events/{event}/resume", admin::resume), "Resume a paused sale", ""),
        decision(
            post("/admin/events/{event}/close", admin::close),
            "Close a sale",
            "Nobody can join any more, and the line is told so.",
        ),
        decision(
            post("/admin/events/{event}/reopen", admin::reopen),
            "Reopen a closed sale",
            "If it was paused when it was closed, it is paused again.",
        ),
        get("/admin/events/{event}/history", admin::history)
            .says("The figures of the last hour", "A point every 5 seconds while the event is awake, oldest first.")
            .by(Caller::Operator(Role::Viewer))
            .query::<admin::Minutes>()
            .answers_items::<Point>("The points."),
        post("/admin/events/{event}/kick", admin::kick)
            .says("End a place or a pass", "")
            .by(Caller::Operator(Role::Operator))
            .body::<admin::Kick>()
            .answers_nothing("Ended, or over before.")
            .errors([Error::TokenNotFound]),
        post("/admin/concerts", admin::add_concert)
            .says("Set up a concert", "The same again makes another concert.")
            .by(Caller::Operator(Role::Admin))
            .large_body::<ConcertPlan>()
            .answers::<ConcertDetails>("The concert."),
        patch("/admin/concerts/{concert}", admin::change_concert)
            .says(
                "Change a concert",
                "The hall and the list of dates never change; the times of a date do, with the event.",
            )
            .by(Caller::Operator(Role::Admin))
            .large_body::<ConcertChange>()
            .answers::<ConcertDetails>("The concert."),
        post("/admin/tickets/{ticket}/cancel", admin::cancel)
            .says("Take a ticket back", "The money comes back, after the deadline too.")
            .by(Caller::Operator(Role::Operator))
            .body::<admin::Cancel>()
            .answers::<Ticket>("The ticket, cancelled."),
        get("/admin/audit", admin::audit)
            .says("What operators did", "Newest first.")
            .by(Caller::Operator(Role::Viewer))
            .query::<admin::AuditPage>()
            .answers_page::<Done>("A page of the audit log.")
            .errors([Error::EventNotFound]),
    ]
}
