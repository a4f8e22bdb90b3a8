//! What the fuzz targets about DNS answers share: a policy, and what must hold for every route that
//! it gives out.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use egret_policy::reader::read_document;
use egret_policy::{
    Action, Class, Destination, DnsName, Entry, Intent, Listeners, NameVerdict, Policy, Problems, Refusal,
    RegisterText, Registered, Resolution, SourceFile, Surroundings, Verdict, classify,
};

const TEXT: &str = r#"
[policy.p]
mode = "observe"
default = "allow"
[[policy.p.deny]]
addresses = ["9.0.0.0/8", "2607::/16"]
[[policy.p.allow]]
domains = ["a.z.example"]
addresses = ["10.0.0.0/8", "fd00::/8", "100.64.0.0/10"]
[[policy.p.allow]]
domains = ["**.z.example"]
[[sandbox]]
id = "box"
source = "10.0.0.0/8"
policy = "p"
"#;

const LISTENER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)), 443);

static POLICY: LazyLock<Arc<Policy>> = LazyLock::new(|| {
    let file = SourceFile::new("egret.toml", TEXT.to_owned());
    let mut problems = Problems::default();
    let listeners = Listeners { bound: vec![LISTENER] };
    let around = Surroundings {
        generation: 1,
        listeners,
        nat64: Vec::new(),
        anonymous: None,
        tokens: true,
        certificates: true,
        register: RegisterText::default(),
    };
    let mut fetch = |_: &str| Err("there are no rule sets here".to_owned());
    let policy =
        read_document(&file, &mut problems, |mut root, p| Policy::read(&mut root, around, &mut fetch, p));
    assert!(!problems.any_error(), "{problems}");
    Arc::new(policy)
});

/// The names that can be looked up: one with private ranges unlocked, one under a rule without
/// any, and one that only the default lets pass.
pub const TARGETS: [&str; 3] = ["a.z.example:443", "b.z.example:443", "other.example:443"];

/// Puts the answer of DNS for one of [`TARGETS`] before the policy, and checks that a route, where
/// there is one, holds the whole answer and nothing that the policy does not permit.
///
/// # Panics
/// When it does not.
pub fn check_answer(which: u8, addresses: &[IpAddr]) {
    let which = usize::from(which) % TARGETS.len();
    let target = TARGETS[which];
    let Ok(client) = POLICY.sandboxes.identify(IpAddr::from([10, 0, 0, 1]), &Registered::default()) else {
        unreachable!("there is a sandbox for every 10.0.0.0/8");
    };
    let Ok(destination) = Destination::parse_authority(target.as_bytes()) else {
        unreachable!("{target} is a destination");
    };
    let Verdict::Allow(grant) =
        POLICY.decide(&Intent { client, entry: Entry::Proxy, destination, action: Action::Tunnel })
    else {
        unreachable!("in observe mode every name is looked up");
    };
    let Ok(route) = grant.pin(&Resolution { addresses: addresses.to_vec() }, |_| false) else {
        return;
    };
    let pinned: Vec<_> = route.addresses().iter().map(|a| a.socket_addr()).collect();
    assert_eq!(pinned, addresses.iter().map(|a| SocketAddr::new(*a, 443)).collect::<Vec<_>>());
    for address in pinned {
        let reached = inside(address.ip());
        assert_ne!(SocketAddr::new(reached, 443), LISTENER);
        assert!(!denied(reached), "{address} is denied");
        match classify(address.ip(), &[]) {
            Class::Public => {}
            Class::Private(_) => assert!(which == 0 && unlocked(reached), "{address} is not unlocked"),
            Class::Forbidden(range) => unreachable!("{address}: {}", range.name),
        }
    }
}

/// Puts a name before the policy, with these addresses as the answer of DNS, and checks that what may
/// be told of them is the whole answer and nothing that the policy does not permit on any port.
/// Gives what may be told.
///
/// # Panics
/// When it is not.
pub fn check_name(name: &DnsName, addresses: &[IpAddr]) -> Result<Vec<IpAddr>, Refusal> {
    let Ok(client) = POLICY.sandboxes.identify(IpAddr::from([10, 0, 0, 1]), &Registered::default()) else {
        unreachable!("there is a sandbox for every 10.0.0.0/8");
    };
    let grant = match POLICY.decide_name(&client, name) {
        NameVerdict::Allow(grant) => grant,
        NameVerdict::Deny(refusal) => return Err(refusal),
    };
    assert_eq!(grant.lookup().host().name(), Some(name));
    let route = grant.pin(&Resolution { addresses: addresses.to_vec() }, |_| false)?;
    let told: Vec<_> = route.addresses().collect();
    assert_eq!(told, addresses);
    for address in &told {
        let reached = inside(*address);
        assert!(!denied(reached), "{address} is denied");
        match classify(*address, &[]) {
            Class::Public => {}
            Class::Private(_) => {
                assert!(name.as_str() == "a.z.example" && unlocked(reached), "{address} is not unlocked");
            }
            Class::Forbidden(range) => unreachable!("{address}: {}", range.name),
        }
    }
    Ok(told)
}

/// The IPv4 address under the well-known NAT64 prefix (RFC 6052), or the address itself.
fn inside(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0x64_ff9b << 64 => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::from([a, b, c, d])
        }
        other => other,
    }
}

/// What the policy's deny table names.
fn denied(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 9,
        IpAddr::V6(v6) => v6.segments()[0] == 0x2607,
    }
}

/// What the rule for the first name unlocks.
fn unlocked(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10 || v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64,
        IpAddr::V6(v6) => v6.segments()[0] >> 8 == 0xfd,
    }
}
