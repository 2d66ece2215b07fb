"""Packages that the roles ask for, read from the roles themselves: no second list that could differ from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from rackready.design import hostvars
from rackready.model.problems import RackreadyError
from rackready.model.profile import PlatformProfile
from rackready.model.site import Site
from rackready.profiles import loader

SYSTEMS = {
    "debian12": ("Debian", "12", "Debian"),
    "debian13": ("Debian", "13", "Debian"),
    "ubuntu2204": ("Ubuntu", "22", "Debian"),
    "ubuntu2404": ("Ubuntu", "24", "Debian"),
    "el9": ("Rocky", "9", "RedHat"),
}
"""System of a version set to the facts that the roles read: distribution, major version, family."""

_FABRIC = {"roce": "fabric", "infiniband": "fabric-infiniband"}
"""Playbook of the fabric phase by the kind of fabric."""
_DRIVER, _BUILD, _FAMILY = "nvidia_driver", "__nvidia_driver_build", "__nvidia_driver_family"
_NICS = "nic_stack"
_KERNEL = "KERNEL"
"""Stands for the release of the node's kernel in the names of packages (roles/nvidia_driver/vars)."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the roles ask for on one platform. Versions are exact; ``""`` is any version."""

    roles: dict[str, dict[str, str]]
    """Role to package to version, without packages that only a node's own state decides."""
    build: tuple[str, ...] = ()
    """Packages that build the driver's module."""
    headers: tuple[str, ...] = ()
    """The same for one kernel, or precompiled modules for it: names that contain ``KERNEL``."""
    pins: str = ""
    """apt preferences of the driver and of DOCA's packages; empty where the system has none."""
    streams: tuple[str, ...] = field(default=())
    """dnf module streams, as name:stream."""

    def packages(self, kernels: tuple[str, ...] = ()) -> dict[str, str]:
        """Return every package to its version, with the headers of these kernels."""
        of_kernels = [name.replace(_KERNEL, kernel) for kernel in kernels for name in self.headers]
        return dict.fromkeys((*self.build, *of_kernels), "") | {
            name: version for packages in self.roles.values() for name, version in packages.items()
        }


def asked_for(site: Site, root: Path, platform: PlatformProfile, group_vars: Path | None = None) -> Asked:
    """Return what the roles in ``root`` ask for on a platform. Raises RackreadyError for a system that no role knows.

    ``group_vars``: the folder of the environment, whose values replace the site's as they do in a run. Values of
    single racks and nodes are not read.
    """
    return _Reader(site, root, platform, group_vars).read()


@cache
def _loader() -> Any:  # noqa: ANN401 - Ansible's, which is slow to import
    from ansible.parsing.dataloader import DataLoader  # noqa: PLC0415 - slow to import

    return DataLoader()


@lru_cache(maxsize=1024)
def _parsed(path: str, text: str) -> Any:  # noqa: ANN401 - what YAML has
    """Return what the text of a file states, as trusted templates. Callers share it, so they change nothing in it.

    Every pair of platform and version set asks for the same roles, and Ansible's parser is slow.
    """
    from ansible.template import trust_as_template  # noqa: PLC0415 - slow to import

    return _loader().load(trust_as_template(text), file_name=path)


