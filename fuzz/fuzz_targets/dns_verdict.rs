//! Any addresses as the answer of DNS: no route holds one that the policy does not permit.
#![no_main]

use std::net::{IpAddr, Ipv6Addr};

use egret_fuzz::check_answer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u8, Vec<(bool, u128)>)| {
    let (which, words) = data;
    let addresses: Vec<_> = words.into_iter().map(address).collect();
    check_answer(which, &addresses);
});

fn address((is_v4, bits): (bool, u128)) -> IpAddr {
    let low = bits.to_le_bytes();
    if is_v4 { IpAddr::from([low[0], low[1], low[2], low[3]]) } else { Ipv6Addr::from_bits(bits).into() }
}
