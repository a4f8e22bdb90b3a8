//! Tables for people: columns as wide as their contents.

/// A line of headings, then one a row.
pub(super) fn table<const N: usize>(headings: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let heading = headings.map(str::to_owned);
    let lines: Vec<_> = std::iter::once(heading).chain(rows).collect();
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.len().max(*width);
        }
    }
    let mut out = String::new();
    for line in &lines {
        let padded = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = ["box", "[2001:db8::1]:443", "2026-01-01T00:00:00Z"].map(str::to_owned);
        let text = table(&["SANDBOX", "DESTINATION", "SEEN"], [row].into_iter());
        let wanted = "SANDBOX  DESTINATION        SEEN\nbox      [2001:db8::1]:443  2026-01-01T00:00:00Z\n";
        assert_eq!(text, wanted);
    }
}
