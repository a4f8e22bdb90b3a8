//! `egret run`: a command in a network namespace of its own, which has no interface but the loopback
//! and no listener of others on it: this process's alone.
//!
//! The program starts itself once more (`inside`). That process makes the namespace, listens in it,
//! hands the listening sockets to its parent, gives up what it may, and becomes the command. Never
//! makes a link to another network, needs no daemon, and keeps nothing that outlives both processes
//! but a folder that the next run removes.

mod calls;
mod channel;
mod doors;
mod environment;
mod inside;
mod leftovers;
mod loopback;
mod mounts;
mod outside;
mod privileges;
mod scratch;
mod sockets;
mod summary;
mod supervisor;
mod unrouted;

pub use doors::{Doors, RESOLV_CONF, diverted_to};
pub use environment::PROXY;
pub use inside::become_command;
pub use outside::{Inside, StartError};
pub use scratch::Scratch;
pub use sockets::standard_way_out;
pub use summary::{Summary, Traffic};
pub use supervisor::{Ended, Supervisor};
pub use unrouted::Unrouted;
