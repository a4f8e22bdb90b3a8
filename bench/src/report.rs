//! The table: medians of all rounds, and egret as a part of each other.

use std::fmt::Write as _;
use std::fs;

use crate::measure::{Figures, Plan};
use crate::proxy::Kind;

type Get = fn(&Figures) -> Option<f64>;

/// A row: what it is, how many digits behind the point, and where the figure is.
const ROWS: [(&str, usize, Get); 18] = [
    ("plain HTTP, 64 clients: requests/s", 0, |f| Some(f.plain_rate)),
    ("p50, ms", 2, |f| Some(f.plain_p50_ms)),
    ("p99, ms", 2, |f| Some(f.plain_p99_ms)),
    ("CPU s per 10,000 requests", 2, |f| f.plain_cpu),
    ("CONNECT, 64 clients: tunnels/s", 0, |f| Some(f.connect_rate)),
    ("CPU s per 10,000 tunnels", 2, |f| f.connect_cpu),
    ("8 bulk tunnels, down: Gbit/s", 1, |f| f.down_gbits),
    ("up: Gbit/s", 1, |f| f.up_gbits),
    ("CPU s per GB, down", 2, |f| f.down_cpu),
    ("up", 2, |f| f.up_cpu),
    ("octets of memory per idle tunnel: fresh", 0, |f| f.idle_fresh),
    ("after 64 KiB", 0, |f| f.idle_used),
    ("allowlist of LIST0 names, 16 clients: requests/s", 0, |f| f.list_rates[0]),
    ("LIST1 names", 0, |f| f.list_rates[1]),
    ("LIST2 names", 0, |f| f.list_rates[2]),
    ("start with START names: ms", 0, |f| f.start_ms),
    ("octets of log per request", 0, |f| f.log_octets),
    ("requests/s with the log / without", 2, |f| f.log_cost),
];

/// The figures of all rounds.
#[derive(Debug)]
pub struct Report(Vec<(Kind, String, Vec<Figures>)>);

impl Report {
    /// For these, with what they say of their versions.
    pub fn new(kinds: &[(Kind, String)]) -> Self {
        Self(kinds.iter().map(|(kind, version)| (*kind, version.clone(), Vec::new())).collect())
    }

    /// Takes in one round of one of them.
    pub fn add(&mut self, kind: Kind, figures: Figures) {
        let column = self.0.iter_mut().find(|column| column.0 == kind);
        column.into_iter().for_each(|(_, _, rounds)| rounds.push(figures.clone()));
    }

    pub fn to_markdown(&self, plan: &Plan) -> String {
        let ours = self.0.iter().find(|column| column.0 == Kind::Egret);
        let others = || self.0.iter().filter(|column| !matches!(column.0, Kind::Direct | Kind::Egret));
        let mut head: Vec<String> = self.0.iter().map(|column| column.0.name().to_owned()).collect();
        head.extend(ours.iter().flat_map(|_| others()).map(|column| format!("egret / {}", column.0.name())));
        let mut out = format!(
            "{}\n\n| | {} |\n|---|{}\n",
            self.about(plan),
            head.join(" | "),
            "---|".repeat(head.len())
        );
        for (name, digits, get) in ROWS {
            let mut name = name.replace("START", &plan.start_list.to_string());
            for (at, names) in plan.lists.iter().enumerate() {
                name = name.replace(&format!("LIST{at}"), &names.to_string());
            }
            let medians = self.0.iter().map(|column| median(column.2.iter().filter_map(get).collect()));
            let mut cells: Vec<String> = medians.map(|value| cell(value, digits)).collect();
            for ((_, _, mine), (_, _, theirs)) in
                ours.iter().flat_map(|ours| others().map(move |o| (ours, o)))
            {
                let ratios = mine.iter().zip(theirs).filter_map(|(a, b)| Some(get(a)? / get(b)?));
                cells.push(cell(median(ratios.collect()), 2));
            }
            let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
        }
        out
    }

    /// What the figures are of.
    fn about(&self, plan: &Plan) -> String {
        let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = file("/proc/cpuinfo");
        let model =
            cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|m| m.1));
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let versions: Vec<&str> =
            self.0.iter().skip_while(|c| c.0 == Kind::Direct).map(|c| c.1.as_str()).collect();
        format!(
            "{}. {cores} cores ({}), Linux {}. Medians of {} rounds, {:?} for each measure; ratios are medians \
             of the rounds' own.",
            versions.join("; "),
            model.unwrap_or("of an unknown kind"),
            file("/proc/sys/kernel/osrelease").trim(),
            plan.rounds,
            plan.time,
        )
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle)?;
    if values.len() % 2 == 1 { Some(*upper) } else { Some((upper + values.get(middle - 1)?) / 2.0) }
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.filter(|value| value.is_finite()).map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}
