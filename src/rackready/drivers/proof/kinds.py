"""How each action of a role is proven: which module reads it again, and what of the answer counts. One table.

An action that is neither in KINDS nor in ON_CONTROLLER cannot be proven: the node is played. tests/unit/proof walks
every task of the proven plays and refuses such an action, so that a new task cannot slip through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALL = True
HASH = "sha256"
Keep = bool | str | Mapping[str, Any]

_STAT = ("exists", "isreg", "isdir", "islnk", "lnk_source", "lnk_target", "mode", "uid", "gid", "size", "checksum")
_FOUND = ("path", "checksum", "mode", "uid", "gid", "size")


@dataclass(frozen=True, slots=True)
class Kind:
    """One action. ``module``: what runs on the node. ``read``: it has no check mode, so roles declare it a read."""

    module: str
    keep: Keep = ALL
    read: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that Ansible's own action adds."""

    @property
    def tells_change(self) -> bool:
        """Return whether the module itself says what it would change."""
        return not self.read


_PROGRAM: Keep = dict.fromkeys(("rc", "stdout", "stderr"), ALL)

KINDS: Mapping[str, Kind] = {
    "ansible.builtin.command": Kind("command", _PROGRAM, read=True),
    "ansible.builtin.shell": Kind("command", _PROGRAM, read=True, more={"_uses_shell": True}),
    "ansible.builtin.uri": Kind("uri", {"status": ALL, "msg": ALL, "content": HASH}, read=True),
    "ansible.builtin.stat": Kind("stat", {"stat": dict.fromkeys(_STAT, ALL)}),
    "ansible.builtin.find": Kind("find", {"matched": ALL, "files": dict.fromkeys(_FOUND, ALL)}),
    "ansible.builtin.setup": Kind("setup", {"ansible_facts": ALL}),
    "ansible.builtin.systemd_service": Kind(
        "systemd_service", dict.fromkeys(("changed", "name", "enabled", "state"), ALL)
    ),
    **{
        name: Kind(name)
        for name in (
            "rackready_apt_sources",
            "rackready_boot",
            "rackready_doca",
            "rackready_driver",
            "rackready_driver_change",
            "rackready_engines",
            "rackready_exporters",
            "rackready_files",
            "rackready_fresh_programs",
            "rackready_gpudirect",
            "rackready_host_tuning",
            "rackready_imex_channel",
            "rackready_kernel",
            "rackready_mig",
            "rackready_mps",
            "rackready_nic_config",
            "rackready_nic_names",
            "rackready_packages",
            "rackready_pcie_acs",
            "rackready_read_request",
            "rackready_settings",
            "rackready_time",
            "rackready_units",
            "rackready_upgrade_timers",
        )
    },
}
"""Action -> how it is proven."""

CHECK = "rackready_check"
ON_CONTROLLER: Mapping[str, str] = {
    CHECK: "it judges variables and answers: with equal ones it judges the same",
    "ansible.builtin.debug": "it prints",
    "ansible.builtin.validate_argument_spec": "Ansible judges a role's variables before its first task",
    "ansible.builtin.include_vars": "it reads files of the release, chosen by facts",
    "ansible.builtin.import_tasks": "it is replaced by the tasks of a file before the play",
    "ansible.builtin.import_role": "it is replaced by the tasks of a role before the play",
}
"""Actions that run nothing on the node, with the reason why nothing of them must be read again."""

ADDED = frozenset(
    f"_ansible_{name}"
    for name in (
        *("check_mode", "debug", "diff", "ignore_unknown_opts", "keep_remote_files", "module_name", "no_log"),
        *("remote_tmp", "selinux_special_fs", "shell_executable", "socket", "string_conversion_action"),
        *("syslog_facility", "target_log_info", "tmpdir", "tracebacks_for", "verbosity", "version"),
    )
)
"""Arguments that Ansible adds to those of a task: a proof adds its own (``payload``)."""

FENCE: Mapping[str, Any] = {"token": 0, "ledger": ""}
"""Arguments that a proof sets back: check mode changes nothing, so it holds no token of the controller."""


def short(action: str) -> str:
    """Return an action's name as the table has it."""
    name = action.rpartition(".")[2]
    return name if name.startswith("rackready_") else f"ansible.builtin.{name}"
