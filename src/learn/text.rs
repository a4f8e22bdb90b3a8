//! What was learned as texts: a rule set, an addition to one, a difference. Whatever comes from
//! outside is written so that it can't end a line.

use std::fmt::Write as _;

use super::judge::rule;
use super::report::{AllowedAlready, Complaint, NotProposed, Proposal, Report, Unused};
use super::tally::Summary;

/// Names that a comment lists of those that a wildcard stands for.
const NAMES: usize = 10;
/// Destinations that a comment lists.
const LISTED: usize = 500;

impl Report {
    /// A whole rule set, with the rest as comments.
    #[must_use]
    pub fn to_rule_set(&self) -> String {
        let mut out = opening(&format!(": {}.", describe(&self.whole)));
        for proposal in &self.proposed {
            out.push('\n');
            out.push_str(&proposal.to_rule());
        }
        let allowed: Vec<_> = self.allowed.iter().map(AllowedAlready::to_line).collect();
        list(&mut out, "Allowed already, by other rules:", &allowed);
        let not_proposed: Vec<_> = self.not_proposed.iter().map(NotProposed::to_line).collect();
        list(&mut out, "Not proposed; write a rule by hand for what is meant:", &not_proposed);
        out
    }

    /// What has to stand behind the rules that are there so that nothing is new any more; nothing
    /// where nothing is.
    #[must_use]
    pub fn to_addition(&self, present: &str) -> String {
        let mut out = String::new();
        let new = self.new.as_deref().unwrap_or(&self.proposed);
        if present.is_empty() {
            out.push_str(&opening("."));
        } else if !present.ends_with('\n') && !new.is_empty() {
            out.push('\n');
        }
        for proposal in new {
            out.push('\n');
            out.push_str(&proposal.to_rule());
        }
        out
    }

    /// What is new and what is unused, a line each; empty if nothing is.
    #[must_use]
    pub fn to_difference(&self) -> String {
        let mut out = String::new();
        for proposal in self.new.iter().flatten() {
            let ports = join(proposal.ports.iter());
            let _ = writeln!(out, "+ {}  ports {ports}  # {}", proposal.domain, describe(&proposal.summary));
        }
        for Unused { entry, ports, rule } in self.unused.iter().flatten() {
            let _ = writeln!(out, "- {}  ports {ports}  # {}", plain(entry), plain(rule));
        }
        out
    }
}

impl Proposal {
    fn to_rule(&self) -> String {
        let mut out = format!("# {}\n", describe(&self.summary));
        if !self.stands_for.is_empty() {
            let shown: Vec<_> = self.stands_for.iter().take(NAMES).map(String::as_str).collect();
            let more = match self.stands_for.len().saturating_sub(NAMES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let _ = writeln!(out, "# stands for {}{more}", shown.join(", "));
        }
        out.push_str(&rule(&self.domain, self.ports.iter()));
        out
    }
}

impl AllowedAlready {
    /// The destination, its rule, and what makes it worth a look, on one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let place = place(&self.host, Some(self.port));
        let doubts = match complaints(&self.doubts) {
            none if none.is_empty() => none,
            some => format!(" although: {some}"),
        };
        format!("{place}: {}{doubts}; {}", plain(&self.rule), describe(&self.summary))
    }
}

impl NotProposed {
    /// The destination and why it is not proposed, on one line.
    #[must_use]
    pub fn to_line(&self) -> String {
        let place = place(&self.host, self.port);
        format!("{place}: {}; {}", complaints(&self.why), describe(&self.summary))
    }
}

fn complaints(all: &[Complaint]) -> String {
    let each = all.iter().map(|complaint| match complaint.detail.as_str() {
        "" => complaint.reason.meaning().to_owned(),
        detail => format!("{} ({})", complaint.reason.meaning(), plain(detail)),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// What a rule set of its own begins with.
fn opening(from: &str) -> String {
    format!(
        "# Learned from what sandboxes asked for{from}\n\
         # The rules are for whole hosts: records have no paths, and tunnels show none.\n"
    )
}

/// `14 requests by agent-1, agent-2, 2026-11-29T18:12:01Z to 2026-11-29T18:40:27Z`.
fn describe(summary: &Summary) -> String {
    if summary.requests == 0 {
        return "no request".to_owned();
    }
    let plural = if summary.requests == 1 { "" } else { "s" };
    let mut sandboxes: Vec<_> = summary.sandboxes.iter().map(|id| plain(id)).collect();
    if summary.more_sandboxes {
        sandboxes.push("others".to_owned());
    }
    let by = if sandboxes.is_empty() { "nobody known".to_owned() } else { sandboxes.join(", ") };
    let (first, last) = (second(&summary.first_seen), second(&summary.last_seen));
    let when = if first == last { first } else { format!("{first} to {last}") };
    format!("{} request{plural} by {by}, {when}", summary.requests)
}

/// A record's time without the part below a second.
fn second(ts: &str) -> String {
    ts.get(..19).map_or_else(|| plain(ts), |whole| format!("{}Z", plain(whole)))
}

fn place(host: &str, port: Option<u16>) -> String {
    match (host, port) {
        ("", _) => "(none)".to_owned(),
        (host, Some(port)) if host.contains(':') => format!("[{}]:{port}", plain(host)),
        (host, Some(port)) => format!("{}:{port}", plain(host)),
        (host, None) => plain(host),
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n# {title}\n#");
    for line in lines.iter().take(LISTED) {
        let _ = writeln!(out, "#   {line}");
    }
    if let Some(more) = lines.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let _ = writeln!(out, "#   and {more} more, which --json shows");
    }
}

fn join<'a>(ports: impl Iterator<Item = &'a u16>) -> String {
    ports.map(u16::to_string).collect::<Vec<_>>().join(", ")
}

/// Text from outside with nothing in it but printable ASCII.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    text.chars().map(|c| if is_plain(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}
