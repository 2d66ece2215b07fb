"""`rackready release serve`: the HTTP server from which nodes fetch releases, and to which they report."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from rackready.cli.output import Env, Format, Output, console, env_paths, print_json
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.model.site import Site
    from rackready.paths import EnvPaths

_POLL_S = 0.5
_PORTS = range(1 << 16)


def register(group: typer.Typer) -> None:
    """Add the command to the group `release`."""
    group.command("serve")(serve)


def serve(
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS:PORT", help="Where to listen, e.g. 192.0.2.1:8480.")
    ],
    env: Env = "sim",
    output: Output = Format.TEXT,
) -> None:
    """Serve signed releases and orders to the nodes, and take their signed reports.

    Runs until it is stopped (systemd: docs/howto/pull-agent.md), beside every other command: it takes no lock. Each
    request is one line on standard error. Put the same ADDRESS:PORT into `pull.url` of the site file.

    Exit codes: 0 stopped, 2 refused.
    """
    from rackready.design.site import load_site  # noqa: PLC0415 - `--help` loads no site
    from rackready.drivers.release.objects import release_folder  # noqa: PLC0415
    from rackready.drivers.release_server import ReleaseFolders, ReleaseServer  # noqa: PLC0415
    from rackready.paths import private_dir  # noqa: PLC0415

    address, paths = parsed(listen), env_paths(env)
    keys = HostKeys(paths, lambda: load_site(env, root=paths.root))
    private_dir(paths.state)
    folders = ReleaseFolders(private_dir(release_folder(paths)), private_dir(paths.node_reports), keys)
    with ReleaseServer(address, folders) as server, _until_stopped(server.shutdown):
        host, port = str(server.server_address[0]), int(server.server_address[1])
        if output is Format.JSON:
            print_json({"address": host, "port": port, "release": folders.release, "reports": folders.reports})
        else:
            console.print(f"serving {folders.release} at {host}:{port}; reports go to {folders.reports}")
        server.serve_forever(_POLL_S)


def parsed(listen: str) -> tuple[str, int]:
    """Return address and port of ADDRESS:PORT. Raises RackreadyError."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) not in _PORTS:
        step = "Give both, e.g. --listen 192.0.2.1:8480 or --listen [2001:db8::1]:8480."
        raise RackreadyError("--listen", expected="ADDRESS:PORT", actual=f"'{listen}'", next_step=step)
    return host.removeprefix("[").removesuffix("]"), int(port)


class HostKeys:
    """Pinned host keys of the site's nodes. A node that is added to the site file is known at once."""

    def __init__(self, paths: EnvPaths, load: Callable[[], Site]) -> None:
        """Load the site. Raises SiteInvalidError."""
        self._paths, self._load = paths, load
        self._lock = threading.Lock()
        self._stamp = self._now()
        self._site = load()

    def __call__(self, node: str) -> str:
        """Return a node's pinned host key, "" for a node that is unknown or not pinned."""
        from rackready.drivers.ssh.pins import known_name, pinned  # noqa: PLC0415

        site = self._current()
        if all(item.name != node for item in site.nodes()):
            return ""
        return pinned(self._paths.known_hosts, known_name(str(site.node(node).address), site.access.port))

    def _now(self) -> tuple[int, ...]:
        files = (self._paths.site_file, self._paths.overlay)
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def _current(self) -> Site:
        """Return the site; a file that is wrong at the moment, as while it is edited, changes nothing."""
        with self._lock:
            stamp = self._now()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._site = self._load()
                except RackreadyError:
                    return self._site
            return self._site


@contextmanager
def _until_stopped(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` in a thread at SIGINT and SIGTERM: a handler must not wait for the loop that it interrupts."""

    def handler(_number: int, _frame: object) -> None:
        threading.Thread(target=stop, daemon=True).start()

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
