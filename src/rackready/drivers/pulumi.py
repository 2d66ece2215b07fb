"""Pulumi's engine: its path, its environment, and a stack opened through the Automation API.

State is in a file backend below ``.rackready/<env>/``, secrets under a generated passphrase. There is no account, no
update check and no telemetry; the user's own ``~/.pulumi`` is neither read nor written.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pulumi import automation as auto
from pulumi.automation._stack import StackInitMode

from rackready import files
from rackready.model.problems import RackreadyError
from rackready.paths import EnvPaths, private_dir, setup_command, state_base

PROJECT = "rackready-metal"
"""Name of the Pulumi project, as in stacks/metal/Pulumi.yaml."""
SERVICES = "rackready-services"
"""Name of the project of an environment's services, as in stacks/services/Pulumi.yaml."""
PROVIDER = "pulumi-resource-rackready"


class EngineError(RackreadyError):
    """Pulumi's engine cannot be used."""


class StackBusyError(RackreadyError):
    """Somebody else is working on the stack now."""


def stack_name(env: str, rack: str) -> str:
    """Return the name of a rack's stack."""
    return f"{env}-{rack}"


def search_path(root: Path) -> str:
    """Return the PATH for engine, provider and language host: our environment, set-up's tools, the caller's PATH."""
    return os.pathsep.join(
        [
            str(Path(sys.executable).parent),
            str(state_base(root) / "tools" / "bin"),
            os.environ.get("PATH", os.defpath),
        ]
    )


def require_engine(root: Path) -> Path:
    """Return the engine's executable. Raises EngineError when engine or provider is not installed."""
    path = search_path(root)
    engine = shutil.which("pulumi", path=path)
    if engine is None:
        raise EngineError(
            "Pulumi engine",
            expected="`pulumi` on the PATH or in .rackready/tools/bin",
            actual="none",
            next_step=f"Run `{setup_command(root)}`, which installs it; `rackready doctor` shows more.",
        )
    if shutil.which(PROVIDER, path=path) is None:
        raise EngineError(
            "Pulumi provider",
            expected=f"`{PROVIDER}` beside {sys.executable}",
            actual="none",
            next_step="Run `make setup`, which installs rackready into .venv; or install the package again.",
        )
    return Path(engine)


PASSPHRASE = "PULUMI_CONFIG_PASSPHRASE"  # noqa: S105 - a variable's name
"""A variable that must not be set: it wins over the file, even empty (pulumi/pulumi, readPassphrase in
pkg/secrets/passphrase/manager.go).
"""


def child_environment(paths: EnvPaths, *, campaign: str = "") -> dict[str, str]:
    """Return the whole environment of a program that starts the engine: the caller's own, and `environment` over it."""
    own = {key: value for key, value in os.environ.items() if key != PASSPHRASE}
    return own | environment(paths, campaign=campaign)


def environment(paths: EnvPaths, *, campaign: str = "") -> dict[str, str]:
    """Return the variables for engine and provider. Merge them over an environment without `PASSPHRASE`."""
    return {
        "PATH": search_path(paths.root),
        "PULUMI_BACKEND_URL": f"file://{paths.pulumi}",
        f"{PASSPHRASE}_FILE": str(passphrase_file(paths)),
        "PULUMI_HOME": str(private_dir(paths.pulumi / "home")),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SUPPRESS_COPILOT_LINK": "true",
        "NO_COLOR": "1",
        "RACKREADY_ROOT": str(paths.root),
        "RACKREADY_ENV": paths.env,
        "RACKREADY_STATE_DIR": str(paths.state),
        "RACKREADY_CAMPAIGN": campaign,
    }


def passphrase_file(paths: EnvPaths) -> Path:
    """Return the file with the passphrase of this environment's stacks, created at first use with mode 0600."""
    folder = private_dir(paths.state / "secrets")
    path = folder / "pulumi"
    if not path.exists():
        files.create(path, secrets.token_urlsafe(32).encode())  # the first of several processes wins
    return path


_SEALED = "passphrase.sha256"
"""File in a stack's work folder: the digest of the passphrase that the settings file there belongs to."""


