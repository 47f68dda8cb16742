//! The rule by which one build is called worse or better than another. It decides; it measures nothing.

use std::fmt;

use crate::load::median;

/// Builds that differ by less than this are the same: where the compiler puts the code makes that much of a difference.
const SMALLEST: f64 = 0.02;
/// Fewer runs of each build do not show how much they differ by chance.
pub const FEWEST_ROUNDS: usize = 3;
/// As the table says it.
pub const RULE: &str = "A row is *worse* if its whole spread is below 1 and its ratio is below 1 by more than 2 % and \
                        by more than half the width of the spread; *better* is the reverse, the rest is the *same*.";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Worse,
    Same,
    Better,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Worse => "**worse**",
            Self::Same => "same",
            Self::Better => "better",
        })
    }
}

/// This build ÷ the other one.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    pub of_medians: f64,
    /// Of the two runs of a round.
    pub lowest: f64,
    pub highest: f64,
}

impl Ratio {
    /// The runs of each build, round by round. Only runs of one round are neighbours in time, so only they are
    /// divided: a machine that gets slower or faster between rounds does not look like a difference between builds.
    pub fn new(this: &[f64], beside: &[f64]) -> Self {
        let ratios = this.iter().zip(beside).map(|(this, beside)| this / beside);
        Self {
            of_medians: median(this.iter().copied()) / median(beside.iter().copied()),
            lowest: ratios.clone().fold(f64::INFINITY, f64::min),
            highest: ratios.fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// For figures of which less is better: above 1 is better here too.
    pub fn turned_over(self) -> Self {
        Self { of_medians: 1.0 / self.of_medians, lowest: 1.0 / self.highest, highest: 1.0 / self.lowest }
    }

    /// See [`RULE`].
    pub fn verdict(self) -> Verdict {
        if self.is_worse() {
            Verdict::Worse
        } else if self.turned_over().is_worse() {
            Verdict::Better
        } else {
            Verdict::Same
        }
    }

    fn is_worse(self) -> bool {
        let noise = (self.highest - self.lowest) / 2.0;
        self.highest < 1.0 && 1.0 - self.of_medians > noise.max(SMALLEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 102.0];

    fn verdict(this: [f64; 5], beside: [f64; 5]) -> Verdict {
        let verdict = Ratio::new(&this, &beside).verdict();
        let reverse = match verdict {
            Verdict::Worse => Verdict::Better,
            Verdict::Same => Verdict::Same,
            Verdict::Better => Verdict::Worse,
        };
        assert_eq!(Ratio::new(&this, &beside).turned_over().verdict(), reverse);
        verdict
    }

    #[test]
    fn a_build_beside_itself_is_the_same() {
        assert_eq!(verdict(STEADY, STEADY), Verdict::Same);
        assert_eq!(verdict([100.0; 5], [100.0; 5]), Verdict::Same);
    }

    #[test]
    fn a_build_that_is_slower_in_every_round_is_worse() {
        assert_eq!(verdict(STEADY.map(|rate| rate * 0.9), STEADY), Verdict::Worse);
        assert_eq!(verdict(STEADY.map(|rate| rate * 0.95), STEADY), Verdict::Worse);
    }

    #[test]
    fn a_build_that_is_faster_in_every_round_is_better() {
        assert_eq!(verdict(STEADY.map(|rate| rate * 1.1), STEADY), Verdict::Better);
    }

    #[test]
    fn one_round_the_other_way_makes_it_the_same() {
        assert_eq!(verdict([80.0, 80.0, 101.0, 80.0, 80.0], [100.0; 5]), Verdict::Same);
    }

    #[test]
    fn a_difference_smaller_than_the_noise_is_the_same() {
        // Always slower, mostly by 5 %, but by 40 % once.
        assert_eq!(verdict([95.0, 95.0, 60.0, 95.0, 95.0], [100.0; 5]), Verdict::Same);
    }

    #[test]
    fn a_steady_difference_of_one_percent_is_the_same() {
        assert_eq!(verdict([99.0; 5], [100.0; 5]), Verdict::Same);
    }

    #[test]
    fn the_second_turn_of_a_round_being_slower_is_not_a_worse_build() {
        let this = [100.0, 90.0, 100.0, 90.0, 100.0];
        let beside = [90.0, 100.0, 90.0, 100.0, 90.0];
        assert_eq!(verdict(this, beside), Verdict::Same);
    }

    #[test]
    fn a_machine_that_gets_slower_hides_no_worse_build() {
        let beside = [100.0, 90.0, 80.0, 70.0, 60.0];
        assert_eq!(verdict(beside.map(|rate| rate * 0.9), beside), Verdict::Worse);
        assert_eq!(verdict(beside, beside), Verdict::Same);
    }

    #[test]
    fn the_spread_is_that_of_the_rounds() {
        let ratio = Ratio::new(&[100.0, 50.0, 100.0], &[200.0, 100.0, 400.0]);
        assert_eq!((ratio.lowest, ratio.highest, ratio.of_medians), (0.25, 0.5, 0.5));
    }

    #[test]
    fn runs_without_an_answer_decide_nothing() {
        assert_eq!(Ratio::new(&[0.0; 3], &[0.0; 3]).verdict(), Verdict::Same);
    }

    #[test]
    fn the_rule_names_the_smallest_difference() {
        assert!(RULE.contains(&format!("{} %", SMALLEST * 100.0)));
    }
}
