//! `--beside`: this build and another one take turns, each with servers, a Redis and a database of its own. Prints a
//! table and keeps nothing: what the README shows comes from a run without it.

use std::path::{Path, PathBuf};

use zticket_testkit::Outcome;

use crate::load::{Series, Side, median};
use crate::report::{self, short, table};
use crate::seats::check_sold;
use crate::stack::{Serving, Stack};
use crate::verdict::{FEWEST_ROUNDS, RULE, Ratio, Verdict};
use crate::{Bench, Part};

const HEAD: [&str; 8] =
    ["", "this", "beside", "ratio", "spread", "p50, this / beside", "p99, this / beside", "verdict"];

/// One figure of each build, round by round.
type Figures = [Vec<f64>; 2];

#[derive(Clone, Copy)]
struct Build<'a> {
    name: &'static str,
    zticket: &'a Path,
}

/// A build with visitors in its line.
struct Line<'a> {
    name: &'static str,
    stack: Stack<'a>,
    tokens: PathBuf,
}

pub struct Beside<'a> {
    bench: Bench<'a>,
    builds: [Build<'a>; 2],
    rows: Vec<[String; 8]>,
    /// Rows in which this build is worse.
    worse: Vec<String>,
}

impl<'a> Beside<'a> {
    pub fn new(bench: Bench<'a>, other: &'a Path) -> Outcome<Self> {
        if bench.rounds < FEWEST_ROUNDS {
            return Err(format!("--beside needs --rounds {FEWEST_ROUNDS} or more, to see what is chance").into());
        }
        let this = Build { name: "this", zticket: &bench.programs.zticket };
        let builds = [this, Build { name: "beside", zticket: other }];
        Ok(Self { bench, builds, rows: Vec::new(), worse: Vec::new() })
    }

    pub async fn run(mut self, parts: &[Part], waiting: u32) -> Outcome<()> {
        let (buyers, seconds) = (self.bench.buyers, self.bench.pressure.seconds);
        for part in parts {
            match part {
                Part::Lines => self.lines(waiting).await?,
                Part::Seats => self.seats().await?,
                Part::Holds => self.once("hold", "hold", buyers * 2, seconds.min(2)).await?,
                Part::Purchases => self.once("purchase", "buy", buyers, seconds.max(2)).await?,
                // An older build buys at once what it is asked to write later.
                Part::Orders => {}
            }
        }
        println!("{}\n{}", table(HEAD, &self.rows), self.footnote());
        self.bench.verify()?;
        match self.worse.as_slice() {
            [] => Ok(()),
            worse => Err(format!("this build is worse: {}", worse.join("; ")).into()),
        }
    }

    /// Polling and entering, and what the server of a long line takes.
    async fn lines(&mut self, waiting: u32) -> Outcome<()> {
        self.bench.say("filling the lines");
        // Enough that admission, at its default pace, never runs out of seats.
        let lines = self.fill("line", 50_000, waiting).await?;
        let length = short(waiting);
        let poll = format!("poll, {length} waiting");
        let rows = [("poll", poll.as_str()), ("enter", "enter"), ("mixed", "poll and enter 9:1")];
        let (starts, memory) = self.take_turns(lines, "mixed", &rows).await?;
        self.less_is_better(&format!("start to ready, {length} waiting"), &starts, report::millis);
        self.less_is_better(&format!("server memory after that, {length} waiting"), &memory, report::megabytes);
        Ok(())
    }

    /// The seat map of a hall.
    async fn seats(&mut self) -> Outcome<()> {
        let lines = self.fill("seats", 1000, 1000).await?;
        self.take_turns(lines, "seats", &[("seats", "seat map of 1,000 seats")]).await?;
        Ok(())
    }

