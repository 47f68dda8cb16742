//! The hall of an event: sections, rows and seats, its description, and which seats are best together.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::base::ids::SeatNumber;

/// Most seats of an event.
pub const MOST_SEATS: usize = 50_000;
pub const MOST_PER_ROW: u32 = 500;
pub const HIGHEST_PRICE: i64 = 100_000_000;
/// A label has to fit its ticket: the section, a dash, the row, the seat.
const LONGEST_NAME: usize = 12;

/// The description of a hall: sections from the stage back.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Described")]
pub struct Layout {
    sections: Vec<SectionPlan>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionPlan {
    pub name: String,
    /// Of each seat, in whole units of the currency.
    pub price: i64,
    /// Seats in each row, nearest to the stage first.
    pub rows: Vec<u32>,
}

/// Why a hall cannot be set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadLayout {
    #[error("layout: {0:?} is no name of a section: use up to {LONGEST_NAME} letters, digits and inner spaces")]
    Name(String),
    #[error("layout: two sections are called {0:?}")]
    Twice(String),
    #[error("layout: section {0:?} needs a price from 0 to {HIGHEST_PRICE}")]
    Price(String),
    #[error("layout: section {0:?} needs rows of 1 to {MOST_PER_ROW} seats")]
    Rows(String),
    #[error(
        "layout: section {0:?} needs either a list of rows, or a number of rows of at most {MOST_SEATS} with seatsPerRow"
    )]
    Described(String),
    #[error("layout: a hall has 1 to {MOST_SEATS} seats, not {0}")]
    Seats(u64),
}

/// A hall, from the stage back.
#[derive(Deserialize, ToSchema)]
#[schema(as = Layout)]
#[serde(deny_unknown_fields)]
pub struct Described {
    sections: Vec<DescribedSection>,
}

/// A part of a hall whose seats cost the same.
#[derive(Deserialize, ToSchema)]
#[schema(as = Section)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DescribedSection {
    #[serde(default)]
    #[schema(max_length = 12)]
    name: String,
    /// Of each seat, in whole units of the currency.
    #[schema(minimum = 0, maximum = 100_000_000)]
    price: i64,
    rows: Rows,
    /// If `rows` is a number.
    seats_per_row: Option<u32>,
}

/// A number of equal rows, or the length of each.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Rows {
    Equal(u32),
    Lengths(Vec<u32>),
}

impl TryFrom<Described> for Layout {
    type Error = BadLayout;

    fn try_from(described: Described) -> Result<Self, BadLayout> {
        let sections = described.sections.into_iter().map(|section| {
            let name = section.name;
            let rows = match (section.rows, section.seats_per_row) {
                // Bounded before it is expanded: the number comes from outside.
                (Rows::Equal(rows), Some(length)) if rows as usize <= MOST_SEATS => vec![length; rows as usize],
                (Rows::Lengths(rows), None) => rows,
                _ => return Err(BadLayout::Described(name)),
            };
            Ok(SectionPlan { name, price: section.price, rows })
        });
        Self::new(sections.collect::<Result<_, _>>()?)
    }
}

impl Layout {
    pub fn new(sections: Vec<SectionPlan>) -> Result<Self, BadLayout> {
        for (at, section) in sections.iter().enumerate() {
            let name = &section.name;
            let plain = name.chars().all(|letter| letter.is_alphanumeric() || letter == ' ');
            if name.chars().count() > LONGEST_NAME || !plain || name.trim() != name {
                return Err(BadLayout::Name(name.clone()));
            }
            if sections.iter().take(at).any(|other| other.name == *name) {
                return Err(BadLayout::Twice(name.clone()));
            }
            if !(0..=HIGHEST_PRICE).contains(&section.price) {
                return Err(BadLayout::Price(name.clone()));
            }
            if section.rows.is_empty() || !section.rows.iter().all(|length| (1..=MOST_PER_ROW).contains(length)) {
                return Err(BadLayout::Rows(name.clone()));
            }
        }
        let seats: u64 = sections.iter().flat_map(|section| &section.rows).map(|length| u64::from(*length)).sum();
        if seats == 0 || seats > MOST_SEATS as u64 {
            return Err(BadLayout::Seats(seats));
        }
        Ok(Self { sections })
    }

    /// Free seats A1, A2 … in one section, ten to a row.
    pub fn free(seats: u32) -> Result<Self, BadLayout> {
        let mut rows = vec![10; (seats / 10) as usize];
        rows.extend((!seats.is_multiple_of(10)).then_some(seats % 10));
        Self::new(vec![SectionPlan { name: String::new(), price: 0, rows }])
    }

