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

mod budgets;
mod code;
mod documents;
mod imports;
mod tree;

use code::{blanked, functions, without_tests};
use imports::named_modules;
use tree::Source;

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