    async fn fill(&self, name: &str, seats: u64, waiting: u32) -> Outcome<Vec<Line<'a>>> {
        let mut lines = Vec::new();
        for Build { name: build, zticket } in self.builds {
            let settings = [("ZTICKET_SEAT_TOTAL_COUNT", seats)];
            let stack = self.bench.stack(zticket, &format!("{name}_{build}"), &settings).await?;
            let tokens = self.bench.fill(&stack, waiting).await?;
            lines.push(Line { name: build, stack, tokens });
        }
        Ok(lines)
    }

    /// A row for each kind of request. Every round starts new servers, because two starts of one program differ too.
    /// Returns how long the starts took, in ms, and the bytes that the servers had in the end.
    async fn take_turns(
        &mut self,
        lines: Vec<Line<'a>>,
        warm_up: &'static str,
        rows: &[(&'static str, &str)],
    ) -> Outcome<(Figures, Figures)> {
        let (mut starts, mut memory) = (Figures::default(), Figures::default());
        let mut series: Vec<[Series; 2]> = rows.iter().map(|_| Default::default()).collect();
        for round in 0..self.bench.rounds {
            let mut servers = [None, None];
            for ((line, starts), place) in in_turn(round, lines.iter().zip(&mut starts).zip(&mut servers)) {
                let server = line.stack.serve().await?;
                starts.push(server.ready_after.as_secs_f64() * 1000.0);
                self.bench.load_anew(&Side::new(warm_up, line.name, &server, &line.tokens), 1).await?;
                *place = Some(server);
            }
            let servers: Vec<Serving> = servers.into_iter().flatten().collect();
            for ((kind, _), series) in rows.iter().zip(&mut series) {
                for ((line, server), series) in in_turn(round, lines.iter().zip(&servers).zip(series)) {
                    let side = Side::new(kind, line.name, server, &line.tokens);
                    series.add(&self.bench.load_anew(&side, self.bench.pressure.seconds).await?);
                }
            }
            for (server, memory) in servers.iter().zip(&mut memory) {
                memory.push(server.resident()? as f64);
            }
            for server in servers {
                server.stop().await?;
            }
        }
        for ((_, what), series) in rows.iter().zip(&series) {
            self.rates(what, series);
        }
        for line in lines {
            line.stack.remove().await?;
        }
        Ok((starts, memory))
    }

    /// A row for what a visitor can do only once: every run has a stack of its own.
    async fn once(&mut self, what: &str, kind: &'static str, visitors: u32, seconds: u64) -> Outcome<()> {
        let mut series: [Series; 2] = Default::default();
        for round in 0..self.bench.rounds {
            for (Build { name, zticket }, series) in in_turn(round, self.builds.into_iter().zip(&mut series)) {
                let stack_name = format!("{kind}_{name}");
                let (stack, tokens, server) = self.bench.inside(zticket, &stack_name, visitors).await?;
                let side = Side::new(kind, name, &server, &tokens);
                let warm = self.bench.warm_up(&side).await?;
                let run = self.bench.load_once(&side, visitors, seconds).await?;
                series.add(&run);
                server.stop().await?;
                if kind == "buy" {
                    check_sold(&stack, warm.good() + run.good()).await?;
                }
                stack.remove().await?;
            }
        }
        self.rates(what, &series);
        Ok(())
    }

    fn rates(&mut self, what: &str, [this, beside]: &[Series; 2]) {
        let both = |figure: fn(&Series) -> f64| {
            format!("{} / {}", report::millis(figure(this)), report::millis(figure(beside)))
        };
        let medians = [this, beside].map(|series| report::rate(series.rate()));
        let ratio = Ratio::new(&this.rates(), &beside.rates());
        self.row(what, medians, ratio, [both(Series::p50), both(Series::p99)]);
    }

    fn less_is_better(&mut self, what: &str, [this, beside]: &Figures, show: fn(f64) -> String) {
        let medians = [this, beside].map(|figures| show(median(figures.iter().copied())));
        self.row(what, medians, Ratio::new(this, beside).turned_over(), Default::default());
    }

    fn row(&mut self, what: &str, [this, beside]: [String; 2], ratio: Ratio, [p50, p99]: [String; 2]) {
        let (of_medians, verdict) = (format!("{:.2}", ratio.of_medians), ratio.verdict());
        let spread = format!("{:.2}–{:.2}", ratio.lowest, ratio.highest);
        if verdict == Verdict::Worse {
            self.worse.push(format!("{what} ({of_medians})"));
        }
        self.rows.push([what.to_owned(), this, beside, of_medians, spread, p50, p99, verdict.to_string()]);
    }

    fn footnote(&self) -> String {
        let [this, beside] = self.builds;
        let Bench { rounds, pressure, .. } = &self.bench;
        format!(
            "This: {} of commit {}. Beside: {}. Figures are the median of {rounds} runs of each build, which take \
             turns; a run of polls, entries or seat maps takes {} s, and all use {} connections. *Ratio*: this ÷ \
             beside, and beside ÷ this for time and memory, so that more than 1 is always better. *Spread*: the lowest \
             and the highest ratio of two neighbouring runs. {RULE}",
            this.zticket.display(),
            report::commit(),
            beside.zticket.display(),
            pressure.seconds,
            pressure.connections,
        )
    }
}

/// Both builds, and in every other round the second one first: to be first must not be an advantage.
fn in_turn<T>(round: usize, both: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
    if round.is_multiple_of(2) { both.collect() } else { both.rev().collect() }
}
