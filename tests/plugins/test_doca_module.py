"""Module rackready_doca and its task: a node that would refuse the modules of DOCA-OFED is refused first."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.ondevice.build import BuildTools
from rackready.ondevice.command import Done
from rackready.ondevice.doca import Doca
from rackready.ondevice.secure_boot import SecureBoot
from tests.plugins.test_files_module import ROOT, Ended, Stub, ship
from tests.unit.ondevice.test_secure_boot import KEY, variable

ROLES = ROOT / "roles"


def said(root: Path, monkeypatch: pytest.MonkeyPatch, needs: dict[str, str] | None = None) -> dict[str, Any]:
    """Return what the module says on a node without packages, whose firmware knows no key."""
    ship(monkeypatch)
    for part in ("build", "command", "doca", "secure_boot"):
        code = importlib.import_module(f"rackready.ondevice.{part}")
        monkeypatch.setitem(sys.modules, f"ansible.module_utils.rackready.ondevice.{part}", code)
    spec = importlib.util.spec_from_file_location("rackready_doca", ROOT / "plugins/modules/rackready_doca.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "Doca", lambda version: Doca(version, lambda _: Done(0, ""), root, "6.8.0"))
    monkeypatch.setattr(module, "SecureBoot", lambda: SecureBoot(lambda _: Done(1, ""), root))
    monkeypatch.setattr(module, "BuildTools", lambda built: BuildTools(lambda _: Done(0, "6.8.0"), root, built))
    params = {"version": "3.2.3", "certificate": KEY, "make_key": "dkms generate_mok", "needs": needs or {}}
    monkeypatch.setattr(module, "AnsibleModule", lambda **_: Stub(params, root, check_mode=False))
    with pytest.raises(Ended) as ended:
        module.main()
    answer: dict[str, Any] = ended.value.args[0]
    return answer


def test_secure_boot_that_does_not_trust_the_key_of_dkms_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable(tmp_path, "SecureBoot", 1)
    assert said(tmp_path, monkeypatch)["msg"] == (
        f"Expected: a firmware that trusts the key of DKMS (Secure Boot is on) Actual: no {KEY}. "
        f"Run `dkms generate_mok` and `mokutil --import {KEY}` on the node, reboot the node and confirm it on the "
        "console (Enroll MOK); or turn Secure Boot off in the BIOS: docs/runbooks/driver-build.md."
    )


def test_a_node_with_secure_boot_off_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable(tmp_path, "SecureBoot", 0)
    assert said(tmp_path, monkeypatch) == {"changed": False, "absent": []}


def test_what_builds_the_modules_is_refused_in_time_where_the_kernel_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable(tmp_path, "SecureBoot", 0)
    needs = {"/usr/bin/gcc-12": "gcc-12"}
    assert said(tmp_path, monkeypatch, needs) == {"changed": False, "absent": []}
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/config-6.8.0").write_text('CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-12 (Ubuntu) 12.3.0"\n')
    told = said(tmp_path, monkeypatch, needs)["msg"]
    assert told.startswith("Expected: the build requirements of DOCA-OFED's modules for kernel 6.8.0, ")
    assert " Actual: no gcc-12. " in told


def test_the_role_asks_with_doca_alone_whatever_the_driver_is() -> None:
    tasks = yaml.safe_load((ROLES / "nic_stack/tasks/preflight.yml").read_text(encoding="utf-8"))
    task = next(task for task in tasks if "rackready_doca" in task)
    assert task["when"] == "nic_stack_kind == 'doca'"
    assert task["rackready_doca"] == {
        "version": "{{ nic_stack_doca_version }}",
        "certificate": "{{ __nic_stack_certificate }}",
        "make_key": "{{ __nic_stack_make_key }}",
        "needs": "{{ __nic_stack_build if not ansible_check_mode or (__nic_stack_mirror.stat.exists | default(false)) "
        "else {} }}",
    }


@pytest.mark.parametrize("system", ["Ubuntu_22", "Ubuntu_24", "Debian_12", "Rocky_9", "RedHat_9", "AlmaLinux_9"])
def test_both_roles_know_the_same_key_of_a_system(system: str) -> None:
    keys = []
    for role in ("nic_stack", "nvidia_driver"):
        found: dict[str, Any] = {}
        for path in (ROLES / role / "vars/main.yml", ROLES / role / f"vars/{system}.yml"):
            found |= yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        keys.append([found[f"__{role}_{name}"] for name in ("certificate", "make_key")])
    assert keys[0] == keys[1]