class _Reader:
    """Evaluates the arguments of tasks with Ansible's own templating."""

    def __init__(self, site: Site, root: Path, platform: PlatformProfile, group_vars: Path | None) -> None:
        self._root = root
        self._playbooks = ("install", _FABRIC[site.fabric.kind], "handover")
        system = loader.software(site.software.set).os
        if system not in SYSTEMS:
            raise RackreadyError(
                "software.set",
                expected=f"a set for {', '.join(SYSTEMS)}",
                actual=f"one for {system}",
                next_step="Choose another.",
            )
        self._distribution, self._major, self._family = SYSTEMS[system]
        facts = {
            "distribution": self._distribution,
            "distribution_major_version": self._major,
            "os_family": self._family,
        }
        self._known = hostvars.site_vars(site) | hostvars.platform_vars(site, platform)
        if group_vars is not None:
            groups = ("all", "nodes", f"gpu_{platform.gpu}", f"platform_{platform.id}")
            for name in groups:
                self._known |= self._group(group_vars, name.replace("-", "_").replace(".", "_"))
        self._known |= {"ansible_facts": facts, "ansible_managed": "rackready mirror"}

    def read(self) -> Asked:
        """Return what the roles ask for."""
        found = {role: self._of_role(role) for role in self._roles()}
        driver = self._variables(_DRIVER)
        precompiled = driver.get("nvidia_driver_precompiled") or {}  # nothing is built then
        build = [str(name) for name in (precompiled or driver.get(_BUILD, {}).values())]
        stream = str(driver.get("nvidia_driver_stream") or "")
        return Asked(
            {role: packages for role, packages in found.items() if packages},
            tuple(name for name in build if _KERNEL not in name),
            tuple(name for name in build if _KERNEL in name),
            self._pins(driver),
            (stream,) if stream else (),
        )

    def _roles(self) -> list[str]:
        plays = (play for name in self._playbooks for play in self._yaml(self._root / f"playbooks/{name}.yml") or [])
        return [role["role"] for play in plays for role in play.get("roles", [])]

    def _of_role(self, role: str) -> dict[str, str]:
        """Return the packages of a role. Arguments that depend on the state of a node are left out."""
        from ansible.errors import AnsibleUndefinedVariable  # noqa: PLC0415 - slow to import

        variables = self._variables(role)
        found: dict[str, str] = {}
        for argument in self._arguments(role):
            try:
                value = self._template(argument, variables)
            except AnsibleUndefinedVariable:
                continue
            found |= {str(name): str(version or "") for name, version in value.items() if name}
        return dict(sorted(found.items()))

    def _arguments(self, role: str) -> Iterator[Any]:
        """Yield every ``packages`` argument in a role's tasks, in the order of their files."""
        for path in sorted((self._root / "roles" / role / "tasks").glob("*.yml")):
            for task in self._yaml(path) or []:
                if "packages" in task.get("rackready_packages", {}):
                    yield task["rackready_packages"]["packages"]

    def _variables(self, role: str) -> dict[str, Any]:
        place = self._root / "roles" / role
        own = (
            self._yaml(place / name) or {} for name in ("vars/main.yml", f"vars/{self._distribution}_{self._major}.yml")
        )
        defaults: dict[str, Any] = self._yaml(place / "defaults/main.yml") or {}
        for values in (self._known, *own):
            defaults = defaults | values
        return defaults

    def _pins(self, driver: Mapping[str, Any]) -> str:
        """Return the preferences that the roles write on a node. An empty line separates them (apt_preferences(5))."""
        nics = self._variables(_NICS)
        found = []
        if driver.get("__nvidia_driver_pins") and _FAMILY in driver:
            found.append(self._rendered(_DRIVER, "preferences.j2", driver))
        if nics["nic_stack_kind"] == "doca" and self._family == "Debian":
            found.append(self._rendered(_NICS, "dkms.pref.j2", nics))
        return "\n".join(found)

    def _rendered(self, role: str, template: str, variables: Mapping[str, Any]) -> str:
        from ansible.template import trust_as_template  # noqa: PLC0415 - slow to import

        text = (self._root / "roles" / role / "templates" / template).read_text(encoding="utf-8")
        return str(self._template(trust_as_template(text), variables)).rstrip("\n") + "\n"

    def _template(self, value: Any, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what YAML has
        from ansible.template import Templar  # noqa: PLC0415 - slow to import

        return Templar(loader=_loader(), variables=dict(variables)).template(value)

    def _group(self, folder: Path, name: str) -> dict[str, Any]:
        """Return the variables of a group: of its file, then of the files in its folder (Ansible, group_vars)."""
        found: dict[str, Any] = {}
        places = [folder / f"{name}{suffix}" for suffix in ("", ".yml", ".yaml", ".json")]
        for path in (*places, *sorted(folder.glob(f"{name}/*.y*ml"))):
            found |= (self._yaml(path) or {}) if path.is_file() else {}
        return found

    def _yaml(self, path: Path) -> Any:  # noqa: ANN401 - what YAML has
        from ansible.errors import AnsibleError  # noqa: PLC0415 - slow to import

        if not path.is_file():
            return None
        try:
            return _parsed(str(path), _loader().get_text_file_contents(str(path)))
        except AnsibleError as error:
            first = str(error).splitlines()[0]
            raise RackreadyError(
                path, expected="variables or tasks in YAML", actual=first, next_step="Correct the file."
            ) from error
        except yaml.YAMLError as error:
            raise RackreadyError(path, expected="YAML", actual=error, next_step="Correct the file.") from error
