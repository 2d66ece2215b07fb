"""Disk and seed of a virtual machine, on its hypervisor: made where they are absent, never written over.

Reads one JSON document: {"disk", "base", "size_gib", "seed", "files": {name: text}}, or {"remove": seed}. Standard
library alone; needs qemu-img, and xorriso or genisoimage for the seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_ISO_TOOLS: tuple[tuple[str, list[str]], ...] = (
    ("xorriso", ["-as", "mkisofs"]),
    ("genisoimage", []),
    ("mkisofs", []),
)


class DiskError(Exception):
    """What is missing, in words."""


def run(argv: list[str]) -> str:
    """Run a program and return its output. Raises DiskError with its last line."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise DiskError(f"`{' '.join(argv)}`: {last}")
    return done.stdout


def make_disk(disk: Path, base: Path, size_gib: int) -> bool:
    """Make a disk over a base image; leave one that exists as it is. Return whether it was made."""
    if disk.exists():
        return False
    if not base.is_file():
        raise DiskError(f"no base image {base}")
    part = disk.with_name(disk.name + ".part")
    part.unlink(missing_ok=True)
    run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base), "-F", "qcow2", str(part), f"{size_gib}G"])
    part.rename(disk)
    return True


def make_seed(seed: Path, files: dict[str, str]) -> bool:
    """Make the seed unless it has these files already. Return whether it was made."""
    mark = seed.with_name(seed.name + ".sha256")
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    if seed.exists() and mark.exists() and mark.read_text().strip() == digest:
        return False
    tool = next(([found, *more] for name, more in _ISO_TOOLS if (found := shutil.which(name))), None)
    if tool is None:
        raise DiskError("no xorriso and no genisoimage on the hypervisor")
    with tempfile.TemporaryDirectory(dir=seed.parent, prefix=".seed-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        part = seed.with_name(seed.name + ".part")
        run([*tool, "-quiet", "-volid", "cidata", "-joliet", "-rock", "-o", str(part), folder])
    part.rename(seed)
    mark.write_text(digest + "\n")
    return True


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Do what is asked and return what was made."""
    if "remove" in asked:
        seed = Path(asked["remove"])
        for path in (seed, seed.with_name(seed.name + ".sha256")):
            path.unlink(missing_ok=True)
        return {"removed": str(seed)}
    os.umask(0o077)
    return {
        "disk": make_disk(Path(asked["disk"]), Path(asked["base"]), int(asked["size_gib"])),
        "seed": make_seed(Path(asked["seed"]), dict(asked["files"])),
    }


def main() -> int:
    """Answer the request that is the last argument."""
    try:
        answer = work(json.loads(sys.argv[-1]))
    except (DiskError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
