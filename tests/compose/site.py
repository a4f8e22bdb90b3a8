"""Plays the outside world in a container: web, TLS, DNS, an echo, and registries of one package each.

Arguments: NAME=ADDRESS for each name that its DNS knows. /tmp/ready exists once all of it listens,
and /tmp/asked has a line for each name that DNS was asked for.
"""

import functools
import hashlib
import http.server
import io
import json
import os
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile

WEB = "/tmp/web"
NAMES = dict(argument.split("=") for argument in sys.argv[1:])
PAGE = b"the page\n"


def write(path, content):
    path = os.path.join(WEB, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def packed(files):
    """A tar archive, gzipped."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return target.getvalue()


def publish_wheel():
    info = "nestling-1.0.dist-info"
    members = {
        "nestling.py": "NEST = 'reed'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: nestling\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*members, f"{info}/RECORD"])
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as wheel:
        for name, text in {**members, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
    wheel = "nestling-1.0-py3-none-any.whl"
    write(f"simple/nestling/{wheel}", target.getvalue())
    write("simple/nestling/index.html", f'<a href="{wheel}">{wheel}</a>')


def publish_npm():
    package = packed({"package/package.json": '{"name": "nestling", "version": "1.0.0"}\n'})
    write("npm-files/nestling-1.0.0.tgz", package)
    version = {
        "name": "nestling",
        "version": "1.0.0",
        "dist": {
            "tarball": "https://packages.example/npm-files/nestling-1.0.0.tgz",
            "shasum": hashlib.sha1(package).hexdigest(),
        },
    }
    packument = {"name": "nestling", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    write("npm/nestling", json.dumps(packument))


def publish_crate():
    manifest = '[package]\nname = "nestling"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = packed({"nestling-1.0.0/Cargo.toml": manifest, "nestling-1.0.0/src/lib.rs": ""})
    write("crates/dl/nestling/1.0.0/download", crate)
    line = {"name": "nestling", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    line["cksum"] = hashlib.sha256(crate).hexdigest()
    write("crates/ne/st/nestling", json.dumps(line) + "\n")
    write("crates/config.json", json.dumps({"dl": "https://packages.example/crates/dl"}))


def publish_deb():
    # Nobody installs it, so any octets will do for a package.
    package = b"bittern" * 5000
    digest = hashlib.sha256(package).hexdigest()
    listed = (
        "Package: bittern\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@packages.example>\n"
        f"Filename: ./bittern_1.0_all.deb\nSize: {len(package)}\nSHA256: {digest}\n"
        "Description: a bird in the reeds\n\n"
    )
    write("apt/bittern_1.0_all.deb", package)
    write("apt/Packages", listed)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    date = "Thu, 01 Jan 2026 00:00:00 UTC"
    write("apt/Release", f"Suite: test\nDate: {date}\nSHA256:\n {digest} {len(listed)} Packages\n")


def publish_repository():
    write("work/README", "the repository\n")
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@git.example"]
    git = functools.partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)
    git(["git", "init", "--quiet", "--initial-branch=main", f"{WEB}/work"])
    git(["git", "-C", f"{WEB}/work", "add", "README"])
    git(["git", "-C", f"{WEB}/work", *who, "commit", "--quiet", "--message=One"])
    git(["git", "clone", "--quiet", "--bare", f"{WEB}/work", f"{WEB}/nest.git"])
    git(["git", "-C", f"{WEB}/nest.git", "update-server-info"])


class Web(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "http://refused.example/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while octets := self.request.recv(4096):
            self.request.sendall(octets)


class Dns(socketserver.BaseRequestHandler):
    """Answers A for the names that it knows; for all else, that there is nothing."""

    def handle(self):
        query, reply_to = self.request
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode())
            at += query[at] + 1
        kind = struct.unpack("!H", query[at + 1 : at + 3])[0]
        name = ".".join(labels).lower()
        with open("/tmp/asked", "a") as asked:
            asked.write(name + "\n")
        address = NAMES.get(name)
        answers = b""
        if address and kind == 1:
            answers = struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address)
        flags = 0x8180 if address else 0x8183
        head = query[:2] + struct.pack("!HHHHH", flags, 1, 1 if answers else 0, 0, 0)
        reply_to.sendto(head + query[12 : at + 5] + answers, self.client_address)


def main():
    write("index.html", PAGE)
    for publish in (publish_wheel, publish_npm, publish_crate, publish_deb, publish_repository):
        publish()
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    web = functools.partial(Web, directory=WEB)
    secure = http.server.ThreadingHTTPServer(("", 443), web)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain("/tls/server.crt", "/tls/server.key")
    # Shaken hands on first use, in the thread of the connection.
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    servers = [
        http.server.ThreadingHTTPServer(("", 80), web),
        secure,
        socketserver.ThreadingTCPServer(("", 7007), Echo),
        socketserver.ThreadingUDPServer(("", 53), Dns),
    ]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    open("/tmp/asked", "a").close()
    open("/tmp/ready", "w").close()


main()
