//! The tree keeps its own rules: which module may name which, how big files and functions get,
//! and that the documents speak of what exists. See `ARCHITECTURE.md` for the why.
//!
//! Reads text alone; compiles and runs nothing. A failure lists every offence with its file, its
//! line and what to do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a test may fail loudly"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What each module under `src/` may name of the others: a module with all that is in it, or
/// single items. A module that stands here not at all may not exist.
const IMPORTS: &[(&str, &[&str])] = &[
    ("audit", &[]),
    ("chain", &[]),
    ("client_hello", &[]),
    ("client_tls", &["identity"]),
    // The commands put everything together; that is their whole work.
    ("cli", &["*"]),
    (
        "config",
        &[
            "chain::Chain",
            "chain::Credentials",
            "chain::NoProxy",
            "chain::Parent",
            "client_tls",
            "dial::is_local",
            "identity::PublicKey",
            "identity::TokenKeys",
            "identity::Trust",
            "resolve::DnsServers",
            "resolve::ResolverSettings",
            "resolve::ServerSpec",
        ],
    ),
    (
        "control",
        &[
            "audit",
            "egress",
            "identity::Entry",
            "identity::Put",
            "identity::RegistryError",
            "identity::Revocation",
            "identity::Wanted",
            "identity::WantedBody",
            "identity::is_token_id",
            "ledger",
            "reload",
        ],
    ),
    ("diagnostics", &[]),
    ("dial", &[]),
    ("dns_message", &[]),
    (
        "egress",
        &[
            "audit",
            "chain",
            "client_hello",
            "client_tls::ClientTls",
            "config::Timeouts",
            "dial",
            "dns_message",
            "forward",
            "identity",
            "limit",
            "metrics",
            "redirect",
            "relay",
            "resolve",
            "stream",
        ],
    ),
    (
        "entry",
        &[
            "dns_message",
            "client_hello",
            "egress",
            "forward::BodySender",
            "forward::OutBody",
            "forward::SendError",
            "forward::Upstream",
            "http1",
            "redirect",
            "socks5",
            "stream",
        ],
    ),
    ("forward", &["chain::Way", "http1"]),
    ("http1", &[]),
    ("identity", &[]),
    ("learn", &["ledger::Sighting", "ledger::Verdict"]),
    ("ledger", &["audit::Tap", "audit::Timestamp", "audit::Written"]),
    ("lib", &[]),
    ("limit", &["relay::Direction", "relay::Meter"]),
    ("main", &[]),
    ("metrics", &["audit::Audit", "relay::Counters"]),
    ("redirect", &[]),
    ("registry", &["egress::Errand", "learn::Base", "learn::Rules", "learn::doubt"]),
    ("relay", &["stream"]),
    ("reload", &["audit", "config", "egress"]),
    ("run", &["audit::Tap", "audit::Written", "server::Door", "server::listen"]),
    // DNS servers are spoken to through the one place that opens sockets.
    (
        "resolve",
        &["dial::ConfiguredAddr", "dial::configured_tcp", "dial::configured_udp", "dns_message::Service"],
    ),
    ("server", &["dial::keep_alive", "entry"]),
    ("socks5", &[]),
    ("stream", &[]),
];

/// Names that only some modules or files may use, whatever they import.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("TcpSocket", &["dial"], "outbound sockets are opened in src/dial.rs"),
    (
        "Socket::new",
        &["dial", "server", "src/cli/probe/socket.rs"],
        "sockets are made in src/dial.rs and src/server.rs, and where the probe looks for ways past them",
    ),
    (
        "hickory_resolver",
        &["dns_message", "resolve"],
        "names are looked up in src/resolve/, messages of clients are in src/dns_message/",
    ),
    ("axum", &["control"], "the control interface is the only server that is not ours"),
];

/// What the policy crate must not name, because it decides and does nothing else.
const NOT_IN_POLICY: &[&str] = &[
    "tokio",
    "hyper",
    "rustls",
    "async",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
];

/// Lines of code in a file: not blank, not a comment, not a test.
const FILE_BUDGET: usize = 500;
/// Lines of a function, from `fn` to its closing brace.
const FUNCTION_BUDGET: usize = 90;
/// Files and functions that may be bigger, with the reason.
const BIGGER: &[(&str, &str)] = &[];

/// Reasons that no test names yet, with the cause. Empty is the aim.
const UNTESTED: &[(&str, &str)] = &[("upstream_tls", "nothing in this version speaks TLS to a destination")];

