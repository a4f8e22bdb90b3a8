//! egret: an egress-controlling forward proxy for sandboxed tools.
//!
//! The library exists for the binary, its tests and its fuzz targets. What it is made of and
//! what each module never does stands in `ARCHITECTURE.md`.

pub mod audit;
pub mod chain;
pub mod cli;
pub mod client_hello;
pub mod client_tls;
pub mod config;
pub mod control;
pub mod diagnostics;
pub mod dial;
pub mod dns_message;
pub mod egress;
pub mod entry;
pub mod forward;
pub mod http1;
pub mod identity;
pub mod learn;
pub mod ledger;
pub mod limit;
pub mod metrics;
pub mod redirect;
pub mod registry;
pub mod relay;
pub mod reload;
pub mod resolve;
pub mod run;
pub mod server;
pub mod socks5;
pub mod stream;
