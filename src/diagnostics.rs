//! Shows configuration problems to a person: `file:line:column`, the offending text underlined,
//! and what to write instead.

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use egret_policy::{Position, Problem, Problems, Severity};

/// All problems as text for a terminal, plain or coloured.
#[must_use]
pub fn render(problems: &Problems, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for problem in problems.iter() {
        out.push_str(&render_one(problem, &renderer));
        out.push_str("\n\n");
    }
    out
}

fn render_one(problem: &Problem, renderer: &Renderer) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(problem.message.as_str());
    let Some((file, span)) = &problem.place else {
        return renderer.render(&[annotate_snippets::Group::with_title(title)]);
    };
    if problem.secret {
        let Position { line, column } = file.position(span.start);
        let mut group = title.element(Origin::path(file.name()).line(line).char_column(column));
        if let Some(help) = &problem.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        return renderer.render(&[group]);
    }
    let end = span.end.max(span.start).min(file.text().len());
    let mark = AnnotationKind::Primary.span(span.start.min(end)..end);
    let snippet = Snippet::source(file.text()).path(file.name()).annotation(mark);
    let mut group = title.element(snippet);
    if let Some(help) = &problem.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_policy::{SourceFile, Spot};

    #[test]
    fn shows_place_text_and_help() {
        let file = SourceFile::new("egret.toml", "[listen]\nprxy = 1\n".to_owned());
        let mut problems = Problems::default();
        problems.error(&Spot::new(&file, 9..13), "unknown key `prxy`", "did you mean `proxy`?");
        let text = render(&problems, false);
        for part in ["egret.toml:2:1", "prxy = 1", "^^^^", "did you mean `proxy`?"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
    #[test]
    fn a_secret_is_placed_but_not_shown() {
        let file = SourceFile::new("egret.toml", "[upstream]\nproxy = \"hunter2\"\n".to_owned());
        let mut problems = Problems::default();
        problems.secret_error(&Spot::new(&file, 19..28), "it holds a password", "put it into a file");
        let text = render(&problems, false);
        assert!(!text.contains("hunter2"), "{text}");
        for part in ["egret.toml:2:9", "it holds a password", "put it into a file"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
