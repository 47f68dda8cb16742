//! Pictures drawn as inline SVG: figures over time, and the hall.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::base::seat::SeatState;
use crate::event::Event;
use crate::event::snapshot::Snapshot;
use crate::web::pages::admin::AtDesk;
use crate::web::pages::layout::count;
use crate::web::pages::text::fill;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 80.0;
/// With more seats than this, sections are drawn as bars.
pub const MOST_SEATS: usize = 5000;
/// Of the square of a seat, with the gap to the next.
const SEAT: usize = 8;
const PITCH: usize = 10;

/// A line over the last hour, which ends now. The highest value touches the top.
pub fn line(desk: &AtDesk, title: &str, points: &[(DateTime<Utc>, f64)], now: DateTime<Utc>) -> Markup {
    let most = points.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let last = points.last().map_or(0.0, |(_, value)| *value);
    let place = |(at, value): &(DateTime<Utc>, f64)| {
        let age = (now - *at).num_milliseconds() as f64 / 3_600_000.0;
        let (x, y) = (WIDTH * (1.0 - age), HEIGHT - HEIGHT * value / most.max(1.0));
        format!("{x:.1},{y:.1}")
    };
    let path: Vec<String> = points.iter().map(place).collect();
    let label = fill(desk.visit.console().chart_of, &[&title, &short(last), &short(most)]);
    html! {
        figure.chart {
            figcaption { (title) " " strong { (short(last)) } }
            svg viewBox="0 -2 300 84" preserveAspectRatio="none" role="img" aria-label=(label) {
                polyline points=(path.join(" ")) {}
            }
        }
    }
}

/// Whole numbers as they are, small ones with a digit after the point.
fn short(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { count(value as i64) }
}

/// Every seat of the hall, or a bar for each section of a large one.
pub fn hall(desk: &AtDesk, event: &Event, snapshot: &Snapshot) -> Markup {
    let t = desk.visit.console();
    html! {
        div.halls {
            @for section in &event.hall.sections {
                @let sold = snapshot.seats.count_in(section.seats(), |state| state == SeatState::Sold);
                @let held = snapshot.seats.count_in(section.seats(), |state| state == SeatState::Held);
                @let total = section.seats().len();
                @let name = if section.name.is_empty() { t.hall } else { &section.name };
                @let label = fill(t.hall_of, &[&name, &count(sold), &count(total), &count(held)]);
                figure.chart {
                    figcaption { (label) }
                    @if event.seats.len() > MOST_SEATS { progress max=(total) value=(sold) aria-label=(label) {} }
                    @else { (seats(&section.rows, section.seats().start, snapshot, &label)) }
                }
            }
        }
    }
}

fn seats(rows: &[usize], first: usize, snapshot: &Snapshot, label: &str) -> Markup {
    drawn(rows, label, |at| snapshot.seats.states.get(first + at).copied().unwrap_or(SeatState::Sold))
}

/// Rows of seats, centred, nearest to the stage first.
pub fn drawn(rows: &[usize], label: &str, state: impl Fn(usize) -> SeatState) -> Markup {
    let widest = rows.iter().copied().max().unwrap_or(0);
    let mut squares = [String::new(), String::new(), String::new()];
    let mut at = 0;
    for (row, length) in rows.iter().enumerate() {
        let indent = (widest - length) * PITCH / 2;
        for column in 0..*length {
            let [free, held, sold] = &mut squares;
            let path = match state(at) {
                SeatState::Sold => sold,
                SeatState::Held => held,
                SeatState::Available => free,
            };
            path.push_str(&format!("M{} {}h{SEAT}v{SEAT}h-{SEAT}z", indent + column * PITCH, row * PITCH));
            at += 1;
        }
    }
    let [free, held, sold] = squares;
    html! {
        svg.hall viewBox={ "0 0 " (widest * PITCH) " " (rows.len() * PITCH) } role="img" aria-label=(label) {
            path.free d=(free) {} path.held d=(held) {} path.sold d=(sold) {}
        }
    }
}