def _settle_passphrase(paths: EnvPaths, work: Path, name: str) -> None:
    """Forget the salt of another passphrase, so that the engine makes one of ours.

    Earlier releases let the engine encrypt with the empty passphrase. A stack of ours holds references and no secret,
    and its settings file only the salt, so that nothing is lost. A state that does hold a secret stays as it is: the
    engine refuses to decrypt it.
    """
    digest = hashlib.sha256(passphrase_file(paths).read_bytes().strip()).hexdigest().encode()
    mark = work / _SEALED
    if mark.exists() and mark.read_bytes() == digest:
        return
    (work / f"Pulumi.{name}.yaml").unlink(missing_ok=True)
    files.replace(mark, digest)


class _Stack(auto.Stack):
    """A stack without summary and outputs after a run: they cost three engine starts, and results come from events."""

    def outputs(self) -> auto.OutputMap:
        """Return nothing: outputs of nodes come with the events."""
        return {}

    def info(self, show_secrets: bool = True) -> auto.UpdateSummary:  # noqa: ARG002, FBT001, FBT002 - the SDK's signature
        """Return a summary without content."""
        return auto.UpdateSummary("update", datetime.now(UTC), "", {}, {}, "not-asked")


def open_stack(
    paths: EnvPaths, rack: str, program: Callable[[], None], *, campaign: str = "", project: str = PROJECT
) -> auto.Stack:
    """Return the stack of a rack, or of another project's part, created at first use. Raises EngineError."""
    name = stack_name(paths.env, rack)
    work = private_dir(private_dir(paths.pulumi / "work") / (name if project == PROJECT else f"{project}.{name}"))
    settings = auto.ProjectSettings(
        name=project, runtime="python", main=str(work), backend=auto.ProjectBackend(url=f"file://{paths.pulumi}")
    )
    options = auto.LocalWorkspaceOptions(
        work_dir=str(work),
        program=program,
        env_vars=environment(paths, campaign=campaign),
        project_settings=settings,
        secrets_provider="passphrase",
    )
    try:
        _settle_passphrase(paths, work, name)
        workspace = auto.LocalWorkspace(**vars(options))
        return _Stack(name, workspace, StackInitMode.CREATE_OR_SELECT)
    except (auto.CommandError, OSError) as error:
        raise EngineError(
            f"Pulumi stack {name} in {paths.pulumi}",
            expected="it opens",
            actual=last_words(str(error)),
            next_step="Free disk space or correct the owner of that folder, then run again.",
        ) from error


_LOCKED_BY = re.compile(r"@(?P<host>[^@\s]+) \(pid (?P<pid>\d+)\)")
"""Who holds a lock, as in "created by root@head1 (pid 4242) at ..." (pulumi/pulumi, pkg/backend/diy/lock.go)."""


def free_lock(stack: auto.Stack, error: auto.ConcurrentUpdateError) -> None:
    """Remove the lock that a dead run left on a stack. Call it only while holding the controller lock.

    Raises StackBusyError when the lock's process is alive: somebody runs `pulumi` in the stack's folder. A process of
    another host, which shares the folder, cannot be looked at: it counts as alive.
    """
    for match in _LOCKED_BY.finditer(str(error)):
        host, pid = match["host"], match["pid"]
        if host != socket.gethostname():
            actual = f"locked by pulumi on {host}, pid {pid}"
            step = (
                f"Wait until it has ended on {host}. If it is gone for good, remove the stack's lock below "
                ".pulumi/locks in the environment's folder pulumi/, then run again."
            )
        elif _is_engine(int(pid)):
            actual, step = f"locked by pulumi, pid {pid}", "Wait until it has ended, then run again."
        else:
            continue
        raise StackBusyError(
            f"Pulumi stack {stack.name}", expected="not in use", actual=actual, next_step=step
        ) from error
    stack.cancel()


def _is_engine(pid: int) -> bool:
    """Whether a process is a running engine; a zombie is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    name, state = stat[stat.find("(") + 1 : stat.rfind(")")], stat[stat.rfind(")") + 2]
    return name.startswith("pulumi") and state != "Z"


def last_words(text: str) -> str:
    """Return the line of a tool's output that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors or lines or ["no output"])[-1].removeprefix("error: ")
