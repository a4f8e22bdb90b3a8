//! Small readers of text that several formats share.

/// Text from outside with nothing in it but printable ASCII.
pub(super) fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    text.chars().map(|c| if is_plain(c) { c.to_string() } else { c.escape_default().to_string() }).collect()
}

/// The line of a place in a text, from 1.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&octet| octet == b'\n').count() + 1
}

/// Puts variables in place of `${NAME}`; what is not known stays.
pub(super) fn expand<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, after)) = behind.split_once('}') else {
            out.push_str("${");
            rest = behind;
            continue;
        };
        match value(name) {
            Some(known) => out.push_str(known),
            None => out.push_str(&format!("${{{name}}}")),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
