//! A proxy's process: what it has used of the machine, and its end.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use crate::Failure;

/// Ended when dropped.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> Result<Self, Failure> {
        let child = command.spawn().map_err(|error| format!("{command:?} does not start: {error}"))?;
        Ok(Self(child))
    }

    /// Has it ended by itself?
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Time on a processor so far, also that of children it has waited for.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name, in parentheses, may hold anything; fields are counted behind it (proc(5)).
        let (_, fields) = stat.rsplit_once(')').ok_or("/proc/PID/stat has no name")?;
        let times = fields.split_whitespace().skip(11).take(4).map(str::parse::<u64>);
        let ticks = times.sum::<Result<u64, _>>()?;
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Memory that is its own, in octets: its share of what it shares included.
    pub fn memory(&self) -> Result<u64, Failure> {
        let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.0.id()))?;
        let line =
            rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss in smaps_rollup")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
