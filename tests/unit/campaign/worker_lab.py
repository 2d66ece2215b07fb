"""A lab of workers: a site with two halls, a database, and the programs of ``fake_workers`` as processes."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from rackready.paths import Database
from tests import forked
from tests.integration.worker_nets import Nets
from tests.postgres import PostgresServer, name_of
from tests.unit.cli.keys import put_key
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).with_name("fake_workers.py")
SITE = ROOT / "inventories/examples/lab-4-nodes.yml"
TWO_HALLS = """halls:
  - {name: a, rows: [r1], row_pitch_m: 2, tray_height_m: 3, ways_m: {b: 10}}
  - {name: b, rows: [r1], row_pitch_m: 2, tray_height_m: 3}
racks:
  - name: rack01
    hall: a
    row: r1
    position: 1
    nodes:
      - {name: "node[01-02]", template: h100, index: {first: 1},
         unit: {first: 1, step: 8}, address: {first: 192.0.2.11}, bmc: {address: {first: 192.0.2.111}}}
  - name: rack02
    hall: b
    row: r1
    position: 1
    nodes:
      - {name: "node[03-04]", template: h100, index: {first: 3},
         unit: {first: 1, step: 8}, address: {first: 192.0.2.13}, bmc: {address: {first: 192.0.2.113}}}
"""
WITHIN_S = 180.0


class Lab:
    """One root, which all processes share, with a database of its own. ``nets``: each worker is a machine of them."""

    def __init__(self, root: Path, server: PostgresServer, nets: Nets | None = None, **use: Any) -> None:
        self.root, self.server = root, server
        self._given = nets
        self._running: list[forked.Child] = []
        way = {} if nets is None else server.over_tcp()
        self.database: Database = server.database(root, workers={"lease_s": 20, **use}, **way)
        write_site(root)

    @property
    def nets(self) -> Nets:
        """Return its machines."""
        assert self._given is not None
        return self._given

    def start(self, *arguments: str, mode: str = "run", root: Path | None = None, **env: str) -> forked.Child:
        """Start a process; its output goes to a file named after it."""
        on = self._given.inside(arguments[1]) if self._given is not None and arguments[0] == "worker" else []
        with (self.root / f"{'-'.join(arguments)}.out").open("a", encoding="utf-8") as out:
            child = forked.start(
                [PROGRAM, root or self.root, *arguments], out=out, env=os.environ | {"MODE": mode} | env, on=on
            )
        self._running.append(child)
        return child

    def worker(self, name: str, *labels: str, mode: str = "run", **env: str) -> forked.Child:
        """Start a worker and wait until it has signed on, or has ended."""
        child = self.start("worker", name, *labels, mode=mode, **env)
        until(lambda: child.poll() is not None or "ready" in [one["event"] for one in self.told(name, *labels)])
        return child

    def said(self, *arguments: str) -> str:
        """Return what a process printed."""
        path = self.root / f"{'-'.join(arguments)}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def told(self, name: str, *labels: str) -> list[dict[str, Any]]:
        """Return the events of a worker."""
        lines = self.said("worker", name, *labels).splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("}")]

    def world(self) -> list[str]:
        """Return the nodes on which the thing was done, each time."""
        path = self.root / "world.log"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def begun(self) -> list[str]:
        """Return the batches that began, with the token of each."""
        path = self.root / "did.log"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def go(self) -> None:
        """Let those that wait go on."""
        (self.root / "go").touch()

    def ended(self, child: forked.Child) -> int:
        """Return the exit code of a process that ends."""
        return child.wait(timeout=WITHIN_S)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the database."""
        return self.server.sql(statement, name_of(self.database))

    def claims(self) -> list[tuple[str, str]]:
        """Return worker and end of each claim, in the order of their tokens."""
        with suppress(psycopg.errors.UndefinedTable):
            return [(row[0], row[1]) for row in self.sql("SELECT worker, how FROM claims ORDER BY token")]
        return []

    def batch_of(self, child: forked.Child) -> int:
        """Return the process in which a worker runs its batch."""
        found: list[int] = []

        def look() -> bool:
            text = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text(encoding="ascii")
            found[:] = [int(word) for word in text.split()]
            return bool(found)

        until(look)
        return found[0]

    def close(self) -> None:
        """End what runs."""
        for child in self._running:
            if child.poll() is None:
                with suppress(ProcessLookupError):
                    child.send_signal(signal.SIGCONT)
                child.kill()
                child.wait()


def write_site(root: Path) -> None:
    """Write the site with two halls, and the controller's key."""
    head, _, rest = SITE.read_text(encoding="utf-8").partition("racks:\n")
    path = root / "inventories/lab/site.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}{TWO_HALLS}{rest[rest.index('switches:') :]}", encoding="utf-8")
    if not (key := path.parent / "secrets/id_ed25519").exists():
        put_key(key)