    pub fn sections(&self) -> &[SectionPlan] {
        &self.sections
    }

    /// Label and price of every seat, in order of their numbers.
    pub fn seats(&self) -> impl Iterator<Item = (String, i64)> {
        self.sections.iter().flat_map(|section| {
            let dash = if section.name.is_empty() { "" } else { "-" };
            (0..).zip(&section.rows).flat_map(move |(row, length)| {
                let row = row_name(row);
                (1..=*length).map(move |seat| (format!("{}{dash}{row}{seat}", section.name), section.price))
            })
        })
    }
}

/// Rows are named like the columns of a spreadsheet: A … Z, AA, AB …
fn row_name(index: u32) -> String {
    let mut row = index + 1;
    let mut name = String::new();
    while row > 0 {
        row -= 1;
        name.insert(0, char::from(b'A' + (row % 26) as u8));
        row /= 26;
    }
    name
}

/// A hall in memory: where its rows are among the seats.
#[derive(Debug, Default)]
pub struct Hall {
    pub sections: Vec<Section>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    pub name: String,
    pub first_seat: SeatNumber,
    /// Seats in each row, nearest to the stage first.
    pub rows: Vec<usize>,
}

impl Section {
    /// Its seats as positions in the seat map.
    pub fn seats(&self) -> Range<usize> {
        let first = self.first_seat.index().unwrap_or(0);
        first..first + self.rows.iter().sum::<usize>()
    }

    /// Its rows as positions in the seat map, nearest to the stage first.
    pub fn row_ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = self.first_seat.index().unwrap_or(0);
        self.rows.iter().map(move |length| {
            let row = start..start + length;
            start = row.end;
            row
        })
    }
}

impl Hall {
    pub fn new(sections: impl IntoIterator<Item = (String, Vec<usize>)>) -> Self {
        let mut first = 0;
        let place = |(name, rows): (String, Vec<usize>)| {
            let section = Section { name, first_seat: SeatNumber::at(first), rows };
            first += section.rows.iter().sum::<usize>();
            section
        };
        Self { sections: sections.into_iter().map(place).collect() }
    }

    /// The rows as positions in the seat map, nearest to the stage first; of one section, or of all.
    fn rows<'a>(&'a self, section: Option<&'a str>) -> impl Iterator<Item = Range<usize>> + 'a {
        let wanted = self.sections.iter().filter(move |part| section.is_none_or(|name| part.name == name));
        wanted.flat_map(Section::row_ranges)
    }

    /// `count` free seats next to each other in one row. Prefers seats that leave no single seat alone beside them, then
    /// those nearest to the stage, then those nearest to the middle of the row.
    pub fn best(&self, section: Option<&str>, count: usize, free: impl Fn(usize) -> bool) -> Option<Range<usize>> {
        let mut best: Option<((usize, usize, usize), Range<usize>)> = None;
        for (distance, row) in self.rows(section).enumerate() {
            for run in runs(&row, &free) {
                for start in run.start..(run.end + 1).saturating_sub(count) {
                    let seats = start..start + count;
                    let alone = usize::from(start - run.start == 1) + usize::from(run.end - seats.end == 1);
                    let off_middle = (2 * (start - row.start) + count).abs_diff(row.len());
                    let score = (alone, distance, off_middle);
                    if best.as_ref().is_none_or(|(lowest, _)| score < *lowest) {
                        best = Some((score, seats));
                    }
                }
            }
        }
        best.map(|(_, seats)| seats)
    }

    /// The free seat nearest to this one: rows count double.
    pub fn nearest(&self, seat: SeatNumber, free: impl Fn(usize) -> bool) -> Option<SeatNumber> {
        let at = seat.index()?;
        let rows: Vec<Range<usize>> = self.rows(None).collect();
        let (own, row) = rows.iter().enumerate().find(|(_, row)| row.contains(&at))?;
        // Twice the distance from the middle of the row, to the left or to the right.
        let aside = |seat: usize, row: &Range<usize>| (2 * (seat - row.start) + 1) as i64 - row.len() as i64;
        let distance = |seat: usize, other: usize, in_row: &Range<usize>| {
            4 * own.abs_diff(other) as u64 + aside(seat, in_row).abs_diff(aside(at, row))
        };
        let seats = rows.iter().enumerate().flat_map(|(number, row)| row.clone().map(move |seat| (number, row, seat)));
        let nearest = seats.filter(|(_, _, seat)| *seat != at && free(*seat));
        nearest.min_by_key(|(number, row, seat)| distance(*seat, *number, row)).map(|(_, _, seat)| SeatNumber::at(seat))
    }

