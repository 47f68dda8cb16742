//! The table, and what has to be known about the machine to read it.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use zticket_testkit::Outcome;

use crate::load::Series;

/// What a figure must be.
#[derive(Clone, Copy)]
pub enum Target {
    None,
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn text(self) -> String {
        match self {
            Self::None => String::new(),
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
        }
    }

    fn verdict(self, figure: f64) -> &'static str {
        match self {
            Self::None => "",
            Self::AtLeast(least) if figure >= least => "yes",
            Self::AtMost(most) if figure <= most => "yes",
            _ => "**no**",
        }
    }
}

#[derive(Default)]
pub struct Report {
    rows: Vec<[String; 8]>,
}

impl Report {
    /// Requests a second, beside those of another side, and their ratio. No row if one of them was left out.
    pub fn ratio(&mut self, what: &str, this: &Series, other: &Series, target: Target) {
        if this.is_empty() || other.is_empty() {
            return;
        }
        let ratio = this.rate() / other.rate();
        self.rows.push([
            what.to_owned(),
            rate(this.rate()),
            rate(other.rate()),
            format!("{ratio:.2}"),
            millis(this.p50()),
            millis(this.p99()),
            target.text(),
            target.verdict(ratio).to_owned(),
        ]);
    }

    /// A figure that stands for itself, maybe beside another one. `show` writes it.
    pub fn figure(&mut self, what: &str, this: f64, other: Option<f64>, show: fn(f64) -> String, target: Target) {
        let [ratio, p50, p99] = [const { String::new() }; 3];
        let other = other.map(show).unwrap_or_default();
        let verdict = target.verdict(this).to_owned();
        self.rows.push([what.to_owned(), show(this), other, ratio, p50, p99, target.text(), verdict]);
    }

    pub fn table(&self) -> String {
        table(["", "this", "beside", "ratio", "p50", "p99", "target", "met"], &self.rows)
    }
}

pub fn table(head: [&str; 8], rows: &[[String; 8]]) -> String {
    let line = |cells: &[String; 8]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&head.map(str::to_owned));
    table.push_str("|---|--:|--:|--:|--:|--:|--:|---|\n");
    rows.iter().for_each(|row| table.push_str(&line(row)));
    table
}

pub fn rate(per_second: f64) -> String {
    format!("{}/s", grouped(per_second))
}

pub fn millis(ms: f64) -> String {
    format!("{ms:.*} ms", if ms < 10.0 { 2 } else { 1 })
}

pub fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

pub fn bytes(bytes: f64) -> String {
    format!("{bytes:.*} B", if bytes < 10.0 { 2 } else { 0 })
}

pub fn count(count: f64) -> String {
    grouped(count)
}

/// 12345678.9 as 12,345,679.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// 10 thousand, 1 million, 10 million, as the table calls them.
pub fn short(number: u32) -> String {
    match number {
        n if n >= 1_000_000 && n % 1_000_000 == 0 => format!("{} M", n / 1_000_000),
        n if n >= 1_000 && n % 1_000 == 0 => format!("{} k", n / 1_000),
        n => n.to_string(),
    }
}

/// On what it was measured, in one line.
pub fn machine(postgres: &str, redis: &str) -> String {
    let mut text = String::new();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let _ = write!(text, "{}, {cores} cores", cpu());
    if let Some(gigabytes) = memory() {
        let _ = write!(text, ", {gigabytes:.0} GB");
    }
    let kernel = said("uname", &["-s", "-r", "-m"]);
    let rustc = said("rustc", &["--version"]);
    let _ = write!(text, "; {kernel}; PostgreSQL {postgres}; Redis {redis}; {rustc}");
    text
}

/// The commit that was measured, and whether the files were those of the commit.
pub fn commit() -> String {
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"]);
    if said("git", &["status", "--porcelain"]).is_empty() { commit } else { format!("{commit} with changes") }
}

fn cpu() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map(|(_, model)| model.trim().to_owned());
    model.unwrap_or_else(|| match said("sysctl", &["-n", "machdep.cpu.brand_string"]) {
        unknown if unknown.is_empty() => "unknown processor".to_owned(),
        model => model,
    })
}

fn memory() -> Option<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes: f64 = meminfo.lines().next()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1e6)
}

/// What a program says; nothing if it is not there.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

pub fn write(folder: &Path, name: &str, text: &str) -> Outcome<()> {
    fs::create_dir_all(folder)?;
    let path = folder.join(name);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    eprintln!("bench: wrote {}", path.display());
    Ok(())
}
