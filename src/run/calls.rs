//! System calls that lead around the network namespace, refused to the command and to all that it
//! starts by a filter (seccomp(2)). Nothing else is held back, and nothing is asked or logged.
//!
//! - Typing into the terminal, where the shell that started egret would execute it.
//! - Sockets of other families than those that belong to a network namespace or lead nowhere. Those of a
//!   virtual machine, for one, reach its host.
//! - `io_uring`, which opens sockets without the system call, so that no filter sees it.
//! - `request_key`, which has the kernel start a program outside: it looks names up, for one.

use seccompiler::sock_filter;

/// A system call interface of the kernel: what tells it, and the numbers of its calls.
struct Interface {
    audit_arch: u32,
    ioctl: u32,
    socket: u32,
    request_key: u32,
    /// Has sockets opened with arguments that a filter does not see.
    socketcall: Option<u32>,
}

/// Those of the machines that egret is made for, and their 32-bit siblings: a program can use either.
const INTERFACES: [Interface; 4] = [
    // x86_64.
    Interface { audit_arch: 0xC000_003E, ioctl: 16, socket: 41, request_key: 249, socketcall: None },
    // i386.
    Interface { audit_arch: 0x4000_0003, ioctl: 54, socket: 359, request_key: 287, socketcall: Some(102) },
    // aarch64.
    Interface { audit_arch: 0xC000_00B7, ioctl: 29, socket: 198, request_key: 218, socketcall: None },
    // arm.
    Interface { audit_arch: 0x4000_0028, ioctl: 54, socket: 281, request_key: 310, socketcall: None },
];
/// The same everywhere.
const IO_URING_SETUP: u32 = 425;
/// Calls from here on are of the x32 interface; no other one has so many.
const X32: u32 = 0x4000_0000;
/// `SYS_SOCKET` of `socketcall`.
const OPEN_SOCKET: u32 = 1;
/// `TIOCSTI`, and `TIOCLINUX`, which pastes on a console.
const TYPING: [u32; 2] = [0x5412, 0x541C];
/// `AF_UNIX`, `AF_INET`, `AF_INET6`, `AF_NETLINK`, `AF_PACKET`, `AF_ALG`.
const FAMILIES: [u32; 6] = [1, 2, 10, 16, 17, 38];

const ALLOW: u32 = 0x7FFF_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;
const EAFNOSUPPORT: u32 = ERRNO | 97;

/// Places in `struct seccomp_data`. Of an argument the lower half, which is all that the kernel reads of
/// these.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST: u32 = 16;
const SECOND: u32 = 24;

/// Installs the filter.
///
/// # Errors
/// The system's, in words.
pub(super) fn refuse() -> Result<(), String> {
    seccompiler::apply_filter(&filter()).map_err(|error| error.to_string())
}

fn filter() -> Vec<sock_filter> {
    let mut whole = vec![load(ARCH)];
    for interface in &INTERFACES {
        whole.extend(when(interface.audit_arch, calls(interface)));
    }
    // A kernel of a kind that nobody thought of.
    whole.push(give(ENOSYS));
    whole
}

/// What becomes of the calls of an interface.
fn calls(interface: &Interface) -> Vec<sock_filter> {
    let mut calls = vec![load(NUMBER), at_least(X32, 1), give(ENOSYS)];
    calls.extend(when(IO_URING_SETUP, vec![give(ENOSYS)]));
    calls.extend(when(interface.request_key, vec![give(ENOSYS)]));
    calls.extend(when(interface.ioctl, among(SECOND, &TYPING, EPERM, ALLOW)));
    calls.extend(when(interface.socket, among(FIRST, &FAMILIES, ALLOW, EAFNOSUPPORT)));
    if let Some(socketcall) = interface.socketcall {
        calls.extend(when(socketcall, among(FIRST, &[OPEN_SOCKET], ENOSYS, ALLOW)));
    }
    calls.push(give(ALLOW));
    calls
}

/// Gives one answer if what stands at a place is among these, else the other.
fn among(place: u32, these: &[u32], yes: u32, no: u32) -> Vec<sock_filter> {
    let mut out = vec![load(place)];
    for this in these {
        out.extend(when(*this, vec![give(yes)]));
    }
    out.push(give(no));
    out
}

/// Does this if the value is that one. It must come to an answer.
fn when(value: u32, then: Vec<sock_filter>) -> Vec<sock_filter> {
    let over = u8::try_from(then.len()).unwrap_or(u8::MAX);
    let mut out = vec![sock_filter { code: 0x15, jt: 0, jf: over, k: value }];
    out.extend(then);
    out
}

const fn at_least(value: u32, otherwise_over: u8) -> sock_filter {
    sock_filter { code: 0x35, jt: 0, jf: otherwise_over, k: value }
}

const fn load(place: u32) -> sock_filter {
    sock_filter { code: 0x20, jt: 0, jf: 0, k: place }
}

const fn give(answer: u32) -> sock_filter {
    sock_filter { code: 0x06, jt: 0, jf: 0, k: answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do.
    fn answer(arch: u32, number: u32, arguments: [u64; 2]) -> u32 {
        let filter = filter();
        let (mut at, mut value) = (0, 0);
        loop {
            let step = &filter[at];
            at += 1;
            match step.code {
                0x20 => {
                    value = match step.k {
                        NUMBER => number,
                        ARCH => arch,
                        FIRST => u32::try_from(arguments[0] & 0xFFFF_FFFF).unwrap(),
                        SECOND => u32::try_from(arguments[1] & 0xFFFF_FFFF).unwrap(),
                        other => panic!("{other}"),
                    }
                }
                0x15 => at += usize::from(if value == step.k { step.jt } else { step.jf }),
                0x35 => at += usize::from(if value >= step.k { step.jt } else { step.jf }),
                0x06 => return step.k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn every_interface_refuses_the_same() {
        const HIGH: u64 = 1 << 32;
        for Interface { audit_arch, ioctl, socket, request_key, socketcall } in INTERFACES {
            let answer = |number, first, second| answer(audit_arch, number, [first, second]);
            assert_eq!(answer(ioctl, 0, 0x5412), EPERM);
            assert_eq!(answer(ioctl, 0, 0x5412 | HIGH), EPERM);
            assert_eq!(answer(ioctl, 0, 0x541C), EPERM);
            // TCGETS.
            assert_eq!(answer(ioctl, 0, 0x5401), ALLOW);
            for family in [1, 2, 10, 16, 17, 38] {
                assert_eq!(answer(socket, family, 1), ALLOW);
            }
            for family in [0, 3, 15, 29, 31, 40, 42, 43, 44, 40 | HIGH, u64::MAX] {
                assert_eq!(answer(socket, family, 1), EAFNOSUPPORT, "{family}");
            }
            assert_eq!(answer(IO_URING_SETUP, 8, 0), ENOSYS);
            assert_eq!(answer(request_key, 0, 0), ENOSYS);
            assert_eq!(answer(0, 0, 0), ALLOW);
            assert_eq!(answer(600, 40, 0x5412), ALLOW);
            assert_eq!(answer(X32 | 41, 40, 1), ENOSYS);
            assert_eq!(answer(u32::MAX, 40, 1), ENOSYS);
            if let Some(number) = socketcall {
                assert_eq!((answer(number, 1, 0), answer(number, 3, 0)), (ENOSYS, ALLOW));
            }
        }
        assert_eq!(answer(0x8000_0016, 1, [0, 0]), ENOSYS);
    }
}
