"""Run the engine on the services stack, in a child process that a later run can find and end.

``python -m rackready.stacks.services_run`` is that child: it reads one JSON request from standard input, and writes the
error, if there is one, to the file that the request names.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pulumi import automation as auto

from rackready import files
from rackready.drivers import pulumi as engine
from rackready.drivers.boot_service import BootServiceError
from rackready.drivers.process import run_child
from rackready.ledger.store import Ledger
from rackready.model.problems import RackreadyError
from rackready.model.site import Site
from rackready.paths import EnvPaths, private_dir
from rackready.stacks.boot import BootArgs
from rackready.stacks.events import clean
from rackready.stacks.services import boot_args, declare

STACK = "services"
_TIMEOUT_S = 300.0
"""The engine takes some 3 s, the search for other DHCP servers 3 s, a large ramdisk a few more."""
_GENERAL = "update failed"
"""The engine's own last word after the error of a resource."""


def up(site: Site, paths: EnvPaths, *, campaign: str = "") -> None:
    """Start the boot service, or bring it back to what the site says; call it with the controller lock.

    Raises RackreadyError.
    """
    _child(paths, "up", boot_args(site, paths).model_dump(mode="json"), campaign)


def destroy(paths: EnvPaths, *, campaign: str = "") -> None:
    """Stop the boot service and remove all its files; call it with the controller lock.

    Raises RackreadyError, also while a node is armed.
    """
    _child(paths, "destroy", None, campaign)


def _child(paths: EnvPaths, action: str, args: dict[str, Any] | None, campaign: str) -> None:
    engine.require_engine(paths.root)
    log = private_dir(paths.logs / (campaign or STACK)) / f"{STACK}.log"
    env = engine.child_environment(paths, campaign=campaign)
    argv = [sys.executable, "-m", "rackready.stacks.services_run"]
    with tempfile.TemporaryDirectory(dir=private_dir(paths.state), prefix="services-") as scratch:
        result = Path(scratch) / "error"
        request = {"root": str(paths.root), "env": paths.env, "action": action, "args": args, "result": str(result)}
        with Ledger.open(paths.database) as ledger:
            ended = run_child(
                argv,
                log=log,
                cwd=paths.root,
                env=env,
                stdin_text=json.dumps({**request, "campaign": campaign}),
                timeout_s=_TIMEOUT_S,
                ledger=ledger,
                what=f"pulumi {action} of services",
            )
        if result.exists():
            raise BootServiceError(result.read_text(encoding="utf-8"))
    if ended.returncode != 0:
        raise BootServiceError(
            f"stack {paths.env}-{STACK}",
            expected=f"{action} ends",
            actual=f"stopped after {_TIMEOUT_S:.0f} s" if ended.timed_out else f"exit status {ended.returncode}",
            next_step=f"Look at {log}, then run again.",
        )


def run(request: dict[str, Any]) -> str:
    """Run the engine and return the error, "" for none."""
    paths = EnvPaths(Path(request["root"]), request["env"])
    args = BootArgs.model_validate(request["args"]) if request["args"] else None
    program: Callable[[], None] = partial(declare, args) if args else lambda: None
    errors: list[str] = []

    def take(event: auto.EngineEvent) -> None:
        found = event.diagnostic_event
        if found is not None and found.severity == "error" and (text := clean(found.message)) != _GENERAL:
            errors.append(text)

    try:
        stack = engine.open_stack(paths, STACK, program, campaign=request["campaign"], project=engine.SERVICES)
        try:
            _operate(stack, request["action"], take)
        except auto.ConcurrentUpdateError as error:
            engine.free_lock(stack, error)
            _operate(stack, request["action"], take)
    except auto.CommandError as error:
        return errors[0] if errors else engine.last_words(str(error))
    except RackreadyError as error:
        return str(error)
    return ""


def _operate(stack: auto.Stack, action: str, take: Callable[[auto.EngineEvent], None]) -> None:
    common: dict[str, Any] = {"on_event": take, "on_output": _echo, "on_error": _echo, "color": "never"}
    if action == "destroy":
        stack.destroy(refresh=True, **common)
    else:
        stack.up(refresh=True, suppress_outputs=True, **common)


def _echo(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - goes into the log of the run


def main() -> None:
    """Run the request on standard input."""
    request = json.load(sys.stdin)
    if error := run(request):
        files.replace(Path(request["result"]), error.encode())


if __name__ == "__main__":
    main()
