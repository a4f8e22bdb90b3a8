"""Tries to get around the proxy, and says what came of each try: a line `KIND TARGET OUTCOME`.

Arguments: `tcp:HOST:PORT`, `udp:HOST:PORT` (a DNS question; any answer counts), `icmp:HOST`,
`onlink:HOST:PORT` (a datagram past the routes) and `raw:GATEWAY:SOURCE:TARGET` (a frame to the
hardware address of GATEWAY, with a packet to TARGET in it). `reached` is the outcome where something
answered; else it is how it failed, of what answers nothing by itself `no answer`.
"""

import concurrent.futures
import errno
import socket
import struct
import sys

# Of a connection, long enough to see that there is no route; what answers to a packet does so soon.
PATIENCE = 10
BRIEFLY = 4
QUESTION = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03way\x03out\x00\x00\x01\x00\x01"
FAILURES = {
    errno.ENETUNREACH: "unreachable",
    errno.EHOSTUNREACH: "unreachable",
    errno.ECONNREFUSED: "refused",
    errno.EPERM: "not permitted",
    errno.EACCES: "not permitted",
}


def tcp(host, port):
    socket.create_connection((host, int(port)), PATIENCE).close()
    return "reached"


def udp(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(BRIEFLY)
        client.connect((host, int(port)))
        client.send(QUESTION)
        client.recv(512)
    return "reached"


def onlink(host, port):
    """A datagram to an address as if it were on this network, whatever the routes say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0\0")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        client.sendto(b"onlink", (host, int(port)))
    return "sent"


def icmp(host):
    # The kernel fills the checksum and the identifier in.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as client:
        client.settimeout(BRIEFLY)
        client.connect((host, 0))
        client.send(struct.pack("!BBHHH", 8, 0, 0, 0, 1))
        client.recv(512)
    return "reached"


def checksum(octets):
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def raw(gateway, source, target):
    try:
        link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    except PermissionError:
        return "not permitted"
    with link:
        link.bind(("eth0", 0))
        # Asked for something, so that its hardware address gets known.
        try:
            tcp(gateway, 9)
        except OSError:
            pass
        with open("/proc/net/arp") as table:
            known = dict((line.split()[0], line.split()[3]) for line in list(table)[1:])
        hardware = bytes.fromhex(known[gateway].replace(":", ""))
        payload = struct.pack("!HHHH", 7007, 7007, 8 + 6, 0) + b"secret"
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, 0, 64, 17, 0,
                           socket.inet_aton(source), socket.inet_aton(target))
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        link.send(hardware + link.getsockname()[4] + b"\x08\x00" + head + payload)
    return "sent"


def attempt(argument):
    kind, *target = argument.split(":")
    try:
        return globals()[kind](*target)
    except TimeoutError:
        return "silence" if kind == "tcp" else "no answer"
    except socket.gaierror:
        return "no such name"
    except OSError as error:
        outcome = FAILURES.get(error.errno, str(error))
        return "no answer" if outcome == "unreachable" and kind != "tcp" else outcome


with concurrent.futures.ThreadPoolExecutor(40) as pool:
    for argument, outcome in zip(sys.argv[1:], pool.map(attempt, sys.argv[1:])):
        print(argument.replace(":", " ", 1), outcome)
