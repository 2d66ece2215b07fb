"""Shell scripts with which a change survives a lost session on a SONiC switch. They run as root, from standard input.

SONiC applies a patch field by field, has no candidate, no timed revert, and no lock (sonic-utilities @691b1bbc4
generic_config_updater: ConfigLock is empty). So a change is a set of files in /run/rackready, which a boot removes, and
two transient systemd units that outlive the session: one applies, one is the timed revert. Both hold one lock. A change
is kept from the moment that the file ``kept`` exists, and reverted from the moment that ``reverted`` does; either
prevents the other. A boot takes the saved configuration: the old one.
"""

from __future__ import annotations

FOLDER = "/run/rackready"
PREFIX = "rackready-"
_LOCK = "exec 9>lock; flock 9"
_POLL_MS = 100
"""orchagent's own (sonic-swss @e6b0c5b5d orchagent/orchdaemon.cpp, PFC_WD_POLL_MSECS): to write it changes nothing."""


def load(change: str, patch: str, commands: list[str], then: str = "") -> str:
    """Return the script that stores a change: its patch, its commands, how to apply it and how to revert it.

    ``then``: what follows the patch, and the rollback, for the change to take effect.
    """
    after = f" && {{ {then}; }}" if then else ""
    apply = "\n".join(
        (
            f"cd {FOLDER} || exit 1",
            _LOCK,
            f"[ ! -e {change}.reverted ] || exit 3",
            f"touch {change}.begun",
            f"{{ config apply-patch {change}.patch{after}; }} >{change}.log 2>&1",
            f"echo $? >{change}.result",
        )
    )
    revert = "\n".join(
        (
            f"cd {FOLDER} || exit 1",
            _LOCK,
            f"[ ! -e {change}.kept ] && [ ! -e {change}.reverted ] || exit 0",
            # reload drops every link, but ends where rollback is refused (sonic-mgmt @b4ba9de3c9 gu_utils.py)
            f"exec >>{change}.log 2>&1",
            f"{{ config rollback {change}{after}; }} || config reload -y -f || exit 1",
            f"touch {change}.reverted",
            f"rm -f {change}.commands",
        )
    )
    return "\n".join(
        (
            f"umask 077; mkdir -p {FOLDER} && cd {FOLDER} || exit 1",
            _document(f"{change}.patch", patch),
            _document(f"{change}.apply", apply),
            _document(f"{change}.revert", revert),
            f'echo "${{SUDO_USER:-root}}" >{change}.user',
            _document(f"{change}.commands.new", "\n".join(commands)),
            f"mv {change}.commands.new {change}.commands",
        )
    )


def _document(name: str, text: str) -> str:
    return f"cat >{name} <<'END_OF_RACKREADY' || exit 1\n{text}\nEND_OF_RACKREADY"


def poll_interval() -> str:
    """Return the script that makes the table PFC_WD, with the entry GLOBAL alone. It is not reverted.

    A patch cannot make that table: the updater takes the ports' names for fields (sonic-utilities @691b1bbc4
    generic_config_updater/field_operation_validators.py, _get_fields_in_patch). It never removes GLOBAL (gu_common.py).
    """
    return f"pfcwd interval {_POLL_MS}"


def dry_run(change: str) -> str:
    """Return the script that has SONiC check a change."""
    return f"config apply-patch -d {FOLDER}/{change}.patch"


def checkpoint(change: str) -> str:
    """Return the script that keeps the present configuration."""
    return f"config checkpoint {change}"


def arm(change: str, seconds: int) -> str:
    """Return the script that starts the timed revert."""
    return (
        f"systemd-run --quiet --unit=rackready-revert-{change} --on-active={seconds} "
        f"--timer-property=AccuracySec=1s /bin/sh {FOLDER}/{change}.revert"
    )


def apply(change: str) -> str:
    """Return the script that applies a change in a unit of its own and prints its exit code and last words."""
    unit = f"systemd-run --quiet --collect --wait --unit=rackready-apply-{change} /bin/sh {FOLDER}/{change}.apply"
    return f"{unit} >/dev/null 2>&1; cd {FOLDER} && cat {change}.result && tail -n 20 {change}.log"


def keep(change: str) -> str:
    """Return the script that ends the timed revert; exit 3: the change was reverted; 4: it was not applied whole."""
    return "\n".join(
        (
            f"cd {FOLDER} || exit 1",
            _LOCK,
            f"[ ! -e {change}.reverted ] || exit 3",
            f'[ "$(cat {change}.result 2>/dev/null)" = 0 ] || exit 4',
            f"touch {change}.kept || exit 1",
            _stop(change),
            f"rm -f {change}.commands {change}.patch",
        )
    )


def revert(change: str) -> str:
    """Return the script that reverts a change now, in a unit of its own; the timer stays until that is done."""
    return "\n".join(
        (
            f"systemd-run --quiet --collect --wait --unit=rackready-back-{change} /bin/sh {FOLDER}/{change}.revert",
            f"cd {FOLDER} || exit 1",
            f"[ -e {change}.reverted ] || {{ tail -n 20 {change}.log; exit 1; }}",
            _stop(change),
        )
    )


def drop(change: str) -> str:
    """Return the script that forgets a change that was not applied; exit 3: it was."""
    return "\n".join(
        (
            f"cd {FOLDER} || exit 0",
            _LOCK,
            f"[ ! -e {change}.begun ] || exit 3",
            _stop(change),
            f"rm -f {change}.*",
            f"[ ! -e /etc/sonic/checkpoints/{change}.cp.json ] || config delete-checkpoint {change} >/dev/null",
        )
    )


def _stop(change: str) -> str:
    units = f"rackready-revert-{change}.timer rackready-revert-{change}.service"
    return f"systemctl stop {units} 2>/dev/null || :"


def save() -> str:
    """Return the script that saves the configuration and deletes our checkpoints and what is left of our changes."""
    return "\n".join(
        (
            "config save -y >/dev/null || exit 1",
            f"for f in /etc/sonic/checkpoints/{PREFIX}*.cp.json; do",
            '[ ! -e "$f" ] || config delete-checkpoint "$(basename "$f" .cp.json)" >/dev/null || exit 1; done',
            f"cd {FOLDER} 2>/dev/null || exit 0",
            f'for f in {PREFIX}*.kept {PREFIX}*.reverted; do [ ! -e "$f" ] || rm -f "${{f%.*}}".*; done',
        )
    )


def revisions() -> str:
    """Return the script that prints the changes that are neither kept nor reverted: name, user, state."""
    return "\n".join(
        (
            f"cd {FOLDER} 2>/dev/null || exit 0",
            f"for f in {PREFIX}*.commands; do",
            'n="${f%.commands}"; [ -e "$f" ] && [ ! -e "$n.kept" ] && [ ! -e "$n.reverted" ] || continue',
            's=candidate; [ ! -e "$n.begun" ] || s=unconfirmed',
            'echo "$n $(cat "$n.user") $s"; done',
        )
    )


def commands_of(change: str) -> str:
    """Return the script that prints a change's commands."""
    return f"cat {FOLDER}/{change}.commands"
