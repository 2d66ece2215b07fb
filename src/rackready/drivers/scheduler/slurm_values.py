"""Settings of others in slurm.conf beside which our nodes and partitions cannot work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rackready.model.problems import Problem
from rackready.model.slurm_files import SlurmFiles
from rackready.ondevice import slurm_conf

_GIVES_GPUS, _IMEX = "select/cons_tres", "switch/nvidia_imex"
_CONS_TRES_FROM = (23, 11)
"""From this release an unset SelectType is select/cons_tres, before select/linear (DEFAULT_SELECT_TYPE in Slurm's
src/common/read_config.h of branches 23.02 and 23.11)."""
_YES = ("yes", "up", "true", "1")
"""Values that Slurm takes for yes, in any case (src/common/parse_value.c, s_p_handle_boolean)."""


def objections(place: str, release: tuple[int, int], found: Mapping[str, str], topology: str) -> Iterator[Problem]:
    """Yield the values with which Slurm would not give out GPUs, or not by our topology."""
    if "gpu" not in found.get("grestypes", "gpu").split(","):
        yield Problem.of(place, "GresTypes", "Add gpu to it.", expected="gpu among them", actual=found["grestypes"])
    unset = _GIVES_GPUS if release >= _CONS_TRES_FROM else "select/linear"
    if (select := found.get("selecttype") or unset) != _GIVES_GPUS:
        yield Problem.of(
            place,
            "SelectType",
            "Correct it: only that plugin gives out GPUs.",
            expected=_GIVES_GPUS,
            actual=select if found.get("selecttype") else f"not set, which is {select} before Slurm 23.11",
        )
    wanted = f"topology/{topology}"
    if topology != "none" and found.get("topologyplugin", wanted) != wanted:
        yield Problem.of(
            place,
            "TopologyPlugin",
            "Change it when no job runs (their records may be lost), or set handover.files.topology to none.",
            expected=wanted,
            actual=found["topologyplugin"],
        )


def channels(place: str, found: Mapping[str, str], imex: str) -> Iterator[Problem]:
    """Yield that jobs would have no IMEX channel, because each of two leaves them to the other."""
    actual = found.get("switchtype", "")
    if imex and (imex == "per_job") != (actual == _IMEX):
        yield Problem.of(
            place,
            "SwitchType",
            "Correct it, or handover.imex_channels: see docs/howto/slurm.md.",
            expected=f"{_IMEX} with handover.imex_channels: per_job, and only with it",
            actual=f"{actual or 'not set'} with {imex}",
        )


def default_of_others(files: Mapping[str, str]) -> str:
    """Return the partition that somebody else made the default one, "" for none. ``files``: without ours."""
    lines = [slurm_conf.words(line) for line in slurm_conf.every_line(files)]
    found = [line["partitionname"] for line in lines if "partitionname" in line and _is_default(line)]
    return found[-1] if found else ""


def _is_default(line: Mapping[str, str]) -> bool:
    return line.get("default", "").lower() in _YES


def two_defaults(place: str, files: Mapping[str, str], wanted: SlurmFiles) -> Iterator[Problem]:
    """Yield that ours would replace somebody else's default partition: Slurm takes the last one, and only notes it.

    src/slurmctld/read_config.c: "changing default partition from".
    """
    ours = [partition.name for partition in wanted.partitions if partition.default]
    theirs = default_of_others(files)
    if ours and theirs:
        yield Problem.of(
            place,
            f"Default=YES of partition {theirs}",
            "Leave out default in handover.files.partitions, or take it off that partition: Slurm takes the last one.",
            expected=f"no default partition beside {ours[0]}",
            actual=f"{theirs} and {ours[0]}",
        )