    /// Whether all of these seats are in this section.
    pub fn all_in(&self, section: Option<&str>, seats: &[SeatNumber]) -> bool {
        let within = |seat: &SeatNumber| seat.index().is_some_and(|at| self.rows(section).any(|row| row.contains(&at)));
        seats.iter().all(within)
    }

    /// Whether these seats are next to each other in one row.
    pub fn together(&self, seats: &[SeatNumber]) -> bool {
        let mut at: Vec<usize> = seats.iter().filter_map(|seat| seat.index()).collect();
        at.sort_unstable();
        let (Some(first), Some(last)) = (at.first(), at.last()) else { return false };
        last - first + 1 == at.len() && self.rows(None).any(|row| row.contains(first) && row.contains(last))
    }
}

/// Where free seats of a row are next to each other.
fn runs(row: &Range<usize>, free: &impl Fn(usize) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for seat in row.clone().filter(|seat| free(*seat)) {
        match runs.last_mut().filter(|run| run.end == seat) {
            Some(run) => run.end += 1,
            None => runs.push(seat..seat + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(json: &str) -> Result<Layout, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn seats_are_labelled_section_by_section_row_by_row() {
        let hall = layout(
            r#"{"sections":[{"name":"VIP","price":165000,"rows":[2,3]},{"name":"R","price":0,"rows":2,"seatsPerRow":1}]}"#,
        );
        let labels: Vec<String> = hall.unwrap().seats().map(|(label, _)| label).collect();
        assert_eq!(labels, ["VIP-A1", "VIP-A2", "VIP-B1", "VIP-B2", "VIP-B3", "R-A1", "R-B1"]);
    }

    #[test]
    fn the_free_hall_has_ten_seats_to_a_row() {
        let labels: Vec<(String, i64)> = Layout::free(7021).unwrap().seats().collect();
        for (index, label) in
            [(0, "A1"), (9, "A10"), (10, "B1"), (49, "E10"), (259, "Z10"), (260, "AA1"), (7020, "AAA1")]
        {
            assert_eq!(labels[index], (label.to_owned(), 0));
        }
        assert_eq!(labels.len(), 7021);
    }

    #[test]
    fn a_layout_that_cannot_be_is_refused_with_its_problem() {
        let section = |text: &str| layout(&format!(r#"{{"sections":[{text}]}}"#)).unwrap_err();
        assert!(section("").contains("1 to 50000 seats, not 0"));
        assert!(section(r#"{"price":-1,"rows":[1]}"#).contains("price from 0"));
        assert!(section(r#"{"price":1.5,"rows":[1]}"#).contains("invalid type"));
        assert!(section(r#"{"price":0,"rows":[0]}"#).contains("rows of 1 to 500"));
        assert!(section(r#"{"price":0,"rows":[]}"#).contains("rows of 1 to 500"));
        assert!(section(r#"{"price":0,"rows":5}"#).contains("seatsPerRow"));
        assert!(section(r#"{"price":0,"rows":4000000000,"seatsPerRow":1}"#).contains("at most 50000"));
        assert!(section(r#"{"price":0,"rows":101,"seatsPerRow":500}"#).contains("not 50500"));
        assert!(section(r#"{"price":0,"rows":[1]},{"price":0,"rows":[1]}"#).contains("two sections"));
        assert!(section(r#"{"name":"far too long a name","price":0,"rows":[1]}"#).contains("is no name"));
        assert!(section(r#"{"name":"A\n","price":0,"rows":[1]}"#).contains("is no name"));
        assert!(section(r#"{"price":0,"rows":[1],"color":"red"}"#).contains("unknown field"));
    }

    /// A hall drawn with a letter a seat: `.` is free. Returns it with the seats chosen for `count`.
    fn choose(rows: &[&str], count: usize) -> Option<Vec<usize>> {
        let seats: Vec<u8> = rows.concat().into_bytes();
        let hall = Hall::new([(String::new(), rows.iter().map(|row| row.len()).collect())]);
        let best = hall.best(None, count, |seat| seats[seat] == b'.');
        best.map(|seats| seats.collect())
    }

    #[test]
    fn the_best_seats_are_near_the_stage_and_in_the_middle() {
        assert_eq!(choose(&["......", "......"], 2), Some(vec![2, 3]));
        assert_eq!(choose(&["xxxxxx", "......"], 2), Some(vec![8, 9]));
        assert_eq!(choose(&["......"], 6), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(choose(&["...x..", "x..x.."], 4), None);
        assert_eq!(choose(&["...", "..."], 4), None, "not across rows");
    }

    #[test]
    fn no_seat_is_left_alone_where_that_can_be_avoided() {
        // The middle would leave one on each side.
        assert_eq!(choose(&["...."], 2), Some(vec![0, 1]));
        // The first row would keep a single seat.
        assert_eq!(choose(&["xx...x", "xx..xx"], 2), Some(vec![8, 9]));
        // Nothing else is left: then it cannot be avoided.
        assert_eq!(choose(&["xx...x"], 2), Some(vec![2, 3]));
        assert_eq!(choose(&["x.xx.x", "......"], 1), Some(vec![1]));
    }

    #[test]
    fn the_nearest_free_seat_is_beside_or_behind() {
        let hall = Hall::new([(String::new(), vec![5, 5, 7])]);
        let nearest =
            |seat, taken: &[usize]| hall.nearest(SeatNumber(seat), |seat| !taken.contains(&seat)).map(|seat| seat.0);
        assert_eq!(nearest(3, &[]), Some(2), "beside");
        assert_eq!(nearest(3, &[1]), Some(4), "on the other side");
        assert_eq!(nearest(3, &[0, 1, 3, 4]), Some(8), "behind");
        assert_eq!(nearest(8, &[0, 1, 2, 3, 4, 5, 6, 8, 9]), Some(14), "the middle of a longer row");
        assert_eq!(hall.nearest(SeatNumber(3), |_| false), None);
    }

    #[test]
    fn a_section_can_be_asked_for() {
        let hall = Hall::new([("VIP".to_owned(), vec![4]), ("R".to_owned(), vec![4])]);
        assert_eq!(hall.best(Some("R"), 4, |_| true), Some(4..8));
        assert_eq!(hall.best(Some("S"), 1, |_| true), None);
        assert!(hall.together(&[SeatNumber(2), SeatNumber(1)]));
        assert!(!hall.together(&[SeatNumber(4), SeatNumber(5)]), "another row");
        assert!(!hall.together(&[SeatNumber(1), SeatNumber(3)]));
    }

    proptest! {
        #[test]
        fn any_text_is_a_layout_or_refused_without_a_panic(text in ".{0,80}", rows in any::<u32>(), length in any::<u32>()) {
            let _ = layout(&text);
            let _ = layout(&format!(r#"{{"sections":[{{"price":0,"rows":{rows},"seatsPerRow":{length}}}]}}"#));
        }

        #[test]
        fn a_hall_that_is_taken_keeps_its_bounds(
            sections in proptest::collection::vec(
                ("[A-C]{0,1}|[\\PC]{0,14}", -5..200_000_000_i64, proptest::collection::vec(0..600_u32, 0..6)), 0..4),
        ) {
            let plans = sections.into_iter().map(|(name, price, rows)| SectionPlan { name, price, rows });
            let plans: Vec<SectionPlan> = plans.collect();
            let described = plans.iter().map(|plan| serde_json::json!({
                "name": plan.name, "price": plan.price, "rows": plan.rows,
            }));
            let text = serde_json::json!({ "sections": described.collect::<Vec<_>>() }).to_string();
            let read = layout(&text).ok().map(|layout| layout.sections().to_vec());
            let hall = Layout::new(plans).ok();
            let sections = hall.as_ref().map(|hall| hall.sections().to_vec());
            prop_assert_eq!(read, sections, "text or not, it is the same hall");
            let Some(hall) = hall else { return Ok(()) };
            let seats: Vec<(String, i64)> = hall.seats().collect();
            let labels: std::collections::BTreeSet<&str> = seats.iter().map(|(label, _)| label.as_str()).collect();
            prop_assert!((1..=MOST_SEATS).contains(&seats.len()));
            prop_assert_eq!(labels.len(), seats.len(), "every seat has a label of its own");
            prop_assert!(labels.iter().all(|label| label.chars().count() <= LONGEST_NAME + 8));
            prop_assert!(seats.iter().all(|(_, price)| (0..=HIGHEST_PRICE).contains(price)));
        }

        #[test]
        fn the_best_seats_are_free_and_together(taken in proptest::collection::vec(any::<bool>(), 40), count in 1_usize..5) {
            let hall = Hall::new([(String::new(), vec![10, 7, 13]), ("B".to_owned(), vec![10])]);
            if let Some(best) = hall.best(None, count, |seat| !taken[seat]) {
                prop_assert_eq!(best.len(), count);
                prop_assert!(best.clone().all(|seat| !taken[seat]));
                let seats: Vec<SeatNumber> = best.map(SeatNumber::at).collect();
                prop_assert!(hall.together(&seats));
            }
        }
    }
}
