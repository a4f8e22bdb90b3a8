//! Worker processes, each in a closed world: rows by name in, problems out, a line each.

use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, ChildStdout, ExitCode, Stdio};
use std::sync::{Condvar, Mutex};

use crate::bench::{Bench, Problems};
use crate::corpus::{Case, Row};
use crate::support::world;
use crate::{addresses, dns, targets, wire};

/// The worker's side: runs what standard input names until it ends.
pub fn serve(cases: &[Case]) -> ExitCode {
    let files = tempfile::tempdir().expect("a temporary folder");
    let mut bench = Bench::open(files.path(), cases);
    for line in std::io::stdin().lines() {
        let Ok(name) = line else { break };
        let result = match &mut bench {
            Ok(bench) => run(bench, cases, &name),
            Err(error) => Err(error.clone()),
        };
        let line = serde_json::to_string(&result).expect("strings are JSON");
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn run(bench: &mut Bench, cases: &[Case], name: &str) -> Result<Problems, String> {
    let case = cases.iter().find(|case| case.name() == name).ok_or_else(|| format!("no row {name}"))?;
    let result = catch_unwind(AssertUnwindSafe(|| match &case.row {
        Row::Target(row) => targets::run(bench, row),
        Row::Wire(row) => wire::run(bench, row),
        Row::Dns(row) => dns::run(bench, row),
        Row::Address(row) => addresses::run(bench, row),
        Row::Rule(_) => Err("rows of rules need no worker".to_owned()),
    }));
    let mut result =
        result.unwrap_or_else(|_| Err("the harness itself failed; see standard error".to_owned()));
    if let (Ok(problems), Some(death)) = (&mut result, bench.death()) {
        problems.push(death);
    }
    result
}

/// The suite's side: at most so many workers, started when they are needed.
pub struct Pool {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    idle: Vec<Worker>,
    may_start: usize,
}

struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Pool {
    pub fn new(most: usize) -> Self {
        Self { state: Mutex::new(State { idle: Vec::new(), may_start: most }), freed: Condvar::new() }
    }

    /// Runs one row in a worker that has nothing else to do. One that broke is replaced.
    pub fn run(&self, name: &str) -> Result<Problems, String> {
        let result = self.take().and_then(|mut worker| worker.ask(name).map(|answer| (answer, worker)));
        let mut state = self.state.lock().unwrap();
        let answer = match result {
            Ok((answer, worker)) => {
                state.idle.push(worker);
                answer
            }
            Err(error) => {
                state.may_start += 1;
                Err(error)
            }
        };
        self.freed.notify_one();
        answer
    }

    fn take(&self) -> Result<Worker, String> {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(worker) = state.idle.pop() {
                return Ok(worker);
            }
            if state.may_start > 0 {
                state.may_start -= 1;
                break;
            }
            state = self.freed.wait(state).unwrap();
        }
        drop(state);
        Worker::start()
    }
}

impl Worker {
    fn start() -> Result<Self, String> {
        let mut child = world::command()?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a worker does not start: {error}"))?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, output })
    }

    fn ask(&mut self, name: &str) -> Result<Result<Problems, String>, String> {
        let broke = |error: String| format!("the worker broke: {error}");
        let input = self.child.stdin.as_mut().expect("piped");
        writeln!(input, "{name}").map_err(|error| broke(error.to_string()))?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| broke(error.to_string()))?;
        serde_json::from_str(&line).map_err(|error| broke(format!("{error}: {line:?}")))
    }
}

impl Drop for Worker {
    /// The end of its input ends it, and with it its proxy.
    fn drop(&mut self) {
        let _ = self.child.wait(); // which closes its input first
    }
}
