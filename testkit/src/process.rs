//! Child processes: programs that are started, watched and ended.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::{Outcome, PATIENCE, within};

/// A child process. Dropping it kills it.
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

    pub fn ended(&mut self) -> Outcome<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for a program that ends by itself. Any exit code but 0 is an error.
    pub async fn finish(&mut self, patience: Duration) -> Outcome<()> {
        let what = format!("the end of {}", self.name);
        let status = within(patience, &what, async || self.ended()).await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{} ended with {status}", self.name).into()),
        }
    }

    /// The standard library can only kill.
    pub fn signal(&self, name: &str) -> Outcome<()> {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        match sent.success() {
            true => Ok(()),
            false => Err(format!("{}: cannot send SIG{name}", self.name).into()),
        }
    }

    /// Asks it to end and waits until it has. Any exit code but 0 is an error.
    pub async fn stop(&mut self) -> Outcome<()> {
        self.signal("TERM")?;
        self.finish(PATIENCE).await
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) -> Outcome<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Bytes of the machine's memory it occupies.
    pub fn resident(&self) -> Outcome<u64> {
        let output = Command::new("ps").args(["-o", "rss=", "-p", &self.child.id().to_string()]).output()?;
        let kilobytes: u64 = String::from_utf8_lossy(&output.stdout).trim().parse()?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs a program to its end. Returns the file with its output.
pub async fn output(name: &str, command: &mut Command, files: &Path, patience: Duration) -> Outcome<PathBuf> {
    let (out, log) = (files.join(format!("{name}.out")), files.join(format!("{name}.log")));
    command.stdout(File::create(&out)?).stderr(File::create(&log)?);
    match Process::start(name, command)?.finish(patience).await {
        Ok(()) => Ok(out),
        Err(error) => Err(format!("{error}\n{}{}", last_lines(&out), last_lines(&log)).into()),
    }
}

/// The end of a log, indented, for an error message.
pub fn last_lines(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(15)).map(|line| format!("  {line}\n")).collect()
}

/// Where a program is: the environment can say, or it is on the PATH.
pub fn find(variable: &str, name: &str) -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| format!("{name} is not on the PATH; {variable} can say where it is").into())
}
