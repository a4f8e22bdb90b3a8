//! Path globs of rules, and the form of a request path that they are matched against.
//!
//! Nothing here changes what is forwarded: the original bytes go to the origin.

use std::fmt;

/// A path glob: segments, where `*` is one segment (or a run of characters within one) and `**`
/// any number of segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathGlob {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Any,
    /// The literal parts between stars: `["a", "b"]` is `a*b`.
    Parts(Vec<String>),
}

/// Why some text is not a path glob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GlobError {
    #[error("a path begins with a slash")]
    NoSlash,
    #[error("`**` stands alone between slashes")]
    DoubleStar,
    #[error("a path glob holds a query, a fragment, a backslash or a byte outside visible ASCII")]
    Character,
    #[error("a path glob is written without percent-encoding of plain characters and without dot segments")]
    NotNormal,
}

impl PathGlob {
    /// Parses a glob such as `/repos/*/releases/**`.
    ///
    /// # Errors
    /// See [`GlobError`].
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#' | b'\\')) {
            return Err(GlobError::Character);
        }
        let normal = normalise(text.as_bytes()).map_err(|_| GlobError::NotNormal)?;
        if normal != text {
            return Err(if text.starts_with('/') { GlobError::NotNormal } else { GlobError::NoSlash });
        }
        let rest = text.strip_prefix('/').ok_or(GlobError::NoSlash)?;
        let segments = rest.split('/').map(|segment| match segment {
            "**" => Ok(Segment::Any),
            s if s.contains("**") => Err(GlobError::DoubleStar),
            s => Ok(Segment::Parts(s.split('*').map(str::to_owned).collect())),
        });
        Ok(Self { text: text.to_owned(), segments: segments.collect::<Result<_, _>>()? })
    }

    /// Does it match a normalised path?
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some(rest) = path.strip_prefix('/') else {
            return false;
        };
        // reached[i]: the first i segments of the glob match what has been read of the path.
        let mut reached = vec![false; self.segments.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        self.skip_any(&mut reached);
        for part in rest.split('/') {
            let mut next = vec![false; reached.len()];
            for (i, segment) in self.segments.iter().enumerate() {
                if !reached.get(i).copied().unwrap_or_default() {
                    continue;
                }
                let target = match segment {
                    Segment::Any => i,
                    Segment::Parts(parts) if segment_matches(parts, part) => i + 1,
                    Segment::Parts(_) => continue,
                };
                if let Some(cell) = next.get_mut(target) {
                    *cell = true;
                }
            }
            self.skip_any(&mut next);
            reached = next;
        }
        reached.last().copied().unwrap_or_default()
    }

    /// `**` also matches no segment at all.
    fn skip_any(&self, reached: &mut [bool]) {
        for (i, segment) in self.segments.iter().enumerate() {
            if *segment == Segment::Any
                && reached.get(i).copied().unwrap_or_default()
                && let Some(next) = reached.get_mut(i + 1)
            {
                *next = true;
            }
        }
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Matches `a*b` style parts; a lone star wants at least one character.
fn segment_matches(parts: &[String], segment: &str) -> bool {
    let [first, middle @ .., last] = parts else {
        return parts.first().is_some_and(|only| only == segment);
    };
    if first.is_empty() && middle.is_empty() && last.is_empty() {
        return !segment.is_empty();
    }
    let Some(rest) = segment.strip_prefix(first.as_str()) else {
        return false;
    };
    let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
        return false;
    };
    for part in middle {
        match rest.split_once(part.as_str()) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

/// The path holds something that servers read differently, so no path rule can judge it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path holds an encoded slash, a backslash, NUL, a broken escape or an ambiguous dot segment")]
pub struct AmbiguousPath;

/// The form that globs are matched against: unreserved octets decoded, other escapes in upper
/// case, dot segments removed (RFC 3986 section 6.2.2). An empty path is `/`.
///
/// # Errors
/// [`AmbiguousPath`]; such a path matches no path rule.
pub fn normalise(path: &[u8]) -> Result<String, AmbiguousPath> {
    let decoded = decode_unreserved(path)?;
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = decoded.strip_prefix('/').unwrap_or(&decoded).split('/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let plain = segment.split(';').next().unwrap_or(segment);
        let dots = matches!(plain, "." | "..");
        // Some servers merge slashes, or cut parameters off, before they remove dot segments.
        if dots && (plain.len() < segment.len() || kept.last() == Some(&"")) {
            return Err(AmbiguousPath);
        }
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    Ok(format!("/{}", kept.join("/")))
}

fn decode_unreserved(path: &[u8]) -> Result<String, AmbiguousPath> {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    loop {
        rest = match rest {
            [] => return Ok(out),
            [b'%', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let octet = hex_value(*high) << 4 | hex_value(*low);
                match octet {
                    b'/' | b'\\' | 0 => return Err(AmbiguousPath),
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        out.push(char::from(octet));
                    }
                    _ => {
                        out.push('%');
                        out.push(char::from(high.to_ascii_uppercase()));
                        out.push(char::from(low.to_ascii_uppercase()));
                    }
                }
                after
            }
            // A stray percent sign could form a new escape with what is decoded after it.
            [b'\\' | b'%' | 0, ..] => return Err(AmbiguousPath),
            [octet, after @ ..] => {
                out.push(char::from(*octet));
                after
            }
        }
    }
}

const fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        b'A'..=b'F' => digit - b'A' + 10,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn globs() {
        let matches = |glob: &str, path: &str| PathGlob::parse(glob).unwrap().matches(path);
        assert!(matches("/a/*/c", "/a/b/c"));
        assert!(!matches("/a/*/c", "/a/b/b/c"));
        assert!(!matches("/a/*", "/a/"));
        assert!(matches("/a/**", "/a") && matches("/a/**", "/a/") && matches("/a/**", "/a/b/c"));
        assert!(!matches("/a/**", "/ab"));
        assert!(matches("/**/info/refs", "/x/y/info/refs") && matches("/**/info/refs", "/info/refs"));
        assert!(matches("/v*.tar.gz", "/v1.2.tar.gz") && !matches("/v*.tar.gz", "/v1.2.zip"));
        assert!(matches("/a*b*c", "/axbyc") && !matches("/a*b*c", "/axc"));
        assert!(!matches("/a*a", "/a"));
        assert!(matches("/", "/") && !matches("/", "/x"));
        for bad in ["a", "/a**", "/a/../b", "/%41", "/a?b", "/a\\b", "/a b"] {
            assert!(PathGlob::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn normal_forms() {
        for (path, normal) in [
            ("", "/"),
            ("/a/./b/../c", "/a/c"),
            ("/a/b/..", "/a/"),
            ("/../../x", "/x"),
            ("/%2e%2E/x", "/x"),
            ("/%41%7e%3a", "/A~%3A"),
            ("//a", "//a"),
            ("/%252f", "/%252f"),
        ] {
            assert_eq!(normalise(path.as_bytes()).as_deref(), Ok(normal), "{path}");
        }
        for path in
            ["/a%2fb", "/a%5Cb", "/a%00", "/a\\b", "/a%zz", "/%%32f", "/a//../b", "/a/..;/b", "/a/.;x/b"]
        {
            assert_eq!(normalise(path.as_bytes()), Err(AmbiguousPath), "{path}");
        }
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(path in "/[a-c./%2-6]{0,20}") {
            if let Ok(once) = normalise(path.as_bytes()) {
                prop_assert_eq!(normalise(once.as_bytes()), Ok(once));
            }
        }

        #[test]
        fn any_bytes(path in proptest::collection::vec(any::<u8>(), 0..60), glob in "/[ab*/]{0,10}") {
            if let (Ok(path), Ok(glob)) = (normalise(&path), PathGlob::parse(&glob)) {
                let _ = glob.matches(&path);
            }
        }
    }
}
