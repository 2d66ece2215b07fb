"""Run the modules of a recorded play again, one after the other, and print what each one answers as one JSON document.

Sent as an argument of python3; the request is one JSON document on standard input: {"modules": base64 of a zip file
with Ansible's module_utils and the modules, "steps": [{"module", "args", "kind", "keep"}, ...], "limit_s"}. Modules
that can change something get check mode in their arguments. Nothing is written on the node: the zip file is in memory.

``keep`` says what of an answer counts: true for all of it, a tree of keys, or "sha256" for a hash in its place. Values
that it does not name never leave the node. The document has a digest of its steps: a truncated one is no answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module
from typing import Any

FORMAT = "rackready/replay/v1"
NOISE = ("invocation", "diff", "warnings", "deprecations", "exception")
"""Keys of any answer that never count: a module's own arguments, contents of files, and words about Ansible."""
_POLL_S = 0.005
_PLACE = "/proc/self/fd/%d"


def main() -> int:
    """Run the steps of the request and print the document."""
    request = json.loads(sys.stdin.buffer.readline())
    sys.path.insert(0, in_memory(base64.b64decode(request["modules"])))
    import_module("ansible.module_utils.basic")  # once, and not in every child
    begun = time.monotonic()
    answers = []
    for step in request["steps"]:
        left = request["limit_s"] - (time.monotonic() - begun)
        answers.append(dict(answer(step, left), at_s=round(time.monotonic() - begun, 3)))
    document = {
        "format": FORMAT,
        "host": socket.gethostname(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "python": sys.version.split()[0],
        "steps": answers,
        "seconds": round(time.monotonic() - begun, 3),
        "digest": digest(answers),
        "complete": True,
    }
    sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    return 0


def digest(steps: Any) -> str:  # noqa: ANN401 - whatever a damaged document holds
    """Return the SHA-256 of what the steps answered."""
    return hashlib.sha256(json.dumps(steps, sort_keys=True).encode()).hexdigest()


def in_memory(data: bytes) -> str:
    """Return a path under which Python finds the zip file: it is in memory, and gone with this process."""
    descriptor = os.memfd_create("rackready-modules", 0)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    return _PLACE % descriptor


def answer(step: dict[str, Any], left_s: float) -> dict[str, Any]:
    """Return what one module answers: its exit status and what counts of its result, or why there is none."""
    if left_s <= 0:
        return {"failure": "no time was left"}
    outputs = [os.memfd_create(name, 0) for name in ("stdout", "stderr")]
    try:
        status = played(step, outputs, left_s)
        text, words = (content(descriptor) for descriptor in outputs)
    finally:
        for descriptor in outputs:
            os.close(descriptor)
    if status is None:
        return {"failure": "it ran too long"}
    try:
        result = json.loads(text)
    except ValueError:
        return {"status": status, "failure": "no JSON: " + (words or text).strip()[-400:]}
    if not isinstance(result, dict):
        return {"status": status, "failure": "no JSON object"}
    out = {"status": status, "result": reduced(result, step["keep"])}
    out.update({key: result[key] for key in ("changed", "failed") if key in result})
    if result.get("failed"):
        out["failure"] = str(result.get("msg", ""))[-400:]
    return out


def reduced(result: Any, keep: Any) -> Any:  # noqa: ANN401 - JSON types
    """Return what counts of a result."""
    if keep == "sha256":
        return "sha256:" + hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
    if isinstance(keep, dict) and isinstance(result, list):
        return [reduced(item, keep) for item in result]
    if isinstance(keep, dict) and isinstance(result, dict):
        return {key: reduced(result[key], keep[key]) for key in sorted(keep) if key in result}
    if isinstance(result, dict) and keep is True:
        return {key: result[key] for key in sorted(result) if key not in NOISE and not key.startswith("_ansible_")}
    return result


def played(step: dict[str, Any], outputs: list[int], left_s: float) -> int | None:
    """Run one module in a child process and return its exit status; None when it ran too long and was ended."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        run(step, outputs)
    deadline = time.monotonic() + left_s
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        if time.monotonic() > deadline:
            end(child)
            return None
        time.sleep(_POLL_S)


def end(child: int) -> None:
    """End a module and the commands that it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def run(step: dict[str, Any], outputs: list[int]) -> None:
    """Be the module: never returns. Ansible's own loader runs it, as in a play."""
    status = 1
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in zip([nothing, *outputs], (0, 1, 2)):  # noqa: B905 - old interpreters know no strict
            os.dup2(source, target)
        sys.argv = [step["module"]]
        loader = import_module("ansible.module_utils._internal._ansiballz._loader")

        loader.run_module(
            json_params=json.dumps({"ANSIBLE_MODULE_ARGS": step["args"]}).encode(),
            profile="legacy",
            module_fqn="ansible.modules." + step["module"],
            modlib_path=sys.path[0],
            extensions={},
        )
    except SystemExit as done:
        status = done.code if isinstance(done.code, int) else int(done.code is not None)
    except BaseException as error:  # noqa: BLE001 - a forked child must not go on as its parent
        sys.stderr.write(repr(error))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def content(descriptor: int) -> str:
    """Return what a child wrote."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read().decode(errors="replace")


def read(path: str) -> str:
    """Return a small file's text, "" when it cannot be read."""
    try:
        with open(path) as file:  # noqa: PTH123 - sent alone, and short
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
