"""Run a node's own tools and read small files, and print all of it as one JSON document.

Sent to python3 on standard input. The only argument is a JSON document: {"commands": [{"key", "argv", "timeout_s",
"keep", "each"}], "files": [glob, ...]}. ``keep`` is a regular expression: only matching lines of standard output are
sent, with the number of all lines. ``each`` is {"of": key of another command, "list": name, "field": name}: the command
runs once for every entry of that list in the other command's JSON output, with the entry's field in place of "{}" in
its arguments; its key gets a space and that value. The document carries a digest of its contents, so that a truncated
reading does not pass for an empty one.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FORMAT = "rackready/host-read/v1"
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""A login without a terminal may lack the folders of administrators' programs."""


def main() -> int:
    """Print the document; commands and files that failed are in it, and the reader decides what that means."""
    wanted = json.loads(sys.argv[1])
    document: dict[str, Any] = {
        "format": FORMAT,
        "commands": commands(wanted["commands"]),
        "files": {pattern: files(pattern) for pattern in wanted["files"]},
    }
    document["digest"] = digest(document["commands"], document["files"])
    document["complete"] = True
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def digest(done: Any, found: Any) -> str:  # noqa: ANN401 - whatever a damaged document holds
    """Return the SHA-256 of what was read."""
    return hashlib.sha256(json.dumps([done, found], sort_keys=True).encode()).hexdigest()


def commands(specs: list[dict[str, Any]]) -> dict[str, Any]:
    """Run commands side by side, then those that use other commands' lists, one after the other (they may measure)."""
    first = [spec for spec in specs if "each" not in spec]
    with ThreadPoolExecutor(max_workers=8) as pool:
        done = dict(zip([spec["key"] for spec in first], pool.map(run, first)))  # noqa: B905 - old interpreters know no strict
    for spec in specs:
        if "each" in spec:
            for value in listed(done.get(spec["each"]["of"]), spec["each"]):
                done[spec["key"] + " " + value] = run(
                    dict(spec, argv=[value if word == "{}" else word for word in spec["argv"]])
                )
    return done


def listed(answer: dict[str, Any] | None, each: dict[str, str]) -> list[str]:
    """Return the values over which a command repeats; none when the list cannot be read: its own entry shows why."""
    try:
        return [str(item[each["field"]]) for item in json.loads((answer or {}).get("stdout", ""))[each["list"]]]
    except (ValueError, KeyError, TypeError):
        return []


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one command in the C locale and return exit code, output, or the reason for their absence."""
    answer = {"argv": spec["argv"], "exit_code": None, "stdout": "", "stderr": "", "missing": False, "timed_out": False}
    env = dict(os.environ, LC_ALL="C", PATH=PLACES)
    try:
        done = subprocess.run(
            spec["argv"], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=spec["timeout_s"], check=False
        )
    except FileNotFoundError:
        return dict(answer, missing=True)
    except subprocess.TimeoutExpired:
        return dict(answer, timed_out=True)
    except OSError as error:
        return dict(answer, stderr=str(error))
    said = kept(spec, done.stdout.decode(errors="replace"))
    return dict(answer, exit_code=done.returncode, stderr=done.stderr.decode(errors="replace")[-4000:], **said)


def kept(spec: dict[str, Any], out: str) -> dict[str, Any]:
    """Return what to send of a program's standard output: all of it, or matching lines with the number of all."""
    if not spec.get("keep"):
        return {"stdout": out}
    lines = out.splitlines()
    return {"stdout": "".join(line + "\n" for line in lines if re.search(spec["keep"], line)), "lines": len(lines)}


def files(pattern: str) -> dict[str, str | None]:
    """Return path -> text of every file that a pattern matches; null where it cannot be read."""
    return {path: read(path) for path in sorted(glob.glob(pattern))}  # noqa: PTH207 - a pattern of kernel paths


def read(path: str) -> str | None:
    """Return a small file's text, None when it cannot be read."""
    try:
        with open(path, errors="replace") as file:  # noqa: PTH123 - sent alone, and short
            return file.read().strip()
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
