"""A checkout of its own for tests of the whole job: the same code and playbooks, its own state and simulated rack."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from rackready.design.overlays import merge
from rackready.design.site import load_site
from rackready.drivers.marked_processes import end_all, marked, project_mark
from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import EventRow, Ledger
from rackready.model.evidence import EvidenceRecord
from rackready.paths import EnvPaths
from rackready_sim.image import ensure_image, remove_images
from rackready_sim.plan import clone_id

ROOT = Path(__file__).resolve().parents[2]
_SHARED = ("playbooks", "roles", "plugins", "templates", "stacks", "ansible.cfg", "src")
_TIMEOUT_S = 1800
"""For a test that fails. A first deploy of four nodes took 713 s beside two other racks, and 924 s beside more."""


def cannot_run() -> str:
    """Why tests on the simulated rack cannot run here, "" when they can."""
    if os.geteuid() != 0:
        return "the simulated rack needs root (containers, network bridges)"
    missing = [tool for tool in ("podman", "runc", "mmdebstrap") if shutil.which(tool) is None]
    return f"{', '.join(missing)} not installed: run `make setup-sim`" if missing else ""


@contextmanager
def held_image(build: Path) -> Iterator[None]:
    """Hold the image of the simulated machines: the `sim down` of each root would remove it with its last name.

    Each worker of a test run holds it by a name of its own; the first one builds it, and the others wait for that.
    """
    holder = clone_id(ROOT / "tests" / os.environ.get("PYTEST_XDIST_WORKER", ""))
    try:
        with one_at_a_time():
            ensure_image(holder, build, lambda _: None)
        yield
    finally:
        remove_images(holder)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Keep workers of a test run from building the same image, or choosing a free subnet, in the same moment."""
    with (ROOT / ".rackready" / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def standing_rack(root: Path, env: str = "sim") -> Iterator[Project]:
    """Start an environment's simulated rack in a root of its own, every node powered off; take it down at the end."""
    made = Project(root, env)
    try:
        with one_at_a_time():
            code, text = made.run("sim", "up")
        assert code == 0, text + made.progress()
        yield made
    finally:
        made.close()


class Project:
    """One root: symbolic links to the code, a copy of inventories, and `.rackready` of its own (tools shared)."""

    def __init__(self, root: Path, env: str = "sim") -> None:
        self.root = root
        self.env = env
        root.mkdir(parents=True, exist_ok=True)
        for name in _SHARED:
            (root / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "inventories", root / "inventories")
        (root / ".rackready").mkdir(mode=0o700)
        (root / ".rackready" / "tools").symlink_to(ROOT / ".rackready" / "tools")
        self.paths = EnvPaths(root, env)
        self._children: list[subprocess.Popen[str]] = []

    def environment(self) -> dict[str, str]:
        """Return the environment of commands run in this root."""
        path = f"{Path(sys.executable).parent}:{ROOT}/.rackready/tools/bin:{os.environ['PATH']}"
        return os.environ | {"RACKREADY_ROOT": str(self.root), "ENV": self.env, "PATH": path, "COLUMNS": "200"}

    def change_site(self, change: dict[str, Any]) -> None:
        """Merge a change into the overlay of the site, as an edit of the operator would be."""
        overlay = yaml.safe_load(self.paths.overlay.read_text(encoding="utf-8"))
        self.paths.overlay.write_text(yaml.safe_dump(merge(overlay, change)), encoding="utf-8")

    def skip_incast(self, *nodes: str) -> None:
        """Declare that incast is skipped on these nodes: two have no third to receive."""
        why = "incast needs two senders and a receiver; this test uses two nodes"
        skip = {"gate": "cluster/fabric/stress/incast", "nodes": list(nodes), "reason": why}
        self.change_site({"gates": {"skip": [skip]}})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a rackready command; its progress goes to a file in the root."""
        progress = (self.root / "progress.log").open("a", encoding="utf-8")
        command = [sys.executable, "-m", "rackready", *arguments]
        child = subprocess.Popen(
            command,
            cwd=self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=progress,
            text=True,
        )
        self._children.append(child)
        return child

    def start_worker(self, name: str, out: Path, begin: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start a worker; its events go to a file. ``begin``: begins its command, as `ip netns exec NAME` does."""
        worker = [sys.executable, "-m", "rackready", "worker", "--name", name, "--output", "json"]
        with out.open("a", encoding="utf-8") as sink:
            child = subprocess.Popen(
                [*begin, *worker],
                cwd=self.root,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._children.append(child)
        return child

    def close(self) -> None:
        """Stop what a failed test left running, then take the rack down: `sim down` refuses beside a controller."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
                child.wait()
        if self.paths.state.exists():
            mark = project_mark(self.paths.database.file)
            end_all(lambda: marked(mark))
        self.run("sim", "down")

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a rackready command to its end. Returns its exit code and standard output."""
        child = self.start(*arguments)
        try:
            text, _ = child.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)
            raise
        return child.returncode, text

    def json(self, *arguments: str) -> tuple[int, Any]:
        """Run a command with ``--output json``. Returns its exit code and document."""
        code, text = self.run(*arguments, "--output", "json")
        return code, json.loads(text)

    def progress(self) -> str:
        """Return everything that commands said as progress (for assertion messages: its end)."""
        return (self.root / "progress.log").read_text(encoding="utf-8")

    def ledger(self) -> Ledger:
        """Return the ledger, for reading."""
        return Ledger.read_only(self.paths.database)

    def events(self) -> list[EventRow]:
        """Return the events of all campaigns, oldest first."""
        if not Ledger.exists(self.paths.database):
            return []
        ledger = self.ledger()
        found = [event for row in ledger.campaigns() for event in ledger.events(row["id"])]
        ledger.close()
        return sorted(found, key=lambda event: event.id)

    def evidence(self, campaign: str) -> list[EvidenceRecord]:
        """Return the evidence of a campaign, oldest first."""
        ledger = self.ledger()
        try:
            return EvidenceStore.read_only(ledger, self.paths.raw).records(campaign=campaign)
        finally:
            ledger.close()

    def until(
        self, child: subprocess.Popen[str], seen: Callable[[EventRow], bool], *, within_s: float = 300
    ) -> EventRow | None:
        """Wait until an event is seen, or the child has ended (None)."""
        after = max((event.id for event in self.events()), default=0)
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            ended = child.poll() is not None
            for event in self.events():
                if event.id > after and seen(event):
                    return event
            if ended:
                return None
            time.sleep(0.1)
        raise TimeoutError(self.progress()[-2000:])

    def states(self) -> dict[str, str]:
        """Return node -> state as `rackready status` says it."""
        _, document = self.json("status")
        return {node["name"]: node["state"] for node in document["nodes"]}

    def sinfo(self) -> dict[str, str]:
        """Return node -> state as Slurm's controller says it."""
        lines = self.ssh("slurmctl", "sinfo -N -h -o '%N %T'").splitlines()
        return dict(line.split() for line in lines if line)

    def power_log(self) -> list[dict[str, Any]]:
        """Return every power action that the BMCs did."""
        path = self.paths.base / "sim" / "logs" / "power.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def address(self, name: str) -> str:
        """Return the address of a node, switch or the Slurm controller (``slurmctl``)."""
        site = load_site(self.env, root=self.root)
        if name == "slurmctl":
            assert site.handover.kind == "slurm"
            return str(site.handover.controller)
        hosts = {node.name: str(node.address) for node in site.nodes()} | {
            switch.name: str(switch.address) for switch in site.switches
        }
        return hosts[name]

    def ssh(self, name: str, command: str) -> str:
        """Run a command on a node as the site's user, or on the Slurm controller as root, outside rackready."""
        user = "root" if name == "slurmctl" else load_site(self.env, root=self.root).access.user
        key = self.paths.base / "sim" / "keys" / "id_ed25519"
        options = [
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "LogLevel=ERROR",
            "-o",
            "ConnectTimeout=10",
        ]
        done = subprocess.run(
            ["ssh", "-i", str(key), *options, f"{user}@{self.address(name)}", command],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {command}: {done.stderr}"
        return done.stdout


def within(seconds: float, check: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(Exception):  # not yet: that is what is waited for
            if check():
                return True
        time.sleep(0.2)
    return False
