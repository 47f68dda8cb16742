//! The tables of the lab, as Markdown that is also readable in a terminal.

use std::fmt::Write;

use crate::lab::crowd::Measured;
use crate::lab::race::{Outcome, Subject};
use crate::lab::stats::{grouped, ms};
use crate::lab::way::About;

/// What the lab found out.
#[derive(Default)]
pub struct Report {
    /// What it ran on.
    pub setting: String,
    pub races: Vec<(About, Outcome)>,
    pub lines: Vec<(About, Vec<Measured>)>,
}

/// A table of a report.
pub struct Table {
    pub title: String,
    pub head: Vec<&'static str>,
    pub rows: Vec<Row>,
}

pub struct Row {
    pub about: About,
    /// Below the heads from the second on.
    pub cells: Vec<String>,
    /// Whether it has a bug.
    pub broken: bool,
    /// Whether something happened that should not have.
    pub surprise: bool,
    /// How long the bar in a chart is, and what it says.
    pub bar: Option<(f64, String)>,
}

const RACE: [&str; 11] =
    ["strategy", "sold", "rows", "refused", "busy", "errors", "wall", "p50", "p99", "connection p50", "connection p99"];
const LINE: [&str; 6] = ["line", "people", "bytes a person", "polls/s", "entries/s", "failed"];

impl Report {
    /// One for each crowd, then the lines.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let mut last = None;
        for (about, outcome) in &self.races {
            let crowd = (outcome.subject, outcome.buyers);
            if last.replace(crowd) != Some(crowd) {
                tables.push(Table { title: title(outcome), head: head(outcome.subject), rows: Vec::new() });
            }
            if let Some(table) = tables.last_mut() {
                table.rows.push(row(*about, outcome));
            }
        }
        if !self.lines.is_empty() {
            let rows = self.lines.iter().flat_map(|(about, all)| all.iter().map(|one| line_row(*about, one))).collect();
            tables.push(Table { title: "Waiting lines".to_owned(), head: LINE.to_vec(), rows });
        }
        tables
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.setting);
        for table in self.tables() {
            let _ = write!(text, "\n### {}\n\n{}", table.title, table.markdown());
        }
        let errors = self.races.iter().filter_map(|(about, outcome)| {
            let error = outcome.runs.iter().find_map(|run| run.error.as_ref())?;
            Some(format!("\nAn error of \"{}\" with {} buyers: {error}\n", about.name, grouped(buyers(outcome))))
        });
        text.extend(errors);
        text
    }

    /// Strategies that sold twice or lost something although they should not.
    pub fn failures(&self) -> Vec<String> {
        let failed = |(about, outcome): &(About, Outcome)| {
            let wrong = outcome.runs.len() - outcome.as_expected();
            (!outcome.broken && wrong > 0)
                .then(|| format!("{} with {} buyers went wrong in {wrong} runs", about.name, grouped(buyers(outcome))))
        };
        self.races.iter().filter_map(failed).collect()
    }
}

impl Table {
    fn markdown(&self) -> String {
        let first = |row: &Row| {
            let mark = if row.broken { " (broken)" } else { "" };
            format!("{}{mark}", row.about.name)
        };
        let mut lines: Vec<Vec<String>> = vec![self.head.iter().map(ToString::to_string).collect()];
        lines.extend(self.rows.iter().map(|row| std::iter::once(first(row)).chain(row.cells.clone()).collect()));
        let width = |column: usize| {
            lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for (number, line) in lines.iter().enumerate() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Names to the left, figures to the right.
                let _ = if column == 0 { write!(text, "| {cell:width$} ") } else { write!(text, "| {cell:>width$} ") };
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let rule = "-".repeat(width + 1);
                    let _ = if column == 0 { write!(text, "|{rule}-") } else { write!(text, "|{rule}:") };
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

fn buyers(outcome: &Outcome) -> u64 {
    u64::from(outcome.buyers.unsigned_abs())
}

fn title(outcome: &Outcome) -> String {
    let (buyers, runs) = (grouped(buyers(outcome)), outcome.runs.len());
    let runs = if runs == 1 { "one run".to_owned() } else { format!("{runs} runs") };
    match outcome.subject {
        Subject::Seats(1) => format!("{buyers} buyers want one seat ({runs})"),
        Subject::Seats(seats) => format!("{buyers} buyers want {seats} seats ({runs})"),
        Subject::Balance => format!("{buyers} payments and charges of one balance ({runs})"),
    }
}

fn head(subject: Subject) -> Vec<&'static str> {
    let mut head = RACE.to_vec();
    if subject == Subject::Balance {
        // Money tells more than the number of rows.
        if let [_, done, rows, ..] = head.as_mut_slice() {
            (*done, *rows) = ("done", "astray");
        }
    }
    head
}

fn row(about: About, outcome: &Outcome) -> Row {
    let range = |count: &dyn Fn(&crate::lab::race::Run) -> i64| {
        let counts: Vec<i64> = outcome.runs.iter().map(count).collect();
        let (least, most) = (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        if least == most { signed(least) } else { format!("{}–{}", signed(least), signed(most)) }
    };
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let surprise = outcome.as_expected() < outcome.runs.len();
    let mut done = range(&|run| number(run.done));
    if surprise {
        done.push_str(" (!)");
    }
    let rows = match outcome.subject {
        Subject::Seats(_) => range(&|run| number(run.rows)),
        Subject::Balance => range(&|run| run.astray),
    };
    let mut cells = vec![done, rows, range(&|run| number(run.refused)), range(&|run| number(run.busy))];
    cells.push(range(&|run| number(run.errors)));
    let answers = [outcome.wall(), outcome.answer(0.5), outcome.answer(0.99)].map(Some);
    let times = answers.into_iter().chain([outcome.wait(0.5), outcome.wait(0.99)]);
    cells.extend(times.map(|time| time.map_or_else(|| "–".to_owned(), |time| format!("{} ms", ms(time)))));
    let p99 = outcome.answer(0.99);
    let bar = Some((p99.as_secs_f64() * 1000.0, format!("{} ms", ms(p99))));
    Row { about, cells, broken: outcome.broken, surprise, bar }
}

fn line_row(about: About, measured: &Measured) -> Row {
    let rate = |rate: f64| grouped(rate.round() as u64);
    let bytes = match measured.bytes_a_person {
        bytes if bytes < 10.0 => format!("{bytes:.2}"),
        bytes => format!("{bytes:.0}"),
    };
    let (polls, entries) = (rate(measured.polls_a_second), rate(measured.entries_a_second));
    let cells = vec![grouped(measured.people.into()), bytes, polls, entries, grouped(measured.failed)];
    let bar = Some((measured.polls_a_second, format!("{} polls/s", rate(measured.polls_a_second))));
    Row { about, cells, broken: false, surprise: false, bar }
}

fn signed(number: i64) -> String {
    let sign = if number < 0 { "−" } else { "" };
    format!("{sign}{}", grouped(number.unsigned_abs()))
}