/// A Rust file of the tree.
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    /// As it stands.
    text: String,
    /// The same with comments, literals and test code blanked; lines keep their numbers.
    code: String,
}

#[test]
fn modules_name_only_what_they_may() {
    let mut offences = Vec::new();
    for source in sources("src") {
        let own = module_of(&source.path);
        let Some((_, allowed)) = IMPORTS.iter().find(|(module, _)| *module == own) else {
            offences.push(format!(
                "{}:1: module `{own}` has no row; add one to IMPORTS in tests/tidy.rs",
                source.path
            ));
            continue;
        };
        for (line, name) in named_modules(&source) {
            let module = name.split("::").next().unwrap_or_default();
            let fits = |entry: &str| entry == "*" || entry == module || entry == name;
            if module != own && !allowed.iter().any(|entry| fits(entry)) {
                offences.push(format!(
                    "{}:{line}: `{own}` names `crate::{name}`; go through a module it may name ({}), or change the table in ARCHITECTURE.md and IMPORTS",
                    source.path,
                    allowed.join(", ")
                ));
            }
        }
        let owns = |owners: &[&str]| owners.contains(&own.as_str()) || owners.contains(&source.path.as_str());
        for (word, owners, why) in RESERVED.iter().filter(|(_, owners, _)| !owns(owners)) {
            for line in lines_with(&source.code, word) {
                offences.push(format!(
                    "{}:{line}: `{word}` outside {}: {why}",
                    source.path,
                    owners.join(", ")
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn the_table_has_no_row_for_a_module_that_is_gone() {
    let modules: BTreeSet<String> = sources("src").iter().map(|source| module_of(&source.path)).collect();
    let gone = IMPORTS.iter().filter(|(module, _)| !modules.contains(*module));
    report(
        gone.map(|(module, _)| {
            format!("tests/tidy.rs: IMPORTS has a row for `{module}`, which is gone; remove it")
        })
        .collect(),
    );
}

#[test]
fn the_policy_crate_does_no_io() {
    let mut offences = Vec::new();
    for source in sources("policy/src") {
        for word in NOT_IN_POLICY {
            for line in lines_with(&source.code, word) {
                offences.push(format!(
                    "{}:{line}: `{word}` in the policy crate; take it as a value from src/",
                    source.path
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn files_and_functions_stay_small() {
    let mut offences = Vec::new();
    for source in sources("src").iter().chain(&sources("policy/src")) {
        let size = source.code.lines().filter(|line| !line.trim().is_empty()).count();
        if size > FILE_BUDGET && !is_excused(&source.path) {
            offences.push(format!(
                "{}:1: {size} lines of code, more than {FILE_BUDGET}; make it a folder of the same name, or list it in BIGGER with a reason",
                source.path
            ));
        }
        for (line, name, length) in functions(&source.code) {
            if length > FUNCTION_BUDGET && !is_excused(&format!("{}:{name}", source.path)) {
                offences.push(format!(
                    "{}:{line}: fn {name} has {length} lines, more than {FUNCTION_BUDGET}; split it, or list \"{}:{name}\" in BIGGER with a reason",
                    source.path, source.path
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn every_file_says_what_it_is_for() {
    let all = sources("src").into_iter().chain(sources("policy/src"));
    let silent = all.filter(|source| !source.text.starts_with("//!"));
    report(
        silent.map(|source| format!("{}:1: open with `//!` and what the file is for", source.path)).collect(),
    );
}

#[test]
fn the_architecture_names_what_exists() {
    let mut offences = Vec::new();
    for (number, line) in prose("ARCHITECTURE.md") {
        for span in line.split('`').skip(1).step_by(2).filter(|span| is_path(span)) {
            if !root().join(span).exists() {
                offences.push(format!(
                    "ARCHITECTURE.md:{number}: `{span}` does not exist; correct the path or the text"
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn every_reason_is_documented_and_tested() {
    let documented = read("docs/reasons.md");
    let tests = test_text();
    let mut offences = Vec::new();
    for (line, variant, code) in reasons() {
        if !documented.contains(&format!("| `{code}` |")) {
            offences.push(format!(
                "policy/src/reason.rs:{line}: `{code}` has no row in docs/reasons.md; add one"
            ));
        }
        let excused = UNTESTED.iter().any(|(known, _)| *known == code);
        let tested = has_word(&tests, &code) || tests.contains(&format!("Reason::{variant}"));
        if !tested && !excused {
            offences.push(format!(
                "policy/src/reason.rs:{line}: no test names `{code}`; add one that provokes it"
            ));
        }
        if tested && excused {
            offences.push(format!("tests/tidy.rs: `{code}` is tested now; take it out of UNTESTED"));
        }
    }
    report(offences);
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut offences = Vec::new();
    for document in documents() {
        for (number, line) in prose(&document) {
            for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                if link.contains("://") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
                let target = if file.is_empty() {
                    document.clone()
                } else {
                    folder.join(file).to_string_lossy().into_owned()
                };
                let path = root().join(&target);
                if !path.exists() {
                    offences
                        .push(format!("{document}:{number}: the link to {link} leads nowhere; correct it"));
                } else if !anchor.is_empty() && !anchors(&path).contains(anchor) {
                    offences.push(format!(
                        "{document}:{number}: {target} has no heading for #{anchor}; correct it"
                    ));
                }
            }
        }
    }
    report(offences);
}

/// Fails with all offences at once.
fn report(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder, in order, relative to the root.
fn files(folder: &str) -> Vec<String> {
    let mut out = Vec::new();
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    for entry in entries {
        let path = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
        if root().join(&path).is_dir() {
            out.extend(files(&path));
        } else {
            out.push(path);
        }
    }
    out.sort();
    out
}

/// The Rust files below a folder that are not tests.
fn sources(folder: &str) -> Vec<Source> {
    let paths = files(folder).into_iter().filter(|path| path.ends_with(".rs") && !is_test_file(path));
    let found: Vec<_> = paths
        .map(|path| {
            let text = read(&path);
            let code = without_tests(&blanked(&text));
            Source { path, text, code }
        })
        .collect();
    assert!(!found.is_empty(), "no sources below {folder}: the test looks in the wrong place");
    found
}

/// Files that exist for tests only, by the names that this tree gives them.
fn is_test_file(path: &str) -> bool {
    let stem = path.trim_end_matches(".rs");
    path.contains("/tests/")
        || stem.ends_with("/tests")
        || stem.ends_with("_tests")
        || stem.ends_with("/properties")
        || stem.ends_with("/testing")
}

/// `src/audit/id.rs` belongs to `audit`, `src/dial.rs` to `dial`.
fn module_of(path: &str) -> String {
    let inside = path.trim_start_matches("src/");
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned()
}

fn is_excused(what: &str) -> bool {
    BIGGER.iter().any(|(known, _)| *known == what)
}

/// What a file names of this crate's modules, as `module` or `module::item`, with the line.
fn named_modules(source: &Source) -> Vec<(usize, String)> {
    let tokens = tokens(&source.code);
    let depth = source.path.trim_start_matches("src/").trim_end_matches("/mod.rs").split('/').count();
    let depth = if matches!(source.path.as_str(), "src/lib.rs" | "src/main.rs") { 0 } else { depth };
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        while text_at(&tokens, at) == "super" && text_at(&tokens, at + 1) == "::" {
            at += 2;
        }
        if text_at(&tokens, at) == "crate" && text_at(&tokens, at + 1) == "::" {
            at += 2;
        } else if at == start || (at - start) / 2 < depth {
            // Not a path, or one that stays inside the module.
            at = at.max(start + 1);
            continue;
        }
        let line = tokens[start].line;
        let mut paths = Vec::new();
        at = use_tree(&tokens, at, "", &mut paths);
        // The first two parts say it: the module, and the item if there is one.
        out.extend(paths.iter().map(|path| (line, path.split("::").take(2).collect::<Vec<_>>().join("::"))));
    }
    out
}

/// Reads `a::{b, c::D}` from a token on: all paths in it, and where it ends.
fn use_tree(tokens: &[Token<'_>], mut at: usize, before: &str, paths: &mut Vec<String>) -> usize {
    let join = |name: &str| if before.is_empty() { name.to_owned() } else { format!("{before}::{name}") };
    match text_at(tokens, at) {
        "{" => {
            at += 1;
            while !matches!(text_at(tokens, at), "}" | "") {
                let next = use_tree(tokens, at, before, paths);
                at = next.max(at + 1);
                while matches!(text_at(tokens, at), ",") {
                    at += 1;
                }
            }
            at + 1
        }
        "self" | "*" => {
            paths.push(before.to_owned());
            at + 1
        }
        name if is_word(name) => {
            let path = join(name);
            let follows = text_at(tokens, at + 2);
            if text_at(tokens, at + 1) == "::" && (is_word(follows) || matches!(follows, "{" | "*")) {
                return use_tree(tokens, at + 2, &path, paths);
            }
            paths.push(path);
            // `as` and its name say nothing new.
            if text_at(tokens, at + 1) == "as" { at + 3 } else { at + 1 }
        }
        _ => at,
    }
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// Words, `::`, and every other visible character on its own.
fn tokens(code: &str) -> Vec<Token<'_>> {
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

fn text_at<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_word(text: &str) -> bool {
    text.chars().next().is_some_and(is_word_char)
}

/// The lines on which a word or path stands on its own.
fn lines_with(code: &str, word: &str) -> Vec<usize> {
    code.lines().enumerate().filter(|(_, line)| has_word(line, word)).map(|(number, _)| number + 1).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// The functions of a file: line, name, length in lines.
fn functions(code: &str) -> Vec<(usize, String, usize)> {
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
fn item_end(code: &str, at: usize) -> usize {
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
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(at) = out.find(MARK) {
        let end = item_end(&out, at + MARK.len());
        out.replace_range(at..end, &blank(&out[at..end]));
    }
    out
}

/// Blanks comments and what stands in literals.
fn blanked(text: &str) -> String {
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

fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect()
}

/// The length of a comment that begins here.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.starts_with("/*").then(|| text.find("*/").map_or(text.len(), |end| end + 2))
}

/// The length of a string or character that begins here; `before` is the character before it.
fn literal(text: &str, before: Option<char>) -> Option<usize> {
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

fn quoted(text: &str, quote: char) -> usize {
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

/// The reasons as `policy/src/reason.rs` lists them: line, variant, code.
fn reasons() -> Vec<(usize, String, String)> {
    let text = read("policy/src/reason.rs");
    let row = |(number, line): (usize, &str)| {
        let (variant, rest) = line.trim().split_once(", \"")?;
        let (code, _) = rest.split_once("\", ")?;
        let plain = variant.chars().all(char::is_alphanumeric);
        plain.then(|| (number + 1, variant.to_owned(), code.to_owned()))
    };
    let found: Vec<_> = text.lines().enumerate().filter_map(row).collect();
    assert!(found.len() > 30, "policy/src/reason.rs is not written as this test reads it");
    found
}

/// All that tests consist of: their files, their data, and the test code inside `src/`.
fn test_text() -> String {
    let outside = files("tests").into_iter().chain(files("policy/tests"));
    let mut out: String = outside.filter(|path| path != "tests/tidy.rs").map(|path| read(&path)).collect();
    for path in files("src").into_iter().chain(files("policy/src")) {
        let text = read(&path);
        match text.find("#[cfg(test)]") {
            _ if is_test_file(&path) => out.push_str(&text),
            Some(at) => out.push_str(&text[at..]),
            None => {}
        }
    }
    out
}

/// The Markdown files of the tree.
fn documents() -> Vec<String> {
    let top =
        fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let folders = ["docs", "rules", "certs"].into_iter().filter(|folder| root().join(folder).is_dir());
    let below = folders.flat_map(files);
    top.chain(below).filter(|path| path.ends_with(".md")).collect()
}

/// The numbered lines of a document that are not in a code block.
fn prose(document: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut out = Vec::new();
    for (number, line) in read(document).lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            out.push((number + 1, line.to_owned()));
        }
    }
    out
}

fn is_path(span: &str) -> bool {
    let plain = !span.is_empty() && !span.contains(|c: char| c.is_whitespace() || "*{}()<>:".contains(c));
    let named = [".rs", ".md", ".toml", "/"].iter().any(|end| span.ends_with(end));
    plain && named && !span.starts_with('/')
}

/// The anchors that headings of a document get.
fn anchors(document: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(document).unwrap_or_default();
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| is_word_char(*c) || matches!(c, ' ' | '-'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn the_reader_of_sources_reads() {
    let text = "//! x\nuse crate::a::{self, B, c::D};\nfn f<'a>() -> char { '\"' }\nlet s = r#\"crate::no \"#; // crate::no\n#[cfg(test)]\nmod tests { use crate::no; }\nfn g(x: [u8; 2]) { crate::e::h(super::super::k::L, '\\''); }\n";
    let code = without_tests(&blanked(text));
    let source = Source { path: "src/x/y.rs".to_owned(), text: text.to_owned(), code };
    let named: Vec<_> =
        named_modules(&source).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    assert_eq!(named, ["2 a", "2 a::B", "2 a::c", "7 e::h", "7 k::L"]);
    let found = functions(&source.code);
    assert_eq!(found, [(3, "f".to_owned(), 1), (7, "g".to_owned(), 1)]);
}
