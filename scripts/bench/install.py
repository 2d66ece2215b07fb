"""Measure the install phase by push, by pull and with stock Ansible, same roles. usage: install.py [NODES ...].

Each of the three gets a new rack (inventories/bench-install, made and removed here), provisions it, installs it, and
installs it twice more with nothing to change. Stock Ansible is ansible-playbook with its default settings and 16 forks.
Prints one JSON line per run: wall time; processor time of the controller alone (nodes are not its children), with that
of `rackready release serve` where nodes pull; and the bytes that the controller sent into the rack, as the counter of
its own interface there has them (/sys/class/net/.../statistics/tx_bytes), headers and SSH included.
Needs root. Exit codes: 0 measured, 1 a run failed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from rackready.paths import EnvPaths
from rackready_sim.plan import clone_id

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv/bin"
ENV = "bench-install"
FORKS = 16
PULL_PORT = 8480
_PER_RACK, _PORTS = 5, 4
STOCK = """[defaults]
roles_path = {root}/roles
library = {root}/plugins/modules
action_plugins = {root}/plugins/action
filter_plugins = {root}/plugins/filter
inventory_plugins = {root}/plugins/inventory
module_utils = {root}/src
[inventory]
enable_plugins = rackready
ignore_patterns = ^secrets$, ^profiles$
ignore_extensions = .mk, .cfg
"""


def site(nodes: int) -> dict[str, Any]:
    """Return the simulated rack's site with this many nodes, each with four ports of either leaf."""
    document: dict[str, Any] = yaml.safe_load(
        (ROOT / "inventories/sim/site.yml").read_text().replace(".rackready/sim/", f".rackready/{ENV}/")
    )
    model = document["racks"][0]["nodes"][0]
    document["name"] = ENV
    document["racks"] = [
        {
            "name": f"rack{first // _PER_RACK + 1:02d}",
            "nodes": [
                {
                    **model,
                    "name": f"node{number:02d}",
                    "serial": f"SIM-BENCH-{number:04d}",
                    "unit": (number - 1) % _PER_RACK * 8 + 1,
                    "address": f"192.0.2.{number + 30}",
                    "bmc": {
                        **model["bmc"],
                        "address": f"192.0.2.{number + 130}",
                        "password": {"file": f".rackready/{ENV}/secrets/node{number:02d}-bmc"},
                    },
                }
                for number in range(first + 1, min(first + _PER_RACK, nodes) + 1)
            ],
        }
        for first in range(0, nodes, _PER_RACK)
    ]
    document["links"] = [
        {
            "node": f"node{number:02d}",
            "rails": rails,
            "switch": leaf,
            "ports": f"swp{(number - 1) * _PORTS + 1}-swp{number * _PORTS}",
        }
        for number in range(1, nodes + 1)
        for rails, leaf in (("1-4", "leaf01"), ("5-8", "leaf02"))
    ]
    return document


def sent() -> int:
    """Return the bytes that this machine has sent into the rack."""
    return int(Path(f"/sys/class/net/rr-{clone_id(ROOT)}/statistics/tx_bytes").read_text())


def used(pid: int | None) -> float:
    """Return the processor time of a process so far, seconds; 0 for none (proc_pid_stat(5), fields 14 and 15)."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(what: str, run: str, nodes: int, argv: list[str], env: dict[str, str], server: int | None) -> bool:
    """Run a command, print its line, and return whether it succeeded. ``server``: a process that works for it."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    served, bytes_before = used(server), sent()
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    served = used(server) - served
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + served
    line = {"bench": "install", "what": what, "run": run, "n": nodes, "exit": done.returncode}
    line |= {"seconds": round(time.perf_counter() - began, 1), "controller_cpu_s": round(cpu, 1)}
    line |= {"controller_cpu_s_per_node": round(cpu / nodes, 2), "server_cpu_s": round(served, 1)}
    print(json.dumps(line | {"sent_mib": round((sent() - bytes_before) / 2**20, 1)}), flush=True)
    return done.returncode == 0


@contextmanager
def pulling(folder: Path) -> Iterator[int]:
    """Let the rack's nodes pull, and serve their releases; yield the server's process."""
    address = str(yaml.safe_load(EnvPaths(ROOT, ENV).overlay.read_text())["racks"][0]["nodes"][0]["address"])
    url = f"{address.rpartition('.')[0]}.1:{PULL_PORT}"
    document = yaml.safe_load((folder / "site.yml").read_text())
    (folder / "site.yml").write_text(yaml.safe_dump({**document, "pull": {"url": f"http://{url}"}}, sort_keys=False))
    argv = [str(BIN / "rackready"), "release", "serve", "--env", ENV, "--listen", url]
    with (ROOT / ".rackready" / f"{ENV}.serve.log").open("w") as log:
        server = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://{url}/health", timeout=2).close()
                break
            except OSError:
                time.sleep(0.2)
        yield server.pid
    finally:
        server.terminate()
        server.wait()


def new_rack() -> None:
    """Start a rack and provision its nodes."""
    for words in (["sim", "up", "--env", ENV], ["provision", "--env", ENV]):
        subprocess.run([BIN / "rackready", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def end_rack() -> None:
    """Remove the rack and what it left in the checkout."""
    subprocess.run([BIN / "rackready", "sim", "down", "--env", ENV], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    shutil.rmtree(ROOT / ".rackready" / ENV, ignore_errors=True)


def one_size(nodes: int, folder: Path, stock: Path) -> bool:
    """Measure all three on racks of one size, and return whether every run succeeded."""
    ours = [str(BIN / "rackready"), "install", "--env", ENV, "--output", "json"]
    playbook = [str(BIN / "ansible-playbook"), "-i", str(folder), "--forks", str(FORKS)]
    theirs = [*playbook, str(ROOT / "playbooks/install.yml")]
    passed = True
    for what, argv, env in (
        ("rackready push", ours, {}),
        ("rackready pull", ours, {}),
        ("ansible", theirs, {"ANSIBLE_CONFIG": str(stock)}),
    ):
        end_rack()
        (folder / "site.yml").write_text(yaml.safe_dump(site(nodes), sort_keys=False))
        new_rack()
        with pulling(folder) if what == "rackready pull" else nullcontext() as server:
            # The first run without changes plays and records; those after it prove. A pulled node plays each time.
            for run in ("first", "no-op", "no-op again"):
                passed &= measured(what, run, nodes, argv, env, server)
    return passed


def main() -> int:
    """Measure every size, and return the exit code."""
    sizes = [int(word) for word in sys.argv[1:]] or [16]
    folder = ROOT / "inventories" / ENV
    stock = ROOT / ".rackready" / f"{ENV}.cfg"
    folder.mkdir()
    try:
        stock.write_text(STOCK.format(root=ROOT))
        passed = True
        for nodes in sizes:
            passed &= one_size(nodes, folder, stock)
        return 0 if passed else 1
    finally:
        end_rack()
        stock.unlink(missing_ok=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
