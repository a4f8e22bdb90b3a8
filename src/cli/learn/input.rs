//! Reads audit files line by line, in bounded memory, and names the lines that are damaged.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::{BAD_INPUT, FAILED, Stop, complain, count, stop};
use crate::learn::{Rules, Tally};
use crate::ledger::Sighting;

/// Bytes of a line; a longer one is damage, as it is for the ledger.
const LINE: u64 = 1 << 20;
/// Damaged lines that are told one by one.
const TOLD: u64 = 10;
/// How a file begins that gzip has made.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Which records count.
pub(super) struct Filter {
    pub sandbox: Option<String>,
    pub policy: Option<String>,
    /// As records write times.
    pub since: Option<String>,
}

impl Filter {
    fn takes(&self, sighting: &Sighting) -> bool {
        let same = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        same(&self.sandbox, &sighting.sandbox)
            && same(&self.policy, &sighting.policy)
            && self.since.as_deref().is_none_or(|since| sighting.ts.as_str() >= since)
    }
}

/// Reads all files; `-` is standard input. Damage ends it, unless it is skipped.
pub(super) fn read(files: &[PathBuf], filter: &Filter, skip: bool, rules: &Rules) -> Result<Tally, Stop> {
    let mut tally = Tally::default();
    let mut damaged = 0_u64;
    for path in files {
        damaged += read_file(path, 0, |sighting| {
            if filter.takes(sighting) { add(&mut tally, sighting, rules) } else { Ok(()) }
        })?;
    }
    match damaged {
        0 => Ok(tally),
        lines if skip => {
            let were = if lines == 1 { "was" } else { "were" };
            complain(&format!(
                "{} {were} left out; what was told there is missing",
                count(lines, "damaged line")
            ));
            Ok(tally)
        }
        lines => {
            let message = format!(
                "{}, so nothing was learned; mend the files, or leave such lines out with --skip-damaged",
                count(lines, "damaged line")
            );
            Err(stop(BAD_INPUT, &message))
        }
    }
}

/// Reads what a regular file has behind so many octets. Damage ends it.
pub(super) fn read_behind(path: &Path, octets: u64, rules: &Rules) -> Result<Tally, Stop> {
    let mut tally = Tally::default();
    match read_file(path, octets, |sighting| add(&mut tally, sighting, rules))? {
        0 => Ok(tally),
        _ => Err(stop(BAD_INPUT, "the audit of this run is damaged, so nothing was learned")),
    }
}

fn add(tally: &mut Tally, sighting: &Sighting, rules: &Rules) -> Result<(), Stop> {
    let added = tally.add(sighting, |address| rules.reached(address));
    added.map_err(|full| stop(FAILED, &full.to_string()))
}

/// Hands on what one file tells behind so many octets; the number of its damaged lines.
fn read_file(
    path: &Path,
    behind: u64,
    mut take: impl FnMut(&Sighting) -> Result<(), Stop>,
) -> Result<u64, Stop> {
    let name = if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() };
    let unreadable = |error: io::Error| {
        let help = match error.kind() {
            io::ErrorKind::NotFound => {
                "; name the audit files, or with --config the configuration that says where they are"
            }
            _ => "",
        };
        stop(BAD_INPUT, &format!("{name} can't be read: {error}{help}"))
    };
    let mut input: Box<dyn BufRead> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let mut file = File::open(path).map_err(unreadable)?;
        if behind > 0 {
            file.seek(SeekFrom::Start(behind)).map_err(unreadable)?;
        }
        Box::new(BufReader::with_capacity(1 << 16, file))
    };
    if input.fill_buf().map_err(unreadable)?.starts_with(GZIP) {
        let message = format!("{name} is compressed; unpack it: zcat FILE | egret learn -");
        return Err(stop(BAD_INPUT, &message));
    }
    let (mut line, mut number, mut damaged) = (Vec::new(), 0_u64, 0_u64);
    while let Some(whole) = next_line(&mut *input, &mut line).map_err(unreadable)? {
        number += 1;
        let what = match Sighting::parse(&line) {
            Ok(Some(sighting)) if whole => {
                take(&sighting)?;
                continue;
            }
            Ok(None) if whole => continue,
            Err(error) if whole => error.to_string(),
            _ if line.len() as u64 >= LINE => "this line is longer than any record".to_owned(),
            _ => "this line has no end: it is being written, or was cut".to_owned(),
        };
        damaged += 1;
        if damaged <= TOLD {
            complain(&format!("{name}:{number}: {what}"));
        }
    }
    Ok(damaged)
}

/// Reads the next line without its end, and tells whether it is whole; `None` at the end. Of an
/// endless line only the beginning is kept.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    input.take(LINE).read_until(b'\n', line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(true));
    }
    if line.len() as u64 >= LINE {
        input.skip_until(b'\n')?;
    }
    Ok(Some(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_counted() {
        let long = "x".repeat(3 << 20);
        let text = format!("one\n\n{long}\ntwo\nrest");
        let mut input = text.as_bytes();
        let (mut line, mut found) = (Vec::new(), Vec::new());
        while let Some(whole) = next_line(&mut input, &mut line).unwrap() {
            assert!(line.len() as u64 <= LINE);
            found.push((line.len(), whole));
        }
        assert_eq!(found, [(3, true), (0, true), (1 << 20, false), (3, true), (4, false)]);
    }
}
