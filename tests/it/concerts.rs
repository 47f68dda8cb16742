//! Concerts and their dates, booking windows, halls, one place a person, and the best seats.

use std::collections::HashSet;
use std::io::Read;

use chrono::{TimeDelta, Utc};
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use zticket::base::ids::Place;

use crate::support::app::answer;
use crate::support::set_live;
use crate::support::{TestApp, Visitor, plan};

async fn get(app: &TestApp, path: &str) -> Value {
    let (status, body) = answer(app.request(Method::GET, path)).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn concerts_are_listed_a_page_at_a_time() {
    let app = TestApp::by_hand(|_| {}).await;
    for title in ["A", "B", "C", "D", "E"] {
        let mut concert = plan();
        concert["title"] = title.into();
        app.concert(&concert).await;
    }
    let mut titles = Vec::new();
    let mut path = "/api/concerts?limit=2".to_owned();
    loop {
        let page = get(&app, &path).await;
        titles.extend(page["items"].as_array().unwrap().iter().map(|one| one["title"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/concerts?limit=2&cursor={cursor}");
    }
    assert_eq!(titles, ["A", "B", "C", "D", "E"]);
    for wrong in ["limit=0", "limit=101", "limit=x", "cursor=x", "page=2"] {
        let (status, body) = answer(app.request(Method::GET, &format!("/api/concerts?{wrong}"))).await;
        assert_eq!((status.as_u16(), &body["code"]), (400, &"INVALID_REQUEST".into()), "{wrong}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concert_shows_its_dates_and_which_can_still_be_booked() {
    let app = TestApp::by_hand(|config| config.policy.tickets_per_person = 0).await;
    let mut concert = plan();
    let day = |days| json!({ "startsAt": Utc::now() + TimeDelta::days(days) });
    concert["dates"] = json!([day(32), day(30), day(31), day(29)]);
    let (id, dates) = app.concert(&concert).await;
    let began = format!("UPDATE events SET starts_at = now() - interval '1 hour' WHERE id = {}", dates[0]);
    app.db.execute(&began).await.unwrap();
    app.parts().catalogue.refresh().await.unwrap();
    app.look().await;
    let shown = get(&app, &format!("/api/concerts/{id}")).await;
    let listed = |value: &Value| -> Vec<(u64, String)> {
        let one = |one: &Value| (one["eventId"].as_u64().unwrap(), one["status"].as_str().unwrap().to_owned());
        value.as_array().unwrap().iter().map(one).collect()
    };
    let events: Vec<u64> = dates.iter().map(|date| date.get().into()).collect();
    let statuses = ["CLOSED", "ON_SALE", "ON_SALE", "ON_SALE"].map(str::to_owned);
    assert_eq!(listed(&shown["dates"]), events.iter().copied().zip(statuses).collect::<Vec<_>>(), "in order of time");
    assert_eq!((&shown["priceFrom"], &shown["priceTo"]), (&30_000.into(), &50_000.into()));

    // One is paused, one sold out: the paused one can still be booked.
    let keys = |at: usize| zticket::store::redis::keys::Keys::new(dates[at]);
    let mut conn = app.redis.connect_for(&keys(1)).await.unwrap();
    set_live(&app.parts().stores.scripts, &mut conn, &keys(1), &[("state", "paused")]).await;
    let person = app.rich("A", 10_000_000).await;
    let visitors = app.inside_of(dates[2], 8).await;
    for (at, visitor) in (0..).zip(&visitors) {
        let seats: Vec<u32> = (at * 4 + 1..=30.min(at * 4 + 4)).collect();
        let (status, body) = app.pay(visitor, &person, &seats).await;
        assert_eq!(status, 200, "{body}");
    }
    app.settle().await;
    app.look().await;
    let shown = get(&app, &format!("/api/concerts/{id}/dates")).await;
    let expected = [(events[1], "PAUSED".to_owned()), (events[3], "ON_SALE".to_owned())];
    assert_eq!(listed(&shown["items"]), expected);
    let first = get(&app, &format!("/api/concerts/{id}/dates?limit=1")).await;
    let next = first["nextCursor"].as_str().unwrap();
    let second = get(&app, &format!("/api/concerts/{id}/dates?limit=1&cursor={next}")).await;
    assert_eq!((listed(&second["items"]), &second["nextCursor"]), (vec![expected[1].clone()], &Value::Null));

    let event = get(&app, &format!("/api/events/{}", dates[2])).await;
    assert_eq!(
        (&event["status"], &event["seatsLeft"], &event["seatsTotal"]),
        (&"SOLD_OUT".into(), &0.into(), &30.into())
    );
    let event = get(&app, &format!("/api/events/{}", dates[3])).await;
    assert_eq!(
        event["sections"],
        json!([{ "name": "R", "price": 50_000, "firstSeat": 1, "rows": [10], "seatsLeft": 10 },
               { "name": "S", "price": 30_000, "firstSeat": 11, "rows": [10, 10], "seatsLeft": 20 }])
    );
    for wrong in ["/api/concerts/99", "/api/concerts/0", "/api/concerts/x", "/api/concerts/99/dates"] {
        let (status, body) = answer(app.request(Method::GET, wrong)).await;
        assert_eq!((status.as_u16(), &body["code"]), (404, &"CONCERT_NOT_FOUND".into()), "{wrong}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_enters_before_the_opening_or_after_the_closing() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut concert = plan();
    let opens_at = Utc::now() + TimeDelta::hours(1);
    concert["bookingOpensAt"] = json!(opens_at);
    let event = app.concert(&concert).await.1[0];
    let (status, body) = app.enter_as(event, None).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"EVENT_NOT_OPEN".into()));
    let told: chrono::DateTime<Utc> = body["opensAt"].as_str().unwrap().parse().unwrap();
    assert!((told - opens_at).abs() < TimeDelta::milliseconds(1), "the answer has the opening time");
    assert_eq!(get(&app, &format!("/api/events/{event}")).await["status"], "SCHEDULED");

    app.db.execute("UPDATE concerts SET opens_at = now() - interval '1 millisecond'").await.unwrap();
    app.learn().await;
    let visitors = app.inside_of(event, 1).await;
    let (_, body) = app.enter_as(event, None).await;
    let waiting = Visitor(body["uuid"].as_str().unwrap().to_owned());
    assert_eq!(body["status"], "WAITING");

    app.db.execute("UPDATE concerts SET opens_at = now() - interval '1 hour', closes_at = now()").await.unwrap();
    app.learn().await;
    let (status, body) = app.enter_as(event, None).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"EVENT_CLOSED".into()));
    assert_eq!(get(&app, &format!("/api/events/{event}")).await["status"], "CLOSED");
    app.admit().await;
    app.look().await;
    let (status, body) = app.status(&waiting).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (409, &"EVENT_CLOSED".into()),
        "a waiting visitor sees that the sale is closed"
    );
    // A visitor who was let in before can finish.
    assert_eq!(app.status(&visitors[0]).await.1["status"], "ACTIVE");
    let person = app.rich("A", 50_000).await;
    assert_eq!(app.pay(&visitors[0], &person, &[1]).await.0, 200);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_moved_to_another_event_when_the_default_one_is_over() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let visitor = app.inside().await;
    app.db.execute("UPDATE events SET on_sale = false WHERE id = 1").await.unwrap();
    app.learn().await;
    for (method, path) in [(Method::GET, "/api/seats"), (Method::POST, "/api/queues/tokens")] {
        let (status, body) = answer(app.request(method, path)).await;
        assert_eq!((status.as_u16(), &body["code"]), (409, &"EVENT_CLOSED".into()), "{path}");
    }
    assert_eq!(app.seats(Some(&visitor)).await.len(), 50, "a token is about its own event");
    assert_eq!(get(&app, &format!("/api/events/{event}/seats")).await.as_array().unwrap().len(), 30);
    assert_eq!(get(&app, "/api/events/1/seats").await.as_array().unwrap().len(), 50, "an event can be named");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_one_place_from_however_many_devices() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut concert = plan();
    concert["dates"][0]["onePlacePerPerson"] = true.into();
    let event = app.concert(&concert).await.1[0];
    let (status, body) = app.enter_as(event, None).await;
    assert_eq!((status.as_u16(), &body["code"]), (401, &"UNAUTHORIZED".into()));

    let (one, other) = (app.rich("A", 50_000).await, app.sign_up("B").await);
    let answers = join_all((0..20).map(|at| app.enter_as(event, Some(if at % 2 == 0 { &one } else { &other })))).await;
    let tokens: Vec<&str> = answers.iter().map(|(_, body)| body["uuid"].as_str().unwrap()).collect();
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 2, "{answers:?}");
    assert!(tokens.chunks(2).all(|pair| pair == &tokens[..2]));
    let visitor = Visitor(tokens[0].to_owned());

    app.admit().await;
    app.look().await;
    let (_, again) = app.enter_as(event, Some(&one)).await;
    assert_eq!((&again["uuid"], &again["status"]), (&tokens[0].into(), &"ACTIVE".into()), "the same place, now inside");

    // After leaving, and after buying, the place is not alive: the next one is new.
    app.leave(&Visitor(tokens[1].to_owned())).await;
    let (_, new) = app.enter_as(event, Some(&other)).await;
    assert_ne!(new["uuid"], tokens[1]);
    assert_eq!(app.pay(&visitor, &one, &[1]).await.0, 200);
    app.settle().await;
    app.look().await;
    let (_, new) = app.enter_as(event, Some(&one)).await;
    assert_eq!((&new["status"], &new["rank"]), (&"WAITING".into(), &2.into()));
    assert_eq!(Visitor(new["uuid"].as_str().unwrap().to_owned()).place(), Place(3));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_with_a_place_gets_it_even_when_newcomers_are_refused() {
    let app = TestApp::by_hand(|config| config.policy.max_queue = 2).await;
    let mut concert = plan();
    concert["dates"][0]["onePlacePerPerson"] = true.into();
    let event = app.concert(&concert).await.1[0];
    let people = [app.sign_up("A").await, app.sign_up("B").await, app.sign_up("C").await];
    let (_, first) = app.enter_as(event, Some(&people[0])).await;
    app.enter_as(event, Some(&people[1])).await;
    // In one call: a person with a place, and a person who finds the line full.
    let (known, refused) =
        futures_util::future::join(app.enter_as(event, Some(&people[0])), app.enter_as(event, Some(&people[2]))).await;
    assert_eq!(known.1["uuid"], first["uuid"]);
    assert_eq!((refused.0.as_u16(), &refused.1["code"]), (429, &"QUEUE_FULL".into()));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_party_is_held_all_or_none_and_the_refusal_names_each_seat() {
    let app = TestApp::by_hand(|_| {}).await;
    let (one, other) = (app.inside().await, app.inside().await);
    assert_eq!(app.hold_seats(&one, &[1, 2]).await.1["seatNumbers"], json!([1, 2]));
    app.buy(&app.inside().await, 4).await;
    app.settle().await;
    let (status, body) = app.hold_seats(&other, &[2, 3, 4, 1]).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SEAT_ALREADY_SOLD".into()));
    let named: HashSet<String> = body["seats"].as_array().unwrap().iter().map(Value::to_string).collect();
    let expected = [(1, "held"), (2, "held"), (4, "sold")];
    let expected = expected.map(|(seat, status)| json!({ "seatNumber": seat, "status": status }).to_string());
    assert_eq!(named, expected.into());
    let (_, body) = app.hold_seats(&other, &[2, 3]).await;
    assert_eq!(
        (&body["code"], &body["seats"]),
        (&"SEAT_ALREADY_HELD".into(), &json!([{ "seatNumber": 2, "status": "held" }]))
    );
    app.look().await;
    assert_eq!(app.seats(None).await[2]["status"], "available", "none of the refused seats is held");

    for wrong in [json!([]), json!([5, 5]), json!((10..61).collect::<Vec<_>>()), json!("5"), json!([5.5])] {
        let request = app.request(Method::POST, "/api/seats/hold").header("X-Queue-Token", &other.0);
        let (status, body) = answer(request.json(&json!({ "seatNumbers": wrong }))).await;
        assert_eq!((status.as_u16(), &body["code"]), (400, &"INVALID_REQUEST".into()), "{wrong}");
    }
    let (status, body) = app.hold_seats(&other, &[5, 6, 7, 8, 9]).await;
    assert_eq!(status, 400);
    assert!(body["message"].as_str().unwrap().contains("4 seats at most"), "{body}");
    assert_eq!(app.hold_seats(&other, &[0, 5]).await.1["code"], "INVALID_SEAT_NUMBER");

    let request = app.request(Method::DELETE, "/api/seats/hold").header("X-Queue-Token", &one.0);
    assert_eq!(answer(request.json(&json!({ "seatNumbers": [1, 2] }))).await.0, 204);
    assert_eq!(app.hold_seats(&other, &[1, 2, 3]).await.0, 200);
    let both = app.request(Method::POST, "/api/tickets").header("X-Queue-Token", &other.0);
    let (status, _) = answer(both.json(&json!({ "seatNumber": 1, "seatNumbers": [1] }))).await;
    assert_eq!(status, 400);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_seats_are_held_together_for_everyone_who_asks_at_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let visitors: Vec<Visitor> = join_all((0..25).map(|_| app.enter())).await;
    app.admit().await;
    app.look().await;
    let answers = join_all(visitors.iter().map(|visitor| app.best(visitor, json!({ "count": 2 })))).await;
    let mut seats: Vec<u64> = Vec::new();
    for (status, body) in &answers {
        assert_eq!(*status, 200, "{body}");
        let pair: Vec<u64> =
            body["seatNumbers"].as_array().unwrap().iter().map(|seat| seat.as_u64().unwrap()).collect();
        assert_eq!(pair[0] + 1, pair[1], "{pair:?}");
        assert_eq!((pair[0] - 1) / 10, (pair[1] - 1) / 10, "{pair:?} is one row");
        seats.extend(pair);
    }
    seats.sort_unstable();
    assert_eq!(seats, (1..=50).collect::<Vec<_>>(), "twenty-five pairs fill fifty seats");

    app.look().await;
    assert_eq!(app.best(&visitors[3], json!({ "count": 2 })).await.1["seatNumbers"], answers[3].1["seatNumbers"]);
    let (status, body) = app.best(&visitors[3], json!({ "count": 1 })).await;
    assert_eq!((status.as_u16(), &body["code"]), (409, &"SEATS_NOT_TOGETHER".into()));
    for wrong in [
        json!({ "count": 0 }),
        json!({ "count": 5 }),
        json!({ "count": -1 }),
        json!({}),
        json!({ "count": 1, "section": "X" }),
    ] {
        let (status, body) = app.best(&visitors[3], wrong).await;
        assert_eq!((status.as_u16(), &body["code"]), (400, &"INVALID_REQUEST".into()));
    }
    let waiting = app.enter().await;
    app.release(&visitors[3], seats[0] as u32).await;
    app.look().await;
    assert_eq!(app.best(&waiting, json!({ "count": 1 })).await.0, 403, "a waiting visitor gets no seat");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_best_seats_of_a_section_can_be_asked_for() {
    let app = TestApp::by_hand(|_| {}).await;
    let event = app.priced_event().await;
    let visitors = app.inside_of(event, 2).await;
    let person = app.sign_up("A").await;
    let (_, body) = app.best_as(&visitors[0], &person, json!({ "count": 2, "section": "S" })).await;
    assert_eq!((&body["seatNumbers"], &body["total"]), (&json!([15, 16]), &60_000.into()));
    assert_eq!(body["seats"][0], json!({ "seatNumber": 15, "label": "S-A5", "price": 30_000 }));
    let (_, body) = app.best_as(&visitors[1], &person, json!({ "count": 3 })).await;
    assert_eq!(body["seatNumbers"], json!([4, 5, 6]), "nearest to the stage without a word about the section");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_of_5000_seats_comes_from_memory_compressed_and_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let mut hall = plan();
    hall["layout"] = json!({ "sections": [{ "name": "Floor", "price": 90_000, "rows": 50, "seatsPerRow": 100 }] });
    let event = app.concert(&hall).await.1[0];
    let visitor = &app.inside_of(event, 1).await[0];
    app.hold_seats_as(visitor, &app.sign_up("A").await, &[7]).await;
    app.look().await;
    let path = format!("/api/events/{event}/seats");
    let get = |headers: &[(&str, &str)]| {
        let request = headers
            .iter()
            .fold(app.request(Method::GET, &path), |request, (name, value)| request.header(*name, *value));
        async { request.send().await.unwrap() }
    };
    let calls = async || {
        let info: String =
            redis::cmd("INFO").arg("stats").query_async(&mut app.redis.connect().await.unwrap()).await.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let before = calls().await;
    let plain = get(&[("accept-encoding", "identity")]).await;
    assert_eq!(plain.headers().get("content-encoding"), None);
    let etag = plain.headers()["etag"].to_str().unwrap().to_owned();
    let plain = plain.bytes().await.unwrap();
    let seats: Vec<Value> = serde_json::from_slice(&plain).unwrap();
    assert_eq!(
        (seats.len(), &seats[4999]["label"], &seats[6]["status"]),
        (5000, &"Floor-AX100".into(), &"held".into())
    );

    let gzip = get(&[("accept-encoding", "br, gzip;q=0.8")]).await;
    assert_eq!(
        (&gzip.headers()["content-encoding"], &gzip.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
    );
    let gzip = gzip.bytes().await.unwrap();
    assert!(gzip.len() * 10 < plain.len(), "{} of {} bytes", gzip.len(), plain.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain);
    assert_eq!(get(&[("accept-encoding", "gzip;q=0")]).await.headers().get("content-encoding"), None);

    let known = get(&[("if-none-match", &etag)]).await;
    assert_eq!((known.status().as_u16(), known.headers()["etag"].to_str().unwrap()), (304, etag.as_str()));
    let mine = get(&[("x-queue-token", &visitor.0), ("if-none-match", &etag)]).await;
    assert_eq!(mine.status(), 200, "mine is another map");
    let tag = mine.headers()["etag"].to_str().unwrap().to_owned();
    let mine: Vec<Value> = mine.json().await.unwrap();
    assert_eq!((&mine[6]["mine"], &mine[5]["mine"]), (&true.into(), &false.into()));
    assert_eq!(get(&[("x-queue-token", &visitor.0), ("if-none-match", &tag)]).await.status(), 304);
    // Reading the counter counts too: connecting sends CLIENT SETINFO, maybe twice, then comes INFO.
    assert!(calls().await - before <= 8, "the map is answered from memory");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_are_set_up_once() {
    let app = TestApp::by_hand(|_| {}).await;
    let pool = &app.parts().stores.db;
    let (one, other) = tokio::join!(zticket::house::setup::seed(pool), zticket::house::setup::seed(pool));
    let made = [one.unwrap(), other.unwrap()];
    assert!(made == [4, 0] || made == [0, 4], "{made:?}");
    zticket::server::loops::catalogue_step(app.parts()).await.unwrap();
    app.look().await;
    let concerts = get(&app, "/api/concerts").await;
    assert_eq!(concerts["items"].as_array().unwrap().len(), 4);
    for concert in concerts["items"].as_array().unwrap() {
        get(&app, &format!("/api/concerts/{}", concert["concertId"])).await;
    }
    app.finish().await;
}
