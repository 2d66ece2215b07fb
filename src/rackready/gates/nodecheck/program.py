"""The program that Slurm runs on a node: measures, judges, and drains the node with the first finding as reason.

Slurm gives its Prolog, Epilog and HealthCheckProgram no arguments. The program ends with 0 for a node that is fit for
jobs, else with 1: after a Prolog that ends so, Slurm requeues the job (slurm.conf(5), Prolog). The reason must be set
before that, because a drained node keeps its reason. It never resumes a node, and never changes the reason of one that
is drained already. With ``--look`` it only prints what it found, and so around a job of root: rackready and the
cluster's operators measure faulty nodes with such jobs, also nodes whose parts were replaced.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from rackready.gates.nodecheck.judge import DF_COLUMNS, Check, Found, ToolEnd

NODE_FILE = "/etc/rackready/slurm-check.json"
FORMAT = "rackready/slurm-check/v1"
PREFIX = "rackready: check: "
"""Begins every reason that the check sets; what begins with "rackready:" may be undone by rackready alone."""
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/slurm/sbin:/opt/slurm/bin"
OWNER = "SLURM_JOB_UID"
"""Number of the job's owner, set by slurmd for prolog and epilog (src/plugins/prep/script/prep_script_slurmd.c)."""
SLURM_S = 4.0
"""Longest wait for one call of scontrol, s; two fit into the time limit, and no more are made."""
REASON_CHARS = 250
"""Longest reason. Our judgement: it is one line of `sinfo -R`."""
_STATE = re.compile(r"^NodeName=\S+.*? State=(\S+)", re.MULTILINE)


def main(table: Mapping[str, Any], argv: Sequence[str], node_file: str = NODE_FILE) -> int:
    """Check the node; return 0 when it is fit for jobs."""
    os.environ.update(LC_ALL="C", PATH=f"{os.environ.get('PATH', '')}:{PLACES}".lstrip(":"))
    start = time.monotonic()
    try:
        node = json.loads(Path(node_file).read_text(encoding="utf-8"))
        if node.get("format") != FORMAT:
            raise ValueError(f"format {node.get('format')}, not {FORMAT}")  # noqa: TRY301 - one place says it
    except (OSError, ValueError) as error:
        name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".", 1)[0]
        node, words = {"node": name}, [f"{node_file} unreadable ({error})"]
    else:
        words = findings(table, node, start)
    for line in words:
        sys.stdout.write(f"{line}\n")
    if "--look" not in argv and os.environ.get(OWNER) == "0":
        return 0
    if words and "--look" not in argv:
        drain(str(node["node"]), reason_of(words))
    return 1 if words else 0


def findings(table: Mapping[str, Any], node: Mapping[str, Any], start: float) -> list[str]:
    """Return what is wrong, one line each. A defect of the check itself is a finding, too: it did not measure."""
    limit_s = float(node["limit_s"]) - 2 * SLURM_S
    try:
        done = run_all(commands(node), start + limit_s, limit_s)
        return [found.text() for found in Check(node, table).judge(done)]
    except Exception as error:  # noqa: BLE001 - whatever it is, the node was not measured
        return [Found("not-measured", "", "the check did not measure", f"{type(error).__name__}: {error}").text()]


def commands(node: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the commands by key."""
    return {
        "smi": ["nvidia-smi", "-q", "-x"],
        "log": ["journalctl", "--dmesg", "--boot", "--no-pager", "--output=short-iso"],
        "disks": ["df", f"--output={','.join(DF_COLUMNS)}", "--block-size=1", *node["filesystems"]],
        **({"nvlink": ["nvidia-smi", "nvlink", "-s"]} if node["nvlinks"] else {}),
        **({"units": ["systemctl", "is-active", *node["units"]]} if node["units"] else {}),
    }


def run_all(wanted: Mapping[str, Sequence[str]], deadline: float, limit_s: float) -> dict[str, ToolEnd]:
    """Run commands side by side, and return what has ended by the deadline (time.monotonic).

    A program that hangs in the driver cannot be killed, so none is waited for after the deadline. Outputs go to files
    in memory: a disk may be full, and a pipe that a hung program holds open would keep slurmd waiting.
    """
    started = {key: _start(argv) for key, argv in wanted.items()}
    while time.monotonic() < deadline and any(_runs(process) for process, _ in started.values()):
        time.sleep(0.05)
    return {key: _ended(process, file, limit_s) for key, (process, file) in started.items()}


def _start(argv: Sequence[str]) -> tuple[subprocess.Popen[bytes] | str, IO[bytes]]:
    file = os.fdopen(os.memfd_create(argv[0]), "w+b", buffering=0)
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    except OSError as error:
        return f"{argv[0]}: {error.strerror}", file
    return process, file


def _runs(process: subprocess.Popen[bytes] | str) -> bool:
    return not isinstance(process, str) and process.poll() is None


def _ended(process: subprocess.Popen[bytes] | str, file: IO[bytes], limit_s: float) -> ToolEnd:
    with file:
        if isinstance(process, str):
            return ToolEnd(-1, "", process)
        code = process.poll()
        if code is None:
            with suppress(OSError):
                process.kill()
            return ToolEnd(-1, "", f"no answer within {limit_s:g} s")
        file.seek(0)
        return ToolEnd(code, file.read().decode("utf-8", errors="replace"))


def reason_of(words: Sequence[str]) -> str:
    """Return the reason for Slurm: the first finding, and how many there are."""
    more = f" (+{len(words) - 1} more)" if len(words) > 1 else ""
    plain = re.sub(r"[^\x20-\x7e]", "?", words[0])
    return f"{PREFIX}{plain}"[: REASON_CHARS - len(more)] + more


def drain(node: str, reason: str) -> None:
    """Drain the node with a reason, unless it is drained: nobody's reason is replaced, ours included."""
    state = _scontrol("show", "node", node, "--oneliner")
    match = _STATE.search(state.out)
    if state.failure or state.code != 0 or match is None:
        sys.stderr.write(f"rackready: scontrol show node {node}: {_said(state)}\n")
    elif "DRAIN" not in match[1].upper().split("+"):
        done = _scontrol("update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
        if done.failure or done.code != 0:
            sys.stderr.write(f"rackready: scontrol update NodeName={node} State=DRAIN: {_said(done)}\n")


def _scontrol(*words: str) -> ToolEnd:
    return run_all({"scontrol": ["scontrol", *words]}, time.monotonic() + SLURM_S, SLURM_S)["scontrol"]


def _said(done: ToolEnd) -> str:
    return done.failure or f"exit code {done.code}: {' '.join(done.out.split())[:200]}"
