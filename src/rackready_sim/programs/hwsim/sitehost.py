"""Host of the site's services: the package mirror over HTTP, and a name server for the site's machines.

Usage: site-services ADDRESS PORT FOLDER NAME=ADDRESS ...
"""

from __future__ import annotations

import functools
import http.server
import socket
import struct
import threading
from pathlib import Path
from typing import BinaryIO

_DNS = 53
_A, _IN = 1, 1
_NOERROR, _NXDOMAIN = 0, 3
_TTL_S = 60
CUT = ".cut"
"""While the served folder has this file, every package breaks off in the middle: the mirror goes down meanwhile."""
_PACKAGES = (".deb", ".rpm")


def main(argv: list[str]) -> int:
    """Serve until stopped."""
    address, port, folder, *names = argv
    zone = dict(name.split("=", 1) for name in names)
    threading.Thread(target=resolve, args=(address, zone), daemon=True).start()
    handler = functools.partial(Handler, directory=folder)
    http.server.ThreadingHTTPServer((address, int(port)), handler).serve_forever()
    return 0


class Handler(http.server.SimpleHTTPRequestHandler):
    """A file server whose packages can break off."""

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:  # type: ignore[override]
        """Send a file, or its first half and nothing more."""
        if not self.path.endswith(_PACKAGES) or not Path(self.directory, CUT).exists():
            super().copyfile(source, outputfile)
            return
        raw = source.read()
        outputfile.write(raw[: len(raw) // 2])
        self.close_connection = True


def resolve(address: str, zone: dict[str, str]) -> None:
    """Answer questions for addresses, one datagram at a time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, _DNS))
        while True:
            question, client = server.recvfrom(512)
            try:
                server.sendto(reply(question, zone), client)
            except (IndexError, UnicodeDecodeError, struct.error):
                continue


def reply(question: bytes, zone: dict[str, str]) -> bytes:
    """Return the authoritative answer to a question (RFC 1035, 4.1); NXDOMAIN for a name that the site lacks."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode("ascii"))
        at += 1 + question[at]
    kind, _class = struct.unpack("!2H", question[at + 1 : at + 5])
    known = zone.get(".".join(labels).lower())
    found = known is not None and kind == _A
    code = _NXDOMAIN if known is None else _NOERROR
    head = question[:2] + struct.pack("!5H", 0x8400 | (question[2] & 1) << 8 | code, 1, int(found), 0, 0)
    answer = struct.pack("!3HIH", 0xC00C, _A, _IN, _TTL_S, 4) + socket.inet_aton(known) if found and known else b""
    return head + question[12 : at + 5] + answer
