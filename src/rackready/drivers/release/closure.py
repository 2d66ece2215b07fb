"""The packages of Python that a play on a node needs, in the versions of the controller's own environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rackready.drivers.release.error import ReleaseError
from rackready.paths import setup_command

ROOTS = ("ansible-core", "ansible-runner", "cryptography", "nvidia-ml-py", "pydantic")
"""What is imported or run on a node: the play, its worker, the seal of variables, NVML for gates, and the models that
filters of roles use. What these require comes with them."""


def closure(python: str, processor: str) -> dict[str, str]:
    """Return package -> version for a version of Python and a processor on Linux. Raises ReleaseError."""
    target = _target(python, processor)
    found: dict[str, str] = {}
    open_names = list(ROOTS)
    while open_names:
        name = open_names.pop()
        if name not in found:
            version, needed = _installed(name, target)
            found[name] = version
            open_names += needed
    return dict(sorted(found.items()))


def _target(python: str, processor: str) -> Mapping[str, str]:
    """Return the values of environment markers on the node (PEP 508)."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": processor,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def _installed(name: str, target: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the installed version of a package, and the packages that it requires on the target."""
    try:
        found = distribution(name)
    except PackageNotFoundError as error:
        raise ReleaseError(
            "release build",
            f"Python package {name}",
            expected="installed beside rackready",
            actual="absent",
            next_step=f"Run `{setup_command()}`.",
        ) from error
    return found.version, [canonicalize_name(item) for item in _required(found.requires or (), target)]


def _required(lines: Iterator[str] | list[str] | tuple[str, ...], target: Mapping[str, str]) -> Iterator[str]:
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(dict(target)):
            yield requirement.name
