//! Whether the command tried to go past the proxy: the kernel counts what found no route. Tells nothing
//! of where it was meant to go.

use std::fs::File;
use std::io::{Read, Seek};

use rustix::process::Pid;

/// Where a namespace counts, and under what name.
const COUNTERS: [(&str, &str); 2] = [("snmp", "OutNoRoutes"), ("snmp6", "Ip6OutNoRoutes")];
/// More than either has.
const MOST: u64 = 1 << 16;

/// The counters of a network namespace, which stay readable when its last process has ended.
#[derive(Debug)]
pub struct Unrouted(Vec<(File, &'static str)>);

impl Unrouted {
    /// Those of a process's namespace.
    #[must_use]
    pub fn of(pid: Pid) -> Self {
        let open = |(file, name)| {
            Some((File::open(format!("/proc/{}/net/{file}", pid.as_raw_nonzero())).ok()?, name))
        };
        Self(COUNTERS.into_iter().filter_map(open).collect())
    }

    /// How many packets there were that had no route.
    #[must_use]
    pub fn count(&mut self) -> u64 {
        let one = |(file, name): &mut (File, &'static str)| {
            let mut text = String::new();
            file.rewind().ok()?;
            file.take(MOST).read_to_string(&mut text).ok()?;
            value(&text, name)
        };
        self.0.iter_mut().filter_map(one).fold(0, u64::saturating_add)
    }
}

/// A counter, of a line by itself, or of a line of values below a line of names.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        if words.clone().next() == Some(name) {
            return words.nth(1)?.parse().ok();
        }
        if let Some(place) = words.position(|word| word == name) {
            return lines.next()?.split_whitespace().nth(place)?.parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let snmp =
            "Ip: Forwarding DefaultTTL OutNoRoutes ReasmTimeout\nIp: 2 64 17 0\nIcmp: InMsgs\nIcmp: 3\n";
        assert_eq!(value(snmp, "OutNoRoutes"), Some(17));
        let snmp6 = "Ip6InReceives                   \t0\nIp6OutNoRoutes                  \t5\n";
        assert_eq!(value(snmp6, "Ip6OutNoRoutes"), Some(5));
        assert_eq!(value("Ip: OutNoRoutes\n", "OutNoRoutes"), None);
        assert_eq!(value("", "OutNoRoutes"), None);
    }
}
