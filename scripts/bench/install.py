"""Measure the install phase on a simulated rack against stock Ansible with the same roles. usage: install.py [NODES].

Each of the two gets a new rack (inventories/bench-install, made and removed here), provisions it, installs it, and
installs it again with nothing to change. Stock Ansible is ansible-playbook with its default settings and 16 forks.
Prints one JSON line per run: wall time, and processor time of the controller alone (nodes are not its children).
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
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv/bin"
ENV = "bench-install"
FORKS = 16
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


def measured(what: str, run: str, nodes: int, argv: list[str], env: dict[str, str]) -> bool:
    """Run a command, print its line, and return whether it succeeded."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    line = {"bench": "install", "what": what, "run": run, "n": nodes, "exit": done.returncode}
    line |= {"seconds": round(time.perf_counter() - began, 1), "controller_cpu_s": round(cpu, 1)}
    print(json.dumps(line | {"controller_cpu_s_per_node": round(cpu / nodes, 2)}), flush=True)
    return done.returncode == 0


def new_rack() -> None:
    """Start a rack and provision its nodes."""
    for words in (["sim", "up", "--env", ENV], ["provision", "--env", ENV]):
        subprocess.run([BIN / "rackready", *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def end_rack() -> None:
    """Remove the rack and what it left in the checkout."""
    subprocess.run([BIN / "rackready", "sim", "down", "--env", ENV], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    shutil.rmtree(ROOT / ".rackready" / ENV, ignore_errors=True)


def main() -> int:
    """Measure both, and return the exit code."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    folder = ROOT / "inventories" / ENV
    stock = ROOT / ".rackready" / f"{ENV}.cfg"
    folder.mkdir()
    try:
        (folder / "site.yml").write_text(yaml.safe_dump(site(nodes), sort_keys=False))
        stock.write_text(STOCK.format(root=ROOT))
        ours = [str(BIN / "rackready"), "install", "--env", ENV, "--output", "json"]
        playbook = [str(BIN / "ansible-playbook"), "-i", str(folder), "--forks", str(FORKS)]
        theirs = [*playbook, str(ROOT / "playbooks/install.yml")]
        passed = True
        for what, argv, env in (("rackready", ours, {}), ("ansible", theirs, {"ANSIBLE_CONFIG": str(stock)})):
            end_rack()
            new_rack()
            # The first run without changes plays and records; those after it prove.
            for run in ("first", "no-op", "no-op again"):
                passed &= measured(what, run, nodes, argv, env)
        return 0 if passed else 1
    finally:
        end_rack()
        stock.unlink(missing_ok=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
