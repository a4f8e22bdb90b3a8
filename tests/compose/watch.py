"""Writes down the destination of each IPv4 packet on an interface, one a line, until it is ended.

Arguments: the interface, and the file. Its first line says that it watches.
"""

import socket
import struct
import sys

EVERY_PROTOCOL = 3
SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 263, 1, 1
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(EVERY_PROTOCOL)) as link:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    link.bind((sys.argv[1], EVERY_PROTOCOL))
    # Else a bridge keeps what it passes from one container to another to itself.
    member = struct.pack("iHH8s", socket.if_nametoindex(sys.argv[1]), PACKET_MR_PROMISC, 0, b"")
    link.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
    with open(sys.argv[2], "w", buffering=1) as seen:
        print("watching", file=seen)
        while True:
            packet, (_, protocol, *_) = link.recvfrom(64)
            if protocol == 0x0800:
                print(socket.inet_ntoa(packet[16:20]), file=seen)
