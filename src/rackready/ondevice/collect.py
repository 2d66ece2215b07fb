"""Run the commands of gates on a host that rackready does not reach, and pack the outputs. Needs python3 alone.

It is in a folder with plan.json (the commands) and pynvml.py. `python3 collect.py --by NAME` writes
rackready-captured-<node>-<time>.tar.gz there, which `rackready evidence import` reads. It judges nothing, and changes
nothing but what the commands themselves do.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from datetime import datetime, timezone
from typing import Any

FORMAT = "rackready/captured/v1"
HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
NOT_FOUND = 127
"""A shell's exit code when there is no such program."""


def main(arguments: list[str]) -> int:
    """Collect; exit 0 when everything was run, whatever the results."""
    parser = argparse.ArgumentParser(description="Collects outputs of gates for rackready.")
    parser.add_argument("--by", required=True, help="who captures it: a person or a team")
    parser.add_argument("--out", default=HERE, help="folder of the archive")
    options = parser.parse_args(arguments)
    with open(os.path.join(HERE, "plan.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
        plan = json.load(file)
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")  # noqa: UP017 - nodes may have an older Python
    folder = os.path.join(options.out, f"rackready-captured-{plan['node']}-{stamp}")  # noqa: PTH118
    os.makedirs(folder, mode=0o700)  # noqa: PTH103
    manifest = collect(plan, folder, options.by)
    write(folder, "manifest.json", json.dumps(manifest, indent=2) + "\n")
    pack(folder, folder + ".tar.gz")
    sys.stdout.write(folder + ".tar.gz\n")
    return 0


def pack(folder: str, path: str) -> None:
    """Pack the folder, readable for its owner alone, since outputs name serials and addresses.

    The archive gets its name only once it is complete.
    """
    part = path + ".part"
    with (
        os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        tarfile.open(fileobj=file, mode="w:gz") as archive,
    ):
        archive.add(folder, arcname=os.path.basename(folder))  # noqa: PTH119
    os.replace(part, path)  # noqa: PTH105


def collect(plan: dict[str, Any], folder: str, by: str) -> dict[str, Any]:
    """Run everything between two fingerprints, one command after the other by stage, and return the manifest."""
    files = {}
    files["fingerprint-before.json"] = write(folder, "fingerprint-before.json", run(plan["fingerprint"])["stdout"])
    outputs = []
    for number, item in enumerate(sorted(plan["commands"], key=lambda one: (one["order"], one["stage"]))):
        sys.stderr.write(f"{item['gate']} {item['key']} ...\n")
        answer, stem = run(item), f"{number:03d}-{item['key']}"
        files[stem + ".out"] = write(folder, stem + ".out", answer["stdout"])
        files[stem + ".err"] = write(folder, stem + ".err", answer["stderr"])
        outputs.append(line(plan["node"], item, answer, stem))
    files["fingerprint-after.json"] = write(folder, "fingerprint-after.json", run(plan["fingerprint"])["stdout"])
    return {"schema": FORMAT, "by": by, "outputs": outputs, "files": files}


def line(node: str, item: dict[str, Any], answer: dict[str, Any], stem: str) -> dict[str, Any]:
    """Return the manifest's entry of a command, whose output is in files of that stem."""
    return {
        "node": node,
        "gate": item["gate"],
        "key": item["key"],
        "run": item["run"],
        "exit_code": answer["exit_code"],
        "file": stem + ".out",
        "stderr_file": stem + ".err",
        "time": answer["time"],
        "seconds": answer["seconds"],
        "fingerprint": "fingerprint-before.json",
        "fingerprint_after": "fingerprint-after.json",
    }


def run(item: dict[str, Any]) -> dict[str, Any]:
    """Run one command in a session of its own.

    At its time limit it is ended with everything that it started, and has no exit code.
    """
    begun, stamp = time.monotonic(), datetime.now(timezone.utc).isoformat()  # noqa: UP017 - nodes may have an older Python
    environment = dict(os.environ, PYTHONPATH=HERE, **item["env"])
    code: int | None = None
    try:
        child = subprocess.Popen(
            item["argv"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        said, wrong, code = b"", f"{item['argv'][0]}: command not found ({error.strerror})".encode(), NOT_FOUND
    else:
        try:
            said, wrong = child.communicate(item["stdin"].encode(), timeout=item["timeout_s"])
            code = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            said, wrong = child.communicate()
    seconds = round(time.monotonic() - begun, 3)
    return {
        "stdout": said.decode(errors="replace"),
        "stderr": wrong.decode(errors="replace"),
        "exit_code": code,
        "seconds": seconds,
        "time": stamp,
    }


def write(folder: str, name: str, text: str) -> str:
    """Write a file of the capture, and return its SHA-256."""
    data = text.encode()
    with open(os.path.join(folder, name), "wb") as file:  # noqa: PTH118, PTH123
        file.write(data)
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
