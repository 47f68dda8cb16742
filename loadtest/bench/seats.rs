//! Inside: the seat map, holding and buying.

use std::path::{Path, PathBuf};

use zticket_testkit::Outcome;

use crate::Bench;
use crate::load::{Pressure, Run, Series, Side, Tokens, pgbench};
use crate::report::{self, Target};
use crate::stack::{Serving, Stack};

impl<'a> Bench<'a> {
    /// The seat map of a hall.
    pub async fn seats(&mut self) -> Outcome<()> {
        let stack = self.stack(&self.programs.zticket, "seats", &[("ZTICKET_SEAT_TOTAL_COUNT", 1000)]).await?;
        let tokens = self.fill(&stack, 1000).await?;
        let server = stack.serve().await?;
        let side = |kind| Side::new(kind, "1,000 seats", &server, &tokens);
        let [ceiling, seats] = self.alternate([side("ceiling"), side("seats")].map(Some)).await?;
        self.report.ratio("seat map of 1,000 seats ÷ ceiling", &seats, &ceiling, Target::None);
        server.stop().await?;
        stack.remove().await
    }

    /// A stack with that many visitors inside, and their tokens: number n for seat n.
    pub async fn inside(&self, zticket: &'a Path, name: &str, visitors: u32) -> Outcome<(Stack<'a>, PathBuf, Serving)> {
        self.inside_with(zticket, name, visitors, |stack| stack).await
    }

    /// The same, with changes before anything is started.
    pub async fn inside_with(
        &self,
        zticket: &'a Path,
        name: &str,
        visitors: u32,
        change: impl FnOnce(Stack<'a>) -> Stack<'a>,
    ) -> Outcome<(Stack<'a>, PathBuf, Serving)> {
        let all = u64::from(visitors);
        let settings = [
            ("ZTICKET_SEAT_TOTAL_COUNT", all),
            ("ZTICKET_ADMISSION_BATCH_SIZE", all),
            ("ZTICKET_ADMISSION_MAX_ACTIVE_USERS", all),
        ];
        let stack = change(self.stack(zticket, name, &settings).await?);
        let tokens = stack.fill(visitors, visitors, true).await?;
        let server = stack.serve().await?;
        Ok((stack, tokens, server))
    }

    /// Holding: each visitor another seat, until there are no more visitors.
    pub async fn holds(&mut self) -> Outcome<()> {
        let (mut ceiling, mut holds) = (Series::default(), Series::default());
        let visitors = self.buyers * 2;
        for _ in 0..self.rounds {
            let (stack, tokens, server) = self.inside(&self.programs.zticket, "hold", visitors).await?;
            let side = |kind| Side::new(kind, "free seats", &server, &tokens);
            self.warm_up(&side("hold")).await?;
            let seconds = self.pressure.seconds.min(2);
            ceiling.add(&self.load_anew(&side("ceiling"), seconds).await?);
            holds.add(&self.load_once(&side("hold"), visitors, seconds).await?);
            server.stop().await?;
            stack.remove().await?;
        }
        self.report.ratio("hold ÷ ceiling", &holds, &ceiling, Target::None);
        Ok(())
    }

    /// Buying, beside what PostgreSQL does alone: single-row inserts into a table like `tickets`.
    pub async fn purchases(&mut self) -> Outcome<()> {
        let (mut purchases, mut inserts) = (Series::default(), Series::default());
        for _ in 0..self.rounds {
            let (stack, tokens, server) = self.inside(&self.programs.zticket, "buy", self.buyers).await?;
            let side = Side::new("buy", "free seats", &server, &tokens);
            let warm = self.warm_up(&side).await?;
            let seconds = self.pressure.seconds.max(2);
            let run = self.load_once(&side, self.buyers, seconds).await?;
            server.stop().await?;
            purchases.add(&run);
            check_sold(&stack, warm.good() + run.good()).await?;
            stack.db.execute("CREATE TABLE like_tickets (LIKE tickets INCLUDING ALL)").await?;
            let pressure = Pressure { seconds, ..self.pressure };
            let rate = pgbench(self.programs, self.files, &stack.db.url, pressure).await?;
            self.say(&format!("pgbench: {}", report::rate(rate)));
            inserts.add_rate(rate);
            stack.remove().await?;
        }
        self.report.ratio("purchase ÷ pgbench single-row insert", &purchases, &inserts, Target::AtLeast(0.5));
        Ok(())
    }

    /// The first tenth of the tokens, once.
    pub async fn warm_up(&mut self, side: &Side) -> Outcome<Run> {
        let count = self.buyers / 10;
        self.load(side, Pressure { seconds: 1, ..self.pressure }, Tokens::Once(0, count)).await
    }

    /// The tokens the warm-up has left, once, for at most this many seconds.
    pub async fn load_once(&mut self, side: &Side, visitors: u32, seconds: u64) -> Outcome<Run> {
        let used = self.buyers / 10;
        self.load(side, Pressure { seconds, ..self.pressure }, Tokens::Once(used, visitors - used)).await
    }
}

/// Fails if the database has fewer tickets than answers confirmed.
pub async fn check_sold(stack: &Stack<'_>, told: u64) -> Outcome<()> {
    let sold = u64::try_from(stack.db.number("SELECT count(*) AS n FROM tickets").await?)?;
    if sold < told {
        return Err(format!("{told} purchases were confirmed, {sold} are in the database").into());
    }
    Ok(())
}
