"""Print how a node resolves names, as one JSON document.

Sent to its python3 on standard input. The only argument is a JSON document: {"resolve": [name, ...]}. "hosts" are the
entries of /etc/hosts; "resolved" is name -> IPv4 and IPv6 addresses by the system's own way (nsswitch.conf); "servers"
is the answer of each name server of /etc/resolv.conf (a DNS response code; null: no answer).
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FORMAT = "rackready/names/v1"
TIMEOUT_S = 2.0
TRIES = 2
"""Number of attempts: a datagram may be lost."""
PORT = 53
CODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
"""RCODE (RFC 1035, 4.1.1)."""


def main() -> int:
    """Print the document; always exit 0."""
    wanted = json.loads(sys.argv[1])
    hostname = os.uname().nodename
    servers, search = configured()
    with ThreadPoolExecutor(max_workers=8) as pool:
        asked = sorted({hostname, *wanted["resolve"]})
        answers = pool.map(lambda server: answer(server, ".".join([hostname.split(".")[0], *search[:1]])), servers)
        document: dict[str, Any] = {
            "hostname": hostname,
            "hosts": hosts(),
            "addresses": addresses(),
            "resolved": dict(zip(asked, pool.map(resolved, asked))),  # noqa: B905 - old interpreters know no strict
            "servers": [{"address": server, "answer": said} for server, said in zip(servers, answers)],  # noqa: B905 - the same
        }
    sys.stdout.write(
        json.dumps(dict(document, format=FORMAT, digest=digest(document), complete=True), sort_keys=True) + "\n"
    )
    return 0


def digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the contents, so that a truncated document does not pass for an empty one."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def lines(path: str) -> list[list[str]]:
    """Return the words of every line of a file without its comments; none when it cannot be read."""
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123
            return [words for words in (line.split("#")[0].split(";")[0].split() for line in file) if words]
    except OSError:
        return []


def hosts() -> list[tuple[str, str]]:
    """Return (name, address) of every entry of /etc/hosts."""
    return [(name, words[0]) for words in lines("/etc/hosts") for name in words[1:]]


def configured() -> tuple[list[str], list[str]]:
    """Return the name servers and the search list of /etc/resolv.conf.

    Of each kind of list the last line counts (resolv.conf(5)).
    """
    rows = lines("/etc/resolv.conf")
    search = [words[1:] for words in rows if words[0] in ("search", "domain")]
    return [words[1] for words in rows if words[0] == "nameserver" and len(words) > 1][:3], search[-1] if search else []


def addresses() -> list[str]:
    """Return the addresses of this node: those from which the kernel routes to itself."""
    found = set()
    for family, table in ((socket.AF_INET, "/proc/net/fib_trie"), (socket.AF_INET6, "/proc/net/if_inet6")):
        rows = lines(table)
        if family == socket.AF_INET:
            found |= {before[-1] for before, words in zip(rows, rows[1:]) if words[:2] == ["/32", "host"]}  # noqa: B905, RUF007 - old interpreters
        else:
            found |= {socket.inet_ntop(family, bytes.fromhex(words[0])) for words in rows}
    return sorted(found)


def resolved(name: str) -> list[str]:
    """Return the addresses of a name as programs get them."""
    try:
        return sorted({str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def answer(server: str, name: str) -> str | None:
    """Return a name server's answer to the question for a name's address, None without an answer."""
    labels = b"".join(bytes([len(label)]) + label for label in name.encode("idna").split(b".") if label)
    number = os.urandom(2)
    question = number + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    for _ in range(TRIES):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as asked:
                asked.settimeout(TIMEOUT_S)
                asked.connect((server, PORT))
                asked.send(question)
                said = asked.recv(4096)
        except (OSError, ValueError):
            continue
        if len(said) >= 12 and said[:2] == number:  # noqa: PLR2004 - a header
            return CODES.get(said[3] & 0xF, f"response code {said[3] & 0xF}")
    return None


if __name__ == "__main__":
    sys.exit(main())
