"""Frequency governor of all CPUs, as the kernel's cpufreq shows it (Documentation/admin-guide/pm/cpufreq.rst).

Where the BIOS keeps the frequency, and in virtual machines, there is no policy: nothing can be set.
"""

from __future__ import annotations

from pathlib import Path

from .command import NodeProblem
from .difference import Difference
from .kernel_file import get, put

_POLICIES = "sys/devices/system/cpu/cpufreq"
NO_POLICY = (
    "no cpufreq policy: the BIOS or the hypervisor controls the processors' frequency, and base_cpu_governor changes "
    "nothing"
)


def policies(root: Path) -> list[Path]:
    """Return the governor's file of each policy that has a CPU online.

    Others take no governor: affected_cpus is empty, or reading fails with EBUSY (drivers/cpufreq/cpufreq.c: show(),
    from Linux 5.19 on).
    """
    return sorted(path for path in (root / _POLICIES).glob("policy*/scaling_governor") if _is_online(path.parent))


def differences(root: Path, governor: str) -> list[Difference]:
    """Return one difference if policies have another governor. Raises NodeProblem if a policy cannot have it."""
    found = policies(root)
    offered = [(path.parent / "scaling_available_governors") for path in found]
    lists = {get(path) for path in offered if path.exists()}
    without = sorted(words for words in lists if governor not in words.split())
    if without:
        step = "Choose one of these for base_cpu_governor, or load another cpufreq driver; then run again."
        raise NodeProblem(f"{governor} among the governors of the kernel", without[0], step)
    actual = [get(path) for path in found]
    wrong = sorted({value for value in actual if value != governor})
    if not wrong:
        return []
    words = ", ".join(f"{value} on {actual.count(value)} of {len(actual)} policies" for value in wrong)
    return [Difference("kernel", "frequency governor", governor, words)]


def write(root: Path, governor: str) -> None:
    """Give all policies the governor. Raises NodeProblem."""
    for path in policies(root):
        put(path, governor)


def _is_online(policy: Path) -> bool:
    try:
        return bool((policy / "affected_cpus").read_text(encoding="ascii").strip())
    except OSError:
        return False
