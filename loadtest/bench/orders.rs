//! Buying later: how fast orders are accepted, and how soon they are bought, in Redis and in Kafka.

use zticket_testkit::{Kafka, Outcome, PATIENCE, within};

use crate::Bench;
use crate::load::{Pressure, Series, Side, Tokens};
use crate::report::Target;
use crate::seats::check_sold;
use crate::stack::Serving;

/// A run uses up its tokens if it is faster than this.
const SLOWEST_RATE: u32 = 2000;

impl Bench<'_> {
    pub async fn orders(&mut self) -> Outcome<()> {
        self.orders_in("Redis", None).await?;
        if std::env::var_os("ZT_KAFKA").is_none() {
            self.say("orders in Kafka are left out: it needs Java and Maven");
            return Ok(());
        }
        let kafka = Kafka::start().await?;
        self.orders_in("Kafka", Some(&kafka)).await
    }

    /// A third of the visitors buys at once, which sets the pace. A third buys later at this pace. The last third does so as
    /// fast as orders are accepted.
    async fn orders_in(&mut self, broker: &str, kafka: Option<&Kafka>) -> Outcome<()> {
        let [mut ceiling, mut accepted, mut at_once, mut later] = [(); 4].map(|()| Series::default());
        let (warm, share) = (self.buyers / 10, self.buyers / 2);
        for round in 0..self.rounds {
            let address = kafka.map_or_else(|| "redis".to_owned(), |kafka| kafka.url(&format!("round{round}")));
            let visitors = warm + 3 * share;
            let (stack, tokens, server) = self
                .inside_with(&self.programs.zticket, "order", visitors, |stack| stack.set("ZTICKET_BROKER", &address))
                .await?;
            let side = |kind| Side::new(kind, broker, &server, &tokens);
            let mut told = self.warm_up(&side("order")).await?.good();
            let before = Decided::all(&server, told).await?;

            let pressure = Pressure { seconds: u64::from(share.div_ceil(SLOWEST_RATE)), ..self.pressure };
            let run = self.load(&side("buy"), pressure, Tokens::Once(warm, share)).await?;
            at_once.add(&run);
            let bought = run.good();

            let paced = side("order").paced(run.rate());
            let run = self.load(&paced, pressure, Tokens::Once(warm + share, share)).await?;
            told += run.good();
            let decided = Decided::all(&server, told).await?.since(&before);
            later.add_timed(run.rate(), decided.quantile(0.5) * 1000.0, decided.quantile(0.99) * 1000.0);

            ceiling.add(&self.load_anew(&side("ceiling"), self.pressure.seconds.min(2)).await?);
            let run = self.load(&side("order"), pressure, Tokens::Once(warm + 2 * share, share)).await?;
            accepted.add(&run);
            told += run.good();
            Decided::all(&server, told).await?;
            server.stop().await?;
            check_sold(&stack, bought + told).await?;
            stack.remove().await?;
        }
        self.report.ratio(&format!("order accepted, {broker} ÷ ceiling"), &accepted, &ceiling, Target::None);
        self.report.ratio(&format!("bought later, {broker} ÷ bought at once"), &later, &at_once, Target::None);
        Ok(())
    }
}

/// How many orders were bought within how many seconds.
struct Decided(Vec<(f64, f64)>);

impl Decided {
    /// Waits until this many are bought.
    async fn all(server: &Serving, count: u64) -> Outcome<Self> {
        within(PATIENCE, "all orders are bought", async || {
            let decided =
                Self::read(&reqwest::get(format!("{}/actuator/prometheus", server.management)).await?.text().await?);
            Ok((decided.count() >= count as f64).then_some(decided))
        })
        .await
    }

    /// From the text that Prometheus gets.
    fn read(text: &str) -> Self {
        let bucket = |line: &str| {
            let rest = line.strip_prefix("zticket_order_decided_seconds_bucket{")?;
            let (labels, count) = rest.split_once("} ")?;
            let within = labels.split("le=\"").nth(1)?.split('"').next()?;
            let paid = labels.contains("outcome=\"paid\"");
            paid.then_some((within.parse().unwrap_or(f64::INFINITY), count.parse().ok()?))
        };
        Self(text.lines().filter_map(bucket).collect())
    }

    fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    fn since(self, before: &Self) -> Self {
        let earlier = before.0.iter().map(|(_, count)| *count).chain(std::iter::repeat(0.0));
        Self(self.0.into_iter().zip(earlier).map(|((within, count), earlier)| (within, count - earlier)).collect())
    }

    /// In seconds, as Prometheus does it: as if the orders of a bucket were spread evenly over it.
    fn quantile(&self, share: f64) -> f64 {
        let wanted = self.count() * share;
        let (mut low, mut below) = (0.0, 0.0);
        for (within, count) in self.0.iter().filter(|(within, _)| within.is_finite()) {
            if *count >= wanted {
                return low + (within - low) * (wanted - below) / (count - below).max(1.0);
            }
            (low, below) = (*within, *count);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP zticket_order_decided_seconds Time.
zticket_order_decided_seconds_bucket{outcome=\"failed\",le=\"+Inf\"} 7
zticket_order_decided_seconds_bucket{outcome=\"paid\",le=\"0.01\"} 50
zticket_order_decided_seconds_bucket{outcome=\"paid\",le=\"0.02\"} 90
zticket_order_decided_seconds_bucket{outcome=\"paid\",le=\"+Inf\"} 100
zticket_order_decided_seconds_count{outcome=\"paid\"} 100
";

    fn shown(decided: &Decided, share: f64) -> String {
        format!("{:.4}", decided.quantile(share))
    }

    #[test]
    fn quantiles_are_read_from_the_buckets_of_bought_orders() {
        let decided = Decided::read(TEXT);
        assert_eq!(decided.count(), 100.0);
        assert_eq!(
            (shown(&decided, 0.25), shown(&decided, 0.5), shown(&decided, 0.7)),
            ("0.0050".into(), "0.0100".into(), "0.0150".into())
        );
        assert_eq!(shown(&decided, 0.99), "0.0200", "beyond the last bucket nothing is known");
    }

    #[test]
    fn orders_of_an_earlier_run_do_not_count() {
        let before = Decided(vec![(0.01, 50.0), (0.02, 50.0), (f64::INFINITY, 50.0)]);
        let decided = Decided::read(TEXT).since(&before);
        assert_eq!(decided.count(), 50.0);
        assert_eq!(shown(&decided, 0.4), "0.0150");
    }
}
