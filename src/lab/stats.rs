//! Times, and what of them is worth telling.

use std::time::Duration;

/// The time that this share of them stayed below, zero of none.
pub fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let at = (times.len() as f64 * share).ceil() as usize;
    times.get(at.saturating_sub(1)).or(times.last()).copied().unwrap_or_default()
}

/// Short, with three digits that count.
pub fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        _ if ms < 10.0 => format!("{ms:.2}"),
        _ if ms < 100.0 => format!("{ms:.1}"),
        _ => grouped(ms.round() as u64),
    }
}

/// With commas.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(quantile(&mut times, 0.5), Duration::from_millis(50));
        assert_eq!(quantile(&mut times, 0.99), Duration::from_millis(99));
        assert_eq!(quantile(&mut times, 1.0), Duration::from_millis(100));
        assert_eq!(quantile(&mut [], 0.5), Duration::ZERO);
        assert_eq!(quantile(&mut [Duration::from_millis(7)], 0.0), Duration::from_millis(7));
    }

    #[test]
    fn numbers_are_told_with_the_digits_that_count() {
        let told = [0.1234, 9.999, 12.34, 99.94, 1234.5].map(|value| ms(Duration::from_secs_f64(value / 1000.0)));
        assert_eq!(told, ["0.12", "10.00", "12.3", "99.9", "1,235"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
