"""What keeps a trial slurmctld away from the cluster's own: its namespaces, its settings, its state."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from pathlib import Path

from .slurm_copy import BYTES, replace

SCRIPT = """
ip link set lo up && ip addr add 10.255.255.1/32 dev lo && mount --bind "$1" "$2" || exit 97
if [ -d /run/slurmctld ]; then mount -t tmpfs -o "mode=0755,uid=$5" tmpfs /run/slurmctld || exit 97; fi
exec timeout "$3" "$4" -D -c -f "$2/slurm.conf"
"""
"""``10.255.255.1``: without an address beside 127.0.0.1 no name resolves in the namespace (AI_ADDRCONFIG).

``/run/slurmctld``: with AuthType=auth/slurm slurmctld removes sack.socket there and binds its own, so that the
cluster's would hear nobody any more (SchedMD/slurm, src/plugins/auth/slurm/sack.c). Its folder must be SlurmUser's.
"""
_STATE = "/var/spool"
"""StateSaveLocation that is not set (src/common/read_config.h, DEFAULT_SAVE_STATE_LOC)."""
_JWT_KEY = "jwt_hs256.key"
_PART = r"\\[ \t]*\n"
"""A line that goes on in the next one."""
_OF_SLURMDBD = re.compile(
    r"(?<!\\)#[^\n]*"  # a comment stays
    r"|\b(?:AccountingStorageEnforce|PriorityWeightTRES|TRESBillingWeights|TRESWeights)[ \t]*[-*+/]?="
    rf'[ \t]*(?:"(?:[^"\\\n]|{_PART})*"|(?:[^\s"\\]|{_PART})+)',
    re.IGNORECASE,
)


def own_settings(place: str, state: Path, found: dict[str, str]) -> str:
    """Return settings that keep the trial away from the cluster: the last value of a key counts (seen with 22.05.8)."""
    own = {"SlurmctldPidFile": f"{place}/pid", "SlurmctldLogFile": f"{place}/log", "StateSaveLocation": str(state)}
    own["SlurmctldDebug"] = "info"  # the line that says that it runs is one of level info
    without = {  # no daemon can be reached from the namespace, and no program may act for the trial
        "accountingstoragetype": ("AccountingStorageType", "accounting_storage/none"),
        "jobcomptype": ("JobCompType", "jobcomp/none"),
        "slurmctldprimaryonprog": ("SlurmctldPrimaryOnProg", "/bin/true"),
        "slurmctldprimaryoffprog": ("SlurmctldPrimaryOffProg", "/bin/true"),
    }
    own.update(without[key] for key in without if key in found)
    if with_slurmdbd(found):  # cpu is one of those that are always tracked (slurm.conf(5))
        own["AccountingStorageTRES"] = "cpu"
    return "".join(f"{key}={value}\n" for key, value in own.items())


def with_slurmdbd(found: dict[str, str]) -> bool:
    """Return whether the cluster has slurmdbd. The trial has none, and slurmctld does not start with its TRES then.

    Without slurmdbd only the built-in TRES exist: another one in AccountingStorageTRES or in a weight, as gres/gpu, is
    fatal (SchedMD/slurm, src/slurmctld/controller.c, _init_tres; src/common/slurm_protocol_api.c,
    slurm_get_tres_weight_array; both seen with 22.05.8). On a cluster without slurmdbd it ends the trial rightly.
    """
    return found.get("accountingstoragetype", "").lower().endswith("slurmdbd")


def drop_accounting(candidate: Path) -> None:
    """Take what needs slurmdbd out of the trial's copy, where no other value does: files of any name may be included.

    AccountingStorageEnforce has no value for "nothing": "none" is fatal (src/common/read_config.c; seen with 22.05.8).
    """
    for path in [path for path in candidate.rglob("*") if path.is_file()]:
        text = path.read_text(encoding=BYTES)
        without = _OF_SLURMDBD.sub(lambda found: found[0] if found[0].startswith("#") else "", text)
        if without != text:
            replace(path, without)


def own_state(state: Path, found: dict[str, str]) -> int:
    """Make the trial's folder of states with what it must find there; return SlurmUser's number. Raises LookupError.

    auth/jwt reads its key there where AuthAltParameters names none (src/plugins/auth/jwt/auth_jwt.c, _init_hs256).
    """
    owner = found.get("slurmuser", "root")
    user = pwd.getpwuid(int(owner)) if owner.isdigit() else pwd.getpwnam(owner)
    state.mkdir()
    os.chown(state, user.pw_uid, -1)
    key = Path(found.get("statesavelocation", _STATE)) / _JWT_KEY
    jwt = "auth/jwt" in found.get("authalttypes", "").split(",")
    if jwt and "jwt_key=" not in found.get("authaltparameters", "") and key.is_file():
        shutil.copy2(key, state / _JWT_KEY)
        of = key.stat()
        os.chown(state / _JWT_KEY, of.st_uid, of.st_gid)
    return user.pw_uid
