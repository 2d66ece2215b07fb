"""Makes an SSH key pair on the controller when it is absent. Many hosts may ask at once; one pair comes out."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible has no types
    """Returns ``public_key``; the private key is never returned."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset({"path", "comment"})

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run on the controller. Fails with what ssh-keygen says."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        path, comment = Path(self._task.args["path"]), self._task.args["comment"]
        public = path.with_name(path.name + ".pub")
        if self._task.check_mode and not public.exists():
            return result | {"changed": False, "public_key": f"ssh-ed25519 (made by the first run) {comment}"}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.with_name(path.name + ".lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not public.exists():
                path.unlink(missing_ok=True)
                self._make(path, comment)
        return result | {"changed": False, "public_key": public.read_text(encoding="utf-8").strip()}

    def _make(self, path: Path, comment: str) -> None:
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            message = "Expected: ssh-keygen on the controller Actual: not found. Install openssh-client, then run again."
            raise AnsibleActionFail(message) from error
        if done.returncode != 0:
            message = f"Expected: a key pair at {path} Actual: {done.stderr.strip() or done.stdout.strip()}. Correct it, then run again."
            raise AnsibleActionFail(message)
