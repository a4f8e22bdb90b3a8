//! What the black-box tests share: a closed network, servers that do as a test
//! tells them, a client that sends exact bytes, and the program under test.
//!
//! Each test target takes in the whole folder with `mod support;` and uses a
//! part of it. Nothing here knows a case file or a rule of egret's; nothing here
//! reaches beyond the loopback interface.
#![allow(dead_code, missing_docs)]

use std::time::{Duration, Instant};

pub mod asker;
pub mod black_hole;
pub mod client;
pub mod digest;
pub mod dns_message;
pub mod dns_server;
pub mod egret;
pub mod hello;
pub mod http1;
pub mod origin;
pub mod sink;
pub mod socks;
pub mod witness;
pub mod world;

/// Waits until `ready` says so; panics with `what` when it does not within `limit`.
pub fn wait_for(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) {
    let began = Instant::now();
    while !ready() {
        assert!(began.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
