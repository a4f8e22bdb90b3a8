//! Names, as the system's own resolver finds them: a way out for those who run the zone that is asked
//! for, and to metadata services.

use std::sync::Arc;

use super::Context;
use super::baseline::Known;
use super::check::{Kind, Outcome, Plan};
use super::direct::judge;
use super::socket::{self, Reach};
use super::target::Way;

/// Names under which metadata services are looked up on machines of clouds.
pub(super) const METADATA: [&str; 2] = ["metadata.google.internal", "instance-data.ec2.internal"];

/// Under which name a baseline has that a name resolves.
pub(super) fn name_key(name: &str) -> String {
    format!("name {name}")
}

/// Adds a check that the system's resolver does not ask the world for this name.
pub(super) fn plan_resolver(context: &Arc<Context>, name: &str, plan: &mut Plan) {
    let (context, own) = (Arc::clone(context), name.to_owned());
    plan.add("resolver", name, async move {
        let _turn = context.turn().await;
        let (kind, detail) = match socket::look_up(&own, 80, context.patience).await {
            Ok(found) => {
                let detail = format!(
                    "its addresses were found ({}); where egret answers for it because the policy allows it, name another one with --dns-name",
                    found.len()
                );
                return Outcome::fail(detail).of(Kind::Reached);
            }
            Err(Reach { kind, detail }) => (kind, detail),
        };
        match context.knows(&name_key(&own)) {
            Known::Reached => Outcome::pass(detail).countered(),
            Known::Not(why) => Outcome::unsupported(format!("{detail}; {why}")),
            Known::Nothing => Outcome::pass(detail),
        }
        .of(kind)
    });
}

/// Adds a check that a metadata service can't be reached by a name that this machine knows.
pub(super) fn plan_metadata(context: &Arc<Context>, names: &[&'static str], plan: &mut Plan) {
    for name in names.iter().copied() {
        let context = Arc::clone(context);
        plan.add("metadata", name, async move {
            let _turn = context.turn().await;
            let known = context.knows(&name_key(name));
            let found = match socket::look_up(name, 80, context.patience).await {
                Ok(found) => found,
                Err(reach) => return judge(Way::Tcp, reach, known),
            };
            let mut last = Reach::new(Kind::Unreachable, "the name has no address");
            for address in found {
                match socket::connect(address, context.patience).await {
                    Ok(_) => return Outcome::fail(format!("connected to {address}")).of(Kind::Reached),
                    Err(reach) => last = reach,
                }
            }
            judge(Way::Tcp, last, known)
        });
    }
}
