"""Small upstreams on disk and over HTTP, made with the package makers of the simulated mirror."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rackready.drivers.mirror import keys
from rackready.drivers.mirror.build import Order
from rackready.drivers.mirror.parts import Need, Wanted
from rackready.model.operations import Upstream
from rackready_sim.packages import repo, repo_rpm
from rackready_sim.packages.deb import Deb

PACKAGES = [
    Deb("tool", "1:1.0-1", "a tool", {"Depends": "lib (>= 1.0)"}, {"/usr/bin/tool": "#!/bin/sh\n"}),
    Deb("tool", "1:2.0-1", "a newer tool", {"Depends": "lib (>= 2.0)"}),
    Deb("lib", "1.5-1", "a library", {}, {"/usr/lib/lib.so": "x" * 200_000}),
    Deb("other", "3.0-1", "another program", architecture="all"),
    Deb("unwanted", "1.0-1", "nobody needs it"),
]
NEED = Need(("dgx_h100",), {"tool": "1:1.0-1", "other": ""})
Streams = dict[str, list[str]]
_KEYS: dict[tuple[str, str], bytes] = {}
"""Secret keys of repositories by algorithm and name of their place: to make an RSA key takes a second."""
MODULE: Streams = {"driver:1": ["tool-1:1.0-1.x86_64"], "driver:2": ["tool-1:2.0-1.x86_64"]}


def make(
    place: Path,
    packages: list[Deb] | None = None,
    *,
    rpm: bool = False,
    streams: Streams | None = None,
    label: str = "rackready mirror",
) -> Path:
    """Write a signed repository and return its folder; keys differ between places."""
    out = place / "repo"
    index = out / "InRelease"
    earlier = index.stat().st_mtime if index.exists() else 0.0
    out.mkdir(parents=True, exist_ok=True)
    for path in [*out.glob("*.deb"), *out.glob("*.rpm")]:
        path.unlink()
    algorithm = "rsa3072" if rpm else "ed25519"
    secret = repo._secret(place, algorithm)
    if not secret.exists() and (known := _KEYS.get((algorithm, place.name))) is not None:
        secret.write_bytes(known)
    with repo._signing_key(out, 730, algorithm) as home:
        _KEYS[algorithm, place.name] = secret.read_bytes()
        if rpm:
            named = {name.partition(":")[2]: artifacts for name, artifacts in (streams or {}).items()}
            repo_rpm.build(packages or PACKAGES, "driver", named, out, home)
        else:
            repo._write_apt(packages or PACKAGES, out)
            release = out / "Release"
            release.write_text(release.read_text().replace("Label: rackready mirror", f"Label: {label}"))
            repo._sign(out, home, 730)
            # HTTP dates have whole seconds: apt keeps an index whose successor came within the same one.
            os.utime(index, (max(index.stat().st_mtime, earlier + 1),) * 2)
    return out


def upstream(folder: Path, url: str = "", name: str = "vendor", **more: Any) -> Upstream:
    key = folder / "mirror.asc"
    values = {
        "name": name,
        "url": url or f"file://{folder}",
        "suite": "./",
        "key": key,
        "fingerprint": keys.fingerprints(key)[0],
    }
    return Upstream.model_validate(values | more)


def order(
    place: Path,
    *upstreams: Upstream,
    system: str = "debian12",
    need: Need = NEED,
    makes_key: bool = False,
    **more: Any,
) -> Order:
    """Return an order of a mirror in ``place``, with a key that is there unless the run makes it."""
    wanted = Wanted(system, (need,), upstreams, **more)
    told: list[str] = []
    out, secret = place / "out/mirror", place / "key.asc"
    out.parent.mkdir(exist_ok=True, parents=True)
    if not makes_key and not secret.exists():
        secret.touch(mode=0o600)
        secret.write_bytes(_signing_key())
    return Order("lab", "some-set", wanted, [], out, secret, told.append, told.append)


@cache
def _signing_key() -> bytes:
    """Return the key that signs mirrors, as their first run makes it."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "key.asc"
        with keys.signer(secret, "lab"):
            return secret.read_bytes()


@dataclass
class Web:
    """A web server with what was asked of it. After ``stall_after`` packages it sends the next to the half only."""

    url: str = ""
    fetched: list[str] = field(default_factory=list)
    stall_after: int = 1_000_000
    reached: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)


@contextmanager
def web(folder: Path) -> Iterator[Web]:
    """Yield a web server of a folder on loopback."""
    state = Web()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            if name.endswith((".deb", ".rpm")):
                state.fetched.append(name)
            if name.endswith((".deb", ".rpm")) and len(state.fetched) > state.stall_after:
                body = (folder / name).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                state.reached.set()
                state.go_on.wait(60)
                return
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.go_on.set()
        server.shutdown()
        server.server_close()
