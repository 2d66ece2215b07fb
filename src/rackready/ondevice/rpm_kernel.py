"""The kernel's packages with dnf: which belong together, which headers follow them, which locks others set.

Names and relations: kernel.spec of the kernel 5.14 of RHEL 9. kernel-devel-matched is the metapackage of the headers:
it requires kernel-core and kernel-devel of its own version. Other flavours have the same parts, such as
kernel-64k-core.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key
from typing import ClassVar

from .dnf import OFFERED, QUERY, SKIP, Dnf, lock_name
from .kernel import Kernel, Policy
from .rpm_version import is_lower

_CORE = "-core"
_PARTS = ("", _CORE, "-modules", "-modules-core", "-modules-extra", "-devel", "-devel-matched")


@dataclass
class RpmKernel(Kernel):
    """The kernel of one node that has dnf."""

    images: ClassVar[str] = "initramfs-*.img"

    def policy(self) -> Policy:
        """Return what is to be installed and held, with the locks of others. Changes nothing."""
        policy, dnf = Policy(self.release()), Dnf(self.run, self.root, self.folder)
        flavour = self._flavour(dnf, policy.release)
        if not flavour:
            policy.notes.append(
                f"kernel {policy.release} is of no package of this system: its headers are installed with the driver"
            )
            return policy
        rows = dnf.rows(["rpm", "-qa", "--qf", QUERY, f"{flavour}*"])
        names = [f"{flavour}{part}" for part in _PARTS]
        installed = {name: _newest(rows, name) for name in names if any(row[0] == name for row in rows)}
        policy.packages = dict.fromkeys(sorted(installed), "")
        self._add_matching_headers(policy, dnf, flavour, installed)
        self._leave_to_others(policy, dnf)
        return policy

    def _flavour(self, dnf: Dnf, release: str) -> str:
        """Return the start of the names of the running kernel's packages; empty when no package has its image."""
        image = str(self.root / "lib/modules" / release / "vmlinuz")
        owners = [name for name, _ in dnf.rows(["rpm", "-qf", "--qf", QUERY, image])]
        return owners[0][: -len(_CORE)] if owners and owners[0].endswith(_CORE) else ""

    def _add_matching_headers(self, policy: Policy, dnf: Dnf, flavour: str, installed: dict[str, str]) -> None:
        """Add the headers that follow the kernel, in the version of the newest kernel: that one boots next."""
        headers, wanted = f"{flavour}-devel-matched", installed[f"{flavour}{_CORE}"]
        if headers in installed:
            return
        asked = ["repoquery", "--qf", OFFERED, headers]
        rows = dnf.rows(["dnf", "-q", "-C", *asked]) or dnf.rows(["dnf", "-q", *SKIP, *asked])
        if (headers, wanted) not in rows:
            policy.notes.append(
                f"{headers} {wanted} is not in the node's package sources: a new kernel would come without headers"
            )
            return
        policy.packages |= {headers: wanted, f"{flavour}-devel": wanted}

    @staticmethod
    def _leave_to_others(policy: Policy, dnf: Dnf) -> None:
        policy.foreign = sorted({lock_name(lock) for lock in dnf.locks()} - dnf.own_holds())
        if policy.foreign:
            policy.notes.append(f"held by others, left as they are: {', '.join(policy.foreign)}")
        policy.packages = {name: version for name, version in policy.packages.items() if name not in policy.foreign}


def _newest(rows: list[tuple[str, str]], name: str) -> str:
    return max((version for package, version in rows if package == name), key=cmp_to_key(_order))


def _order(one: str, other: str) -> int:
    return -1 if is_lower(one, other) else int(is_lower(other, one))
