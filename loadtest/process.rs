//! Children of ours: programs that are started, watched and ended.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Nothing that is waited for takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A child of ours. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Outcome<Self> {
        let child = command.stdin(Stdio::null()).spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            format!("{name}: cannot start {program}: {error}")
        })?;
        Ok(Self { name: name.to_owned(), child })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for a program that ends by itself.
    pub async fn finish(mut self, patience: Duration) -> Outcome<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.ended()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{} failed: {status}", self.name).into()),
                None if Instant::now() > deadline => return Err(format!("{} does not end", self.name).into()),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// The standard library can only kill.
    pub fn signal(&self, name: &str) -> Outcome<()> {
        Command::new("kill").arg(format!("-{name}")).arg(self.id().to_string()).status()?;
        Ok(())
    }

    /// Asks it to end, and waits for that.
    pub async fn stop(mut self) -> Outcome<()> {
        self.signal("TERM")?;
        let deadline = Instant::now() + PATIENCE;
        while self.ended()?.is_none() {
            if Instant::now() > deadline {
                return Err(format!("{} does not stop", self.name).into());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// What it occupies of the machine's memory, in bytes.
    pub fn resident(&self) -> Outcome<u64> {
        let output = Command::new("ps").args(["-o", "rss=", "-p", &self.id().to_string()]).output()?;
        let kilobytes: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end and returns what it wrote.
pub async fn output(name: &str, command: &mut Command, files: &Path, patience: Duration) -> Outcome<String> {
    let (out, log) = (files.join(format!("{name}.out")), files.join(format!("{name}.log")));
    command.stdout(File::create(&out)?).stderr(File::create(&log)?);
    match Process::start(name, command)?.finish(patience).await {
        Ok(()) => Ok(fs::read_to_string(&out)?),
        Err(error) => Err(format!("{error}\n{}{}", last_lines(&out), last_lines(&log)).into()),
    }
}

pub fn last_lines(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(15)).map(|line| format!("  {line}\n")).collect()
}

pub fn find(variable: &str, name: &str) -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not on the PATH; {variable} can say where it is").into())
}

pub fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
