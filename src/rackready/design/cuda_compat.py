"""CUDA forward compatibility: the package that a toolkit needs on an older driver, and what NVIDIA does not support.

Within a major version no package is needed: minor version compatibility serves there.
"""

from __future__ import annotations

from rackready.design.names import listed
from rackready.model.profile import GpuProfile
from rackready.model.software import SoftwareProfile
from rackready.profiles import loader


def package_name(cuda: str) -> str:
    """Return the package of a CUDA version, e.g. cuda-compat-13-0."""
    return f"cuda-compat-{cuda.replace('.', '-')}"


def needs_compat(software: SoftwareProfile, branch: int) -> bool:
    """Return whether the toolkit's major version is newer than the driver branch runs by itself."""
    minimum = loader.forward_compat().minimum.get(int(software.cuda.partition(".")[0]))
    return minimum is not None and branch < minimum


def compat_packages(software: SoftwareProfile, branch: int) -> dict[str, str]:
    """Return package to version for a driver branch; empty where none is needed or none is supported."""
    if not needs_compat(software, branch) or branch not in _branches(software):
        return {}
    return {package_name(software.cuda): software.cuda_compat}


def no_pair(software: SoftwareProfile, branch: int) -> str:
    """Return why a driver branch and the toolkit do not go together, "" if they do."""
    if not needs_compat(software, branch) or branch in _branches(software):
        return ""
    wanted = f"branch {_minimum(software)} or newer"
    if with_package := _branches(software):
        wanted += f", or {listed([str(item) for item in sorted(with_package)])} with {package_name(software.cuda)}"
    return (
        f"branch {branch} does not run CUDA {software.cuda} of software set {software.id} - Expected: {wanted} "
        f"Actual: a pair that NVIDIA's table of forward compatibility does not have."
    )


def no_gpu(software: SoftwareProfile, branch: int, gpu: GpuProfile) -> str:
    """Return why a GPU cannot have the package that the driver branch needs, "" if it can or needs none."""
    if not compat_packages(software, branch) or gpu.product_name in loader.forward_compat().products:
        return ""
    return (
        f"branch {branch} runs CUDA {software.cuda} only with {package_name(software.cuda)} - Expected: a data center "
        f"GPU, or branch {_minimum(software)} or newer Actual: {gpu.product_name} ({gpu.id}), on which NVIDIA does not "
        f"support forward compatibility."
    )


def _branches(software: SoftwareProfile) -> list[int]:
    return loader.forward_compat().packages.get(software.cuda, [])


def _minimum(software: SoftwareProfile) -> int:
    return loader.forward_compat().minimum[int(software.cuda.partition(".")[0])]
