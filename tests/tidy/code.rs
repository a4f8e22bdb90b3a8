//! Reads Rust as text: words, functions, and what is comment, literal or test.

pub struct Token<'a> {
    pub text: &'a str,
    pub line: usize,
}

/// Words, `::`, and every other visible character on its own.
pub fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !is_word_char(c)).unwrap_or(rest.len());
            let length = match first {
                _ if word > 0 => word,
                ':' if rest.starts_with("::") => 2,
                other => other.len_utf8(),
            };
            out.push(Token { text: &rest[..length], line: number + 1 });
            rest = rest[length..].trim_start();
        }
    }
    out
}

pub fn text_at<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

pub fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub fn is_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word_char)
}

/// The lines on which a word or path stands on its own.
pub fn lines_with(code: &str, word: &str) -> Vec<usize> {
    code.lines().enumerate().filter(|(_, line)| has_word(line, word)).map(|(number, _)| number + 1).collect()
}

pub fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// The functions of a file: line, name, length in lines.
pub fn functions(code: &str) -> Vec<(usize, String, usize)> {
    let mut out = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].chars().next_back().is_some_and(is_word_char) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| is_word_char(*c)).collect();
        let end = item_end(code, at);
        if !name.is_empty() && code[..end].ends_with('}') {
            let line = code[..at].matches('\n').count() + 1;
            out.push((line, name, code[at..end].matches('\n').count() + 1));
        }
    }
    out
}

/// Where the item that begins at `at` ends: behind its block or its semicolon.
pub fn item_end(code: &str, at: usize) -> usize {
    let mut depth = 0i32;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    return at + offset + 1;
                }
            }
            ';' if depth == 0 => return at + offset + 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks the items that `#[cfg(test)]` stands before.
pub fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(at) = out.find(MARK) {
        let end = item_end(&out, at + MARK.len());
        out.replace_range(at..end, &blank(&out[at..end]));
    }
    out
}

/// Blanks comments and what stands in literals.
pub fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = comment(rest).or_else(|| literal(rest, out.chars().next_back()));
        match length {
            Some(length) => out.push_str(&blank(&rest[..length])),
            None => out.push(first),
        }
        rest = &rest[length.unwrap_or(first.len_utf8())..];
    }
    out
}

pub fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// The length of a comment that begins here.
pub fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.starts_with("/*").then(|| text.find("*/").map_or(text.len(), |end| end + 2))
}

/// The length of a string or character that begins here; `before` is the character before it.
pub fn literal(text: &str, before: Option<char>) -> Option<usize> {
    if text.starts_with('"') {
        return Some(quoted(text, '"'));
    }
    let raw = text.strip_prefix('r').filter(|_| !before.is_some_and(|c| is_word_char(c) && c != 'b'));
    if let Some(rest) = raw {
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        if rest[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let begin = 1 + hashes + 1;
            return Some(text[begin..].find(&close).map_or(text.len(), |end| begin + end + close.len()));
        }
    }
    let inner = text.strip_prefix('\'')?;
    // A quote that is not closed after one character is a lifetime.
    let closes = inner.starts_with('\\') || inner.chars().nth(1) == Some('\'');
    closes.then(|| quoted(text, '\''))
}

pub fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
