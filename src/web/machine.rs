//! What the system says about this machine and this process. Linux says it in files; elsewhere nothing is known.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use crate::base::lock;

/// Linux counts in these for everyone who asks, whatever its own clock does.
const TICKS_A_SECOND: f64 = 100.0;

/// How the processors of the machine spend their time. What the system says may go back a little; this does not.
#[derive(Default)]
pub struct Processors(Mutex<BTreeMap<&'static str, f64>>);

impl Processors {
    /// Seconds since the machine started, by what was done.
    pub fn seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut highest = lock(&self.0);
        for (mode, seconds) in fs::read_to_string("/proc/stat").map(|text| processors(&text)).unwrap_or_default() {
            let known = highest.entry(mode).or_default();
            *known = known.max(seconds);
        }
        highest.clone()
    }
}

fn processors(text: &str) -> Vec<(&'static str, f64)> {
    const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = line.into_iter().flat_map(str::split_whitespace).filter_map(|ticks| ticks.parse::<f64>().ok());
    MODES.into_iter().zip(ticks.map(|ticks| ticks / TICKS_A_SECOND)).collect()
}

/// Processor time of this process so far, in seconds, by what it was spent on.
pub fn own_seconds() -> Vec<(&'static str, f64)> {
    fs::read_to_string("/proc/self/stat").map(|text| own(&text)).unwrap_or_default()
}

fn own(text: &str) -> Vec<(&'static str, f64)> {
    // The name of the program comes second and may have anything in it.
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).filter_map(|ticks| ticks.parse::<f64>().ok());
    ["user", "system"].into_iter().zip(ticks.map(|ticks| ticks / TICKS_A_SECOND)).collect()
}

/// How many processors this process may use.
pub fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// Bytes that the allocator has from the system and uses: memory of this process that belongs to no file.
pub fn allocated_bytes() -> Option<u64> {
    anonymous(&fs::read_to_string("/proc/self/status").ok()?)
}

fn anonymous(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_linux_are_read() {
        let text = "cpu  100 0 50 800 7 0 3 0 0 0\ncpu0 1 2 3\n";
        assert_eq!(processors(text)[..4], [("user", 1.0), ("nice", 0.0), ("system", 0.5), ("idle", 8.0)]);
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 9 0 100";
        assert_eq!(own(stat), [("user", 2.5), ("system", 0.5)]);
        assert_eq!(anonymous("VmRSS:\t 100 kB\nRssAnon:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!((processors("nothing"), anonymous("nothing")), (Vec::new(), None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_known() {
        assert_eq!(Processors::default().seconds().len(), 8);
        assert_eq!(own_seconds().len(), 2);
        assert!(allocated_bytes().unwrap() > 100_000);
    }
}
