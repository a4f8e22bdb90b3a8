//! What a reader of a document does with its code blocks, in order.

use std::fs;
use std::path::Path;

/// One thing to do, with the line of the document where it stands.
#[derive(Debug)]
pub struct Step {
    pub line: usize,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    /// A `toml` or `ini` block that begins with a comment `# NAME.toml` or `# ~/NAME`: a file of that name.
    File { name: String, text: String },
    /// In a `console` block: what to type, and the lines that it prints.
    Command { text: String, output: Vec<String> },
    /// A `json` block: a record that the audit file holds then.
    Record(String),
}

/// All steps of a document, by its path from the root.
pub fn of(document: &str) -> Vec<Step> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{document}: {error}"));
    let mut steps = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((opening, line)) = lines.next() {
        let Some(language) = opening.strip_prefix("```") else { continue };
        let block: Vec<&str> =
            lines.by_ref().map(|(text, _)| text).take_while(|&text| text != "```").collect();
        match language {
            "toml" | "ini" => {
                let is_file = |name: &&str| name.starts_with("~/") || name.ends_with(".toml");
                let name = block[0].strip_prefix("# ").filter(is_file);
                let file = |name: &str| What::File { name: name.to_owned(), text: block.join("\n") + "\n" };
                steps.extend(name.map(|name| Step { line: line + 1, what: file(name) }));
            }
            "console" => commands(&block, line + 1, &mut steps),
            "json" => steps.push(Step { line: line + 1, what: What::Record(block.join("\n")) }),
            _ => {}
        }
    }
    assert!(!steps.is_empty(), "{document} has no steps: this looks in the wrong place");
    steps
}

fn commands(block: &[&str], first: usize, steps: &mut Vec<Step>) {
    let mut goes_on = false;
    for (text, line) in block.iter().zip(first..) {
        let continues = std::mem::replace(&mut goes_on, text.ends_with('\\'));
        if let (true, Some(Step { what: What::Command { text: command, .. }, .. })) =
            (continues, steps.last_mut())
        {
            command.push('\n');
            command.push_str(text);
        } else if let Some(command) = text.strip_prefix("$ ") {
            let what = What::Command { text: command.to_owned(), output: Vec::new() };
            steps.push(Step { line, what });
        } else if let Some(Step { what: What::Command { output, .. }, .. }) = steps.last_mut() {
            output.push((*text).to_owned());
        }
    }
    for step in steps {
        if let What::Command { output, .. } = &mut step.what {
            output.truncate(output.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
        }
    }
}
