//! Where a piece of configuration stands, and what is wrong with it.
//!
//! Problems are collected, never thrown one at a time, so that a person sees all of them at once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A text file as read, with the name under which messages and audit records cite it.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    name: Arc<str>,
    text: String,
    /// Offset of the first byte of each line.
    lines: Vec<usize>,
}

/// A place in a file; lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl SourceFile {
    /// Takes a file's text under the name that messages shall show.
    #[must_use]
    pub fn new(name: &str, text: String) -> Arc<Self> {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(ends).collect();
        Arc::new(Self { name: name.into(), text, lines })
    }

    /// The name that messages show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a byte offset.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let line = self.lines.partition_point(|&start| start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }

    /// `name:line` of a byte offset, as audit records cite a rule.
    #[must_use]
    pub fn cite(&self, offset: usize) -> Arc<str> {
        format!("{}:{}", self.name, self.position(offset).line).into()
    }
}

/// Does a problem keep the configuration from loading?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused whole.
    Error,
    /// Loads, but probably not what was meant.
    Warning,
}

/// One thing wrong with a configuration, where, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file and the offending bytes in it, unless the problem has no place.
    pub place: Option<(Arc<SourceFile>, Range<usize>)>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Must the text at the place not be shown, because it holds a secret?
    pub secret: bool,
}

/// `file:line:column: message (help)`, on one line.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, span)) = &self.place {
            let Position { line, column } = file.position(span.start);
            write!(f, "{}:{line}:{column}: ", file.name())?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// All problems of one load, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Adds an error at a place, with what to write instead.
    pub fn error(&mut self, at: &Spot, message: impl Into<String>, help: impl Into<String>) {
        self.push(at.problem(Severity::Error, message.into(), help.into()));
    }

    /// Adds an error at a place whose text is a secret and must not be shown.
    pub fn secret_error(&mut self, at: &Spot, message: impl Into<String>, help: impl Into<String>) {
        let problem = at.problem(Severity::Error, message.into(), help.into());
        self.push(Problem { secret: true, ..problem });
    }

    /// Adds a warning at a place, with what to write instead.
    pub fn warning(&mut self, at: &Spot, message: impl Into<String>, help: impl Into<String>) {
        self.push(at.problem(Severity::Warning, message.into(), help.into()));
    }

    /// Adds an error that stands nowhere in a file, such as one that can't be read.
    pub fn unplaced(&mut self, message: impl Into<String>) {
        self.push(Problem {
            severity: Severity::Error,
            place: None,
            message: message.into(),
            help: None,
            secret: false,
        });
    }

    /// Orders them as a person reads files: without a place first, then by file and place.
    pub fn sort(&mut self) {
        self.0.sort_by_key(|problem| {
            problem.place.as_ref().map(|(file, span)| (file.name().to_owned(), span.start))
        });
    }

    /// Is there an error among them?
    #[must_use]
    pub fn any_error(&self) -> bool {
        self.0.iter().any(|p| p.severity == Severity::Error)
    }

    /// The problems in order.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

/// One problem a line.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

/// Bytes of a file that a problem can point at.
#[derive(Debug, Clone)]
pub struct Spot {
    file: Arc<SourceFile>,
    span: Range<usize>,
}

impl Spot {
    /// The bytes `span` of `file`.
    #[must_use]
    pub fn new(file: &Arc<SourceFile>, span: Range<usize>) -> Self {
        Self { file: Arc::clone(file), span }
    }

    /// `file:line` of the first byte.
    #[must_use]
    pub fn cite(&self) -> Arc<str> {
        self.file.cite(self.span.start)
    }

    fn problem(&self, severity: Severity, message: String, help: String) -> Problem {
        let help = (!help.is_empty()).then_some(help);
        let place = Some((Arc::clone(&self.file), self.span.clone()));
        Problem { severity, place, message, help, secret: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let file = SourceFile::new("f", "a\nbü = 1\n".to_owned());
        assert_eq!(file.position(0), Position { line: 1, column: 1 });
        assert_eq!(file.position(5), Position { line: 2, column: 3 });
        assert_eq!(file.position(999).line, 3);
        assert_eq!(&*file.cite(2), "f:2");
    }
}
