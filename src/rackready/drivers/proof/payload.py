"""What a proof sends to a node: Ansible's module_utils, the modules, rackready's own code for nodes, and the steps."""

from __future__ import annotations

import base64
import inspect
import io
import json
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ansible
from ansible import constants
from ansible.release import __version__ as ansible_version

from rackready.drivers.proof.kinds import KINDS
from rackready.drivers.proof.recorded import Recorded, RecordedStep
from rackready.ondevice import replay
from rackready.paths import shipped

_ANSIBLE = Path(ansible.__file__).parent
_UTILS = "ansible/module_utils/rackready"
"""Where modules find rackready: ansible.cfg, ``module_utils = src``."""


def command() -> tuple[str, ...]:
    """Return the command that reads the request: alone, without the site's or a user's own Python settings."""
    return ("/usr/bin/python3", "-I", "-c", inspect.getsource(replay))


def request(recorded: Recorded, limit_s: float) -> str:
    """Return the request for a node, one line."""
    steps = [_step(step) for step in recorded.steps]
    return json.dumps({"modules": modules(), "steps": steps, "limit_s": limit_s}) + "\n"


def _step(step: RecordedStep) -> dict[str, Any]:
    kind = KINDS[step.action]
    args = {**step.args, **kind.more, **_internal(kind.module), "_ansible_check_mode": not kind.read}
    return {"module": kind.module, "args": args, "keep": step.keep}


def _internal(module: str) -> dict[str, Any]:
    """Return the arguments that Ansible gives to every module (ActionBase._update_module_args of 2.19)."""
    return {
        "_ansible_no_log": False,
        "_ansible_debug": False,
        "_ansible_diff": False,
        "_ansible_verbosity": 0,
        "_ansible_version": ansible_version,
        "_ansible_module_name": module,
        "_ansible_syslog_facility": constants.DEFAULT_SYSLOG_FACILITY,
        "_ansible_selinux_special_fs": list(constants.DEFAULT_SELINUX_SPECIAL_FS),
        "_ansible_socket": None,
        "_ansible_shell_executable": "/bin/sh",
        "_ansible_keep_remote_files": False,
        "_ansible_tmpdir": None,
        "_ansible_remote_tmp": "~/.ansible/tmp",
        "_ansible_ignore_unknown_opts": False,
        "_ansible_target_log_info": None,
        "_ansible_tracebacks_for": [],
    }


@cache
def modules() -> str:
    """Return the zip file in base64. Its content is the release's, so it is made once in a process."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in _files():
            archive.writestr(name, path.read_bytes())
        for name in ("ansible/__init__.py", "ansible/modules/__init__.py"):
            archive.writestr(name, b"")
    return base64.b64encode(out.getvalue()).decode()


def _files() -> Iterator[tuple[str, Path]]:
    for path in sorted((_ANSIBLE / "module_utils").rglob("*.py")):
        yield f"ansible/{path.relative_to(_ANSIBLE)}", path
    own = shipped() / "src/rackready"
    yield f"{_UTILS}/__init__.py", own / "__init__.py"
    for path in sorted((own / "ondevice").rglob("*.py")):
        yield f"{_UTILS}/{path.relative_to(own)}", path
    for module in sorted({kind.module for kind in KINDS.values()}):
        ours = shipped() / "plugins/modules" / f"{module}.py"
        yield f"ansible/modules/{module}.py", ours if ours.exists() else _ANSIBLE / "modules" / f"{module}.py"
