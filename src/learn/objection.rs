//! Why a destination is not proposed: a closed set of codes with a sentence for each.

use serde::{Serialize, Serializer};

use crate::ledger::{Sighting, Verdict};

macro_rules! objections {
    ($($name:ident, $code:literal, $meaning:literal;)+) => {
        /// What speaks against proposing a destination.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Objection {
            $(#[doc = $meaning] $name,)+
        }

        impl Objection {
            /// All of them, in the order in which they are told.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word for scripts; never renamed.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// What it means, for people.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }
        }
    };
}

objections! {
    BadRequest, "bad_request", "the request named no valid destination";
    Denied, "denied", "a deny rule refuses it";
    IpLiteral, "ip_literal", "an IP address, not a name";
    Address, "address", "it leads to an address that is not public, or not permitted";
    Paste, "paste", "a host for text and files of anybody";
    Tunnel, "tunnel", "a host that leads to anybody's machine, or shows anybody what it gets";
    Shortener, "shortener", "a host whose links lead anywhere";
    RandomLabel, "random_label", "a label looks random, as one that carries data does";
    LocalName, "local_name", "not a name of the public DNS";
    NoRule, "no_rule", "no rule can name it";
    RuleLimit, "rule_limit", "a rule limits methods or paths there; extend that rule instead";
    OddPort, "odd_port", "a port other than 80 and 443; --port permits it";
    // What follows is of no weight where the destination was wanted at another time.
    NotFound, "not_found", "the name does not exist, so that anybody may register it";
    RedirectOnly, "redirect_only", "only a response named it, nobody asked for it";
    NameOnly, "name_only", "only its name was asked for, by DNS, and no connection tells a port";
    Limited, "limited", "only refused by a limit, before any rule was asked";
    Unidentified, "unidentified", "only asked for by clients that are no sandbox";
    Undecided, "undecided", "no request came as far as the rules";
}

/// What one sighting says about proposing its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bearing {
    /// The sandbox wanted it, and the rules let it pass, or nothing but their silence did not.
    Wanted,
    Against(Objection),
}

impl Objection {
    /// Does it count only where nothing else is known?
    pub(super) const fn is_weak(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::RedirectOnly
                | Self::NameOnly
                | Self::Limited
                | Self::Unidentified
                | Self::Undecided
        )
    }

    /// Is it worth a look even where a rule allows the destination?
    pub(super) const fn is_doubt(self) -> bool {
        matches!(self, Self::Paste | Self::Tunnel | Self::Shortener | Self::RandomLabel)
    }
}

impl Serialize for Objection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl Bearing {
    pub(super) fn of(sighting: &Sighting) -> Self {
        let against = match (sighting.verdict, sighting.reason.as_str()) {
            _ if sighting.redirect => Objection::RedirectOnly,
            (_, "bad_request") => Objection::BadRequest,
            (_, "domain_denied") => Objection::Denied,
            (_, "address_forbidden" | "address_not_allowed" | "mixed_answer") => Objection::Address,
            (_, "method_not_allowed" | "path_not_allowed") => Objection::RuleLimit,
            (_, "dns_not_found") => Objection::NotFound,
            _ if sighting.name_alone => Objection::NameOnly,
            (_, "domain_not_allowed" | "port_not_allowed") => return Self::Wanted,
            (_, "rate_limited" | "quota_exceeded" | "too_many_connections") => Objection::Limited,
            (_, "identity_required" | "identity_rejected") => Objection::Unidentified,
            (Verdict::Deny, _) => Objection::Undecided,
            // What failed afterwards is not the policy's.
            (Verdict::Allow | Verdict::WouldDeny, _) => return Self::Wanted,
        };
        Self::Against(against)
    }
}
