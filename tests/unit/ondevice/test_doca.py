"""What must not be on a node before DOCA-OFED: each conflict that a source names, and a node without any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rackready.ondevice.command import Done, NodeProblem
from rackready.ondevice.doca import Doca

RELEASE = "5.14.0-687.el9_8.x86_64"


def node(root: Path, *installed: str, core: str = "51.0", pmix: str = "", rpm: bool = False) -> Doca:
    if rpm:
        (root / "etc").mkdir()
        (root / "etc/redhat-release").touch()

    def run(argv: Sequence[str]) -> Done:
        if argv[0] == "dpkg-query":
            return Done(0, "".join(f"ii  {name}\n" for name in installed) + "rc  ofed-scripts\n")
        if argv[:2] == ["rpm", "-qa"]:
            return Done(0, "\n".join(installed))
        if argv[0] == "rpm":
            return Done(0, core)
        return Done(0, f"{pmix}: /etc/pmix-mca-params.conf\n") if pmix else Done(1, "no path found\n")

    return Doca("3.2.2", run, root, RELEASE)


def refusal(doca: Doca) -> str:
    with pytest.raises(NodeProblem) as caught:
        doca.refuse_conflicts()
    return str(caught.value)


@pytest.mark.parametrize("rpm", [True, False], ids=["rpm", "deb"])
def test_a_plain_node_is_not_refused(tmp_path: Path, *, rpm: bool) -> None:
    node(tmp_path, "rdma-core", "openmpi", pmix="openmpi", rpm=rpm).refuse_conflicts()


@pytest.mark.parametrize("rpm", [True, False], ids=["rpm", "deb"])
def test_a_node_that_has_it_is_not_refused(tmp_path: Path, *, rpm: bool) -> None:
    node(tmp_path, "doca-ofed", "ofed-scripts", "pmix", pmix="pmix", core="61.0", rpm=rpm).refuse_conflicts()


@pytest.mark.parametrize("rpm", [True, False], ids=["rpm", "deb"])
@pytest.mark.parametrize(
    ("package", "actual"),
    [("ofed-scripts", "ofed-scripts of MLNX_OFED"), ("doca-ofed-generic", "doca-ofed-generic")],
)
def test_another_ofed_stack_goes_first(tmp_path: Path, package: str, actual: str, *, rpm: bool) -> None:
    assert refusal(node(tmp_path, package, rpm=rpm)) == (
        f"Expected: no other OFED stack Actual: {actual}. Remove it first (MLNX_OFED: `/usr/sbin/ofed_uninstall.sh "
        "--force`), then run again. Nothing was changed."
    )


def test_a_package_with_a_file_of_docas_openmpi_is_refused(tmp_path: Path) -> None:
    assert refusal(node(tmp_path, pmix="pmix")) == (
        "Expected: no package with /etc/pmix-mca-params.conf Actual: pmix. Remove pmix: doca-ofed depends on DOCA's "
        "own openmpi, which has that file too. Nothing was changed."
    )


def test_rdma_core_of_rhel_9_8_is_refused_and_docas_own_is_not(tmp_path: Path) -> None:
    assert refusal(node(tmp_path, core="61.0", rpm=True)) == (
        "Expected: rdma-core older than 61, or DOCA's Actual: rdma-core 61.0. Remove it, and exclude rdma-core and "
        "libibverbs from the system's repository (excludepkgs). Nothing was changed."
    )
    (tmp_path / "other").mkdir()
    node(tmp_path / "other", core="2510.0.11", rpm=True).refuse_conflicts()


def test_a_kernel_for_which_it_does_not_build_is_refused(tmp_path: Path) -> None:
    header = tmp_path / f"usr/src/kernels/{RELEASE}/include/linux/dpll.h"
    header.parent.mkdir(parents=True)
    header.write_text("struct dpll_ffo_param *ffo,\n")
    assert refusal(node(tmp_path, rpm=True)) == (
        f"Expected: a kernel for which DOCA 3.2.2 builds Actual: kernel {RELEASE}. Run a kernel that DOCA was built "
        "for (RHEL 9.4 or 9.6), or take a newer DOCA. Nothing was changed."
    )
