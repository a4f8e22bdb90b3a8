//! A client of SOCKS5 that sends exact octets (RFC 1928, RFC 1929).

use std::net::{IpAddr, SocketAddr};

use super::client::Client;

/// Offers nothing but a connection without credentials.
pub const HELLO: [u8; 3] = [5, 1, 0];
/// Offers nothing but user and password.
pub const LOGIN_HELLO: [u8; 3] = [5, 1, 2];

/// CONNECT to a name, or to whatever stands in its place.
pub fn named(host: &[u8], port: u16) -> Vec<u8> {
    let length = [u8::try_from(host.len()).expect("a name of SOCKS has at most 255 octets")];
    [&[5, 1, 0, 3][..], &length, host, &port.to_be_bytes()].concat()
}

/// CONNECT to an address.
pub fn addressed(address: SocketAddr) -> Vec<u8> {
    let (kind, octets) = match address.ip() {
        IpAddr::V4(v4) => (1, v4.octets().to_vec()),
        IpAddr::V6(v6) => (4, v6.octets().to_vec()),
    };
    [&[5, 1, 0, kind][..], &octets, &address.port().to_be_bytes()].concat()
}

/// User and password.
pub fn login(user: &str, password: &str) -> Vec<u8> {
    let field = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [&[1][..], &field(user), &field(password)].concat()
}

/// Sends a request without credentials; the code of the reply. Panics where they are asked for.
pub fn ask(client: &mut Client, request: impl AsRef<[u8]>) -> u8 {
    client.send(HELLO);
    assert_eq!(client.exactly(2), [5, 0], "a connection without credentials");
    client.send(request);
    reply(client)
}

/// The code of the next reply.
pub fn reply(client: &mut Client) -> u8 {
    let reply = client.exactly(10);
    assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]), "{reply:?}");
    reply[1]
}

/// An open tunnel; panics where it is refused.
pub fn tunnel(proxy: SocketAddr, host: &str, port: u16) -> Client {
    let mut client = Client::connect(proxy);
    assert_eq!(ask(&mut client, named(host.as_bytes(), port)), 0, "{host}:{port}");
    client
}
