"""Frequency governor of all CPUs, as the kernel's cpufreq shows it (Documentation/admin-guide/pm/cpufreq.rst).

Where the BIOS keeps the frequency, and in virtual machines, there is no policy: nothing can be set.
"""

from __future__ import annotations

from pathlib import Path

from .command import NodeProblem
from .difference import Difference

_POLICIES = "sys/devices/system/cpu/cpufreq"
NO_POLICY = (
    "no cpufreq policy: the BIOS or the hypervisor controls the processors' frequency, and base_cpu_governor changes "
    "nothing"
)


def policies(root: Path) -> list[Path]:
    """Return the governor's file of each policy."""
    return sorted((root / _POLICIES).glob("policy*/scaling_governor"))


def differences(root: Path, governor: str) -> list[Difference]:
    """Return one difference if policies have another governor. Raises NodeProblem if a policy cannot have it."""
    found = policies(root)
    offered = [(path.parent / "scaling_available_governors") for path in found]
    lists = {path.read_text(encoding="ascii").strip() for path in offered if path.exists()}
    without = sorted(words for words in lists if governor not in words.split())
    if without:
        step = "Choose one of these for base_cpu_governor, or load another cpufreq driver; then run again."
        raise NodeProblem(f"{governor} among the governors of the kernel", without[0], step)
    actual = [path.read_text(encoding="ascii").strip() for path in found]
    wrong = sorted({value for value in actual if value != governor})
    if not wrong:
        return []
    words = ", ".join(f"{value} on {actual.count(value)} of {len(actual)} policies" for value in wrong)
    return [Difference("kernel", "frequency governor", governor, words)]


def write(root: Path, governor: str) -> None:
    """Give all policies the governor. Raises OSError."""
    for path in policies(root):
        path.write_text(f"{governor}\n", encoding="ascii")
