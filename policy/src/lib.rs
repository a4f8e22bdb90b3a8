//! The decision core of egret: rules, addresses and an intent in, a verdict out.
//!
//! Does no I/O and knows no clock: files, DNS answers and addresses come in as values, so the
//! whole of it is tested without a runtime. The order of things is held by types:
//! [`Intent`] → [`Policy::decide`] → [`Grant`] → [`Grant::pin`] → [`Route`] of [`PinnedAddr`]s.

mod destination;
mod explain;
mod guard;
mod host;
mod intent;
mod labels;
pub mod limits;
mod load;
mod lookup;
mod names;
mod networks;
mod paths;
mod policy;
mod ports;
pub mod reader;
mod reason;
mod registered;
mod rules;
mod sandbox;
mod source;
pub mod units;
mod verdict;

pub use destination::{AbsoluteForm, Destination, Scheme, TargetError};
pub use explain::NearMiss;
pub use guard::{Grant, PinnedAddr, Resolution, Route};
pub use host::{DnsName, Host, HostError};
pub use intent::{Action, Certificate, Client, Entry, Identity, Intent, Token};
pub use labels::looks_random;
pub use limits::Limits;
pub use load::{FetchRuleSet, RegisterText, Surroundings, word};
pub use lookup::{NameGrant, NameRoute, NameVerdict};
pub use names::{NamePattern, PatternError, Reach};
pub use networks::{Class, METADATA_NAMES, Nat64Prefix, classify, effective as reached};
pub use paths::{AmbiguousPath, GlobError, PathGlob};
pub use policy::{Effective, Fallback, Listeners, Mode, Policy};
pub use ports::PortSet;
pub use reason::Reason;
pub use registered::{Listed, NotRegistrable, Registered, Registrable, Registration};
pub use rules::{TlsRule, parse_network, strict_network};
pub use sandbox::{Sandboxes, is_sandbox_id};
pub use source::{Position, Problem, Problems, Severity, SourceFile, Spot};
pub use verdict::{Refusal, Verdict};
