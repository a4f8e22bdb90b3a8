//! The variables by which clients find the proxy. What a client's own configuration says goes before
//! them; nothing depends on their being heeded.

use std::process::Command;

/// Where the proxy is, as seen from the command.
pub const PROXY: &str = "http://127.0.0.1:3128";
/// What reads which is in `docs/clients.md`.
const PROXIES: [&str; 6] =
    ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
/// Servers of the command's own. The loopback inside leads nowhere else.
const OWN: &str = "localhost,127.0.0.1,::1";

/// Sets them for a command, whatever stood there before.
pub(super) fn set(command: &mut Command) {
    for name in PROXIES {
        command.env(name, PROXY);
    }
    command.env("no_proxy", OWN).env("NO_PROXY", OWN);
    // Node reads none of them otherwise.
    command.env("NODE_USE_ENV_PROXY", "1");
}
