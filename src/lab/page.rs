//! The report as a page that stands by itself: tables, charts drawn as SVG, and what each strategy teaches.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::lab::report::{Report, Row, Table};

const STYLE: &str = "
:root { color-scheme: light dark; --bar: #2563eb; --bad: #c2410c; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; word-break: keep-all; }
h1 { line-height: 1.2; } h2 { margin-top: 3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 9rem; }
tr.broken td:first-child { color: var(--bad); font-weight: 600; }
svg { display: block; width: 100%; min-width: 44rem; height: auto; margin: 1rem 0; font: 13px system-ui, sans-serif; }
svg text { fill: currentColor; } svg rect { fill: var(--bar); } svg .broken rect { fill: var(--bad); }
dt { font-weight: 600; margin-top: 1rem; } dd { margin: .2rem 0 0; }
dd[lang=ko] { color: color-mix(in srgb, currentColor 75%, transparent); }
";

const WIDTH: usize = 960;
const NAMES: usize = 300;
const FIGURES: usize = 110;
const LINE: usize = 26;

pub fn page(report: &Report) -> Markup {
    let tables = report.tables();
    let mut lessons: Vec<&Row> = Vec::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if !lessons.iter().any(|known| known.about.name == row.about.name) {
            lessons.push(row);
        }
    }
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "The locking lab" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "The locking lab" }
                p { "The known ways to sell one seat to one of many, run on a real PostgreSQL and a real Redis. "
                    "Times are until a buyer had an answer; \"connection\" is the wait for one to the database. "
                    "Broken strategies stop for 5 ms where their bug is, so that it shows in every run." }
                p { (report.setting) }
                @for table in &tables { (section(table)) }
                h2 { "What each one teaches" }
                dl {
                    @for row in lessons {
                        dt { (row.about.name) }
                        dd { (row.about.english) }
                        dd lang="ko" { (row.about.korean) }
                    }
                }
            }
        }
    }
}

fn section(table: &Table) -> Markup {
    html! {
        h2 { (table.title) }
        div.scroll { (chart(table)) }
        div.scroll tabindex="0" role="region" aria-label=(table.title) {
            table {
                thead { tr { @for head in &table.head { th scope="col" { (head) } } } }
                tbody {
                    @for row in &table.rows {
                        tr.broken[row.broken] {
                            td { (row.about.name) @if row.broken { " (broken)" } }
                            @for cell in &row.cells { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

/// A bar for each row. A logarithmic scale: the best and the worst are far apart.
fn chart(table: &Table) -> Markup {
    let bars: Vec<(&Row, f64, &str)> = table
        .rows
        .iter()
        .filter_map(|row| row.bar.as_ref().map(|(value, says)| (row, value.max(0.01), says.as_str())))
        .collect();
    let (least, most) =
        bars.iter().fold((f64::MAX, f64::MIN), |(least, most), (_, value, _)| (least.min(*value), most.max(*value)));
    let room = (WIDTH - NAMES - FIGURES) as f64;
    // The shortest bar is a tenth of the room, so that it is seen.
    let span = (most / least).ln().max(f64::EPSILON);
    let length = |value: f64| room * (0.1 + 0.9 * (value / least).ln() / span);
    let what = if table.head.first() == Some(&"line") { "Polls a second" } else { "Time until 99 % had an answer" };
    let height = LINE * bars.len() + 2 * LINE;
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label={ (what) ", " (table.title) ", also in the table below" } {
            text x="0" y="16" { (what) " (logarithmic)" }
            @for (number, (row, value, says)) in bars.iter().enumerate() {
                @let top = LINE + number * LINE;
                g.broken[row.broken] {
                    text x=(NAMES - 8) y=(top + 17) text-anchor="end" { (label(table, row)) }
                    rect x=(NAMES) y=(top + 4) width=(format!("{:.1}", length(*value))) height=(LINE - 8) rx="3" {}
                    text x=(format!("{:.1}", NAMES as f64 + length(*value) + 6.0)) y=(top + 17) { (says) }
                }
            }
        }
    }
}

/// A line stands in its table more than once.
fn label(table: &Table, row: &Row) -> String {
    match (table.head.first(), row.cells.first()) {
        (Some(&"line"), Some(people)) => format!("{}, {people}", row.about.name),
        _ => row.about.name.to_owned(),
    }
}
