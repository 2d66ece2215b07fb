"""Gates, profiles, switch systems and schedulers of other packages: broken ones are named, duplicates refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackready.design.site import load_site, parse_site
from rackready.drivers.required import require_drivers
from rackready.drivers.scheduler.registry import adapter_for
from rackready.drivers.switch.cumulus_nvue import CumulusNvue
from rackready.drivers.switch.registry import driver_for
from rackready.entry_points import PlugInError
from rackready.gates.engine.registry import all_gates
from rackready.gates.engine.site_check import require_gates
from rackready.model.problems import RackreadyError, SiteInvalidError
from rackready.model.site import Site
from rackready.paths import EnvPaths
from rackready.profiles import loader
from tests import plug_ins

ROOT = Path(__file__).resolve().parents[3]
INVENTORY = "node/gpu/sanity/inventory"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with plug_ins.installed(tmp_path):
        yield tmp_path


def bring(folder: Path, package: str, group: str, name: str, value: str, modules: dict[str, str]) -> None:
    plug_ins.package(folder, package, {f"rackready.{group}": {name: value}}, modules)


FOUND = '(FailKind("other-off", "off", meaning="It is off.", next_step="Switch it on."),)'


def gate_module(
    gate_id: str = "node/host/sanity/other",
    *,
    body: str = "looks = True",
    doc: str = '"""It is as it should be."""',
    findings: str = FOUND,
) -> str:
    return f"""
from pydantic import Field
from rackready.gates import base
from rackready.gates.base import Gate
from rackready.gates.judging.finding_kinds import FailKind
from rackready.gates.judging.judge import Judge

class Other(Gate):
    {doc}
    id = "{gate_id}"
    findings = {findings}
    {body}

    def plan(self, facts, nodes):
        return []

    def evaluate(self, facts, run, outputs):
        return Judge().verdict()
"""


# gates ---------------------------------------------------------------------------------------------------------------


def test_gates_are_found(folder: Path) -> None:
    bring(folder, "other", "gates", "any", "other", {"other.py": gate_module()})
    assert {"node/host/sanity/other", INVENTORY} <= set(all_gates())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import no_such_module_anywhere\n",
            "it can be imported Actual: ModuleNotFoundError: No module named 'no_such_module_anywhere'",
        ),
        ("x = 1\n", "a module that defines gates, or imports those of its package Actual: other has none"),
        (gate_module("node/other"), "gate node/other: id - Expected: SCOPE/TARGET/LEVEL/NAME"),
        (gate_module(findings="()"), "findings - Expected: the kinds of findings that it can make Actual: none"),
        (
            gate_module(doc=""),
            "gate node/host/sanity/other: docstring - Expected: a first line for reports Actual: none",
        ),
        (
            gate_module(body=""),
            (
                "gate node/host/sanity/other: looks - Expected: true for level sanity, which runs on nodes with jobs, "
                "else false Actual: false"
            ),
        ),
        (
            gate_module("node/host/stress/other"),
            "looks - Expected: true for level sanity, which runs on nodes with jobs, else false Actual: true",
        ),
        (
            gate_module(body='looks = True\n    covers = frozenset({"fan"})'),
            "covers - Expected: some of cable, gpu, nic, node, nvlink, rail Actual: fan",
        ),
        (
            gate_module(body="looks = True\n    class Inputs(base.Inputs):\n        x: str = ''"),
            "input x - Expected: a description Actual: none",
        ),
        (
            gate_module(
                body="looks = True\n    class Inputs(base.Inputs):\n        x: int = Field(1, ge=0, description='how "
                "many')"
            ),
            "input x - Expected: bounds on both sides (ge or gt, le or lt) Actual: open",
        ),
        (
            gate_module(
                body="looks = True\n    class Inputs(base.Inputs):\n        x_s: int = Field(1, ge=0, le=9, "
                "description='how long')"
            ),
            "input x_s - Expected: its unit s in the description Actual: how long",
        ),
        (
            gate_module(body="looks = True\n    class Inputs(base.Inputs, extra='allow'):\n        pass"),
            "Inputs - Expected: a class of gates.base.Inputs as strict as that Actual: another, or less strict",
        ),
    ],
    ids=[
        "import",
        "none",
        "id",
        "no findings",
        "docstring",
        "looks-not",
        "looks",
        "covers",
        "description",
        "bounds",
        "unit",
        "strict",
    ],
)
def test_gates_that_cannot_be_used_are_named(folder: Path, text: str, said: str) -> None:
    bring(folder, "other", "gates", "any", "other", {"other.py": text})
    with pytest.raises(PlugInError) as caught:
        all_gates()
    assert str(caught.value).startswith("plug-in any of other 1.0 (rackready.gates: other) - Expected: ")
    assert said in str(caught.value)
    with pytest.raises(PlugInError):
        all_gates()


@pytest.mark.parametrize("owner", ["ours", "theirs"])
def test_a_gate_id_that_two_have_is_refused(folder: Path, owner: str) -> None:
    if owner == "ours":
        bring(folder, "other", "gates", "any", "other", {"other.py": gate_module(INVENTORY)})
        said = (
            f"gate {INVENTORY} - Expected: one class with this id Actual: rackready.gates.gpu.inventory.Inventory and "
            "other.Other."
        )
    else:
        bring(folder, "first", "gates", "a", "first", {"first.py": gate_module()})
        bring(folder, "other", "gates", "b", "other", {"other.py": gate_module()})
        said = "gate node/host/sanity/other - Expected: one class with this id Actual: first.Other and other.Other."
    with pytest.raises(PlugInError) as caught:
        all_gates()
    assert "of other 1.0 (rackready.gates: other)" in str(caught.value)
    assert said in str(caught.value)


# profiles ------------------------------------------------------------------------------------------------------------

SET = "id: {id}\ndescription: theirs\ngates:\n  - {{id: {gate}, max_age_hours: 24}}\n"


def profiles(folder: Path, files: dict[str, str], package: str = "other") -> None:
    bring(
        folder,
        package,
        "profiles",
        "any",
        f"{package}.profiles",
        {f"{package}/__init__.py": "", **{f"{package}/profiles/{name}": text for name, text in files.items()}},
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "it can be imported Actual: ModuleNotFoundError: No module named 'other.profiles'"),
        (
            {"__init__.py": ""},
            (
                "profiles as FAMILY/ID.yml, FAMILY one of gpu, platform, switch, software, gate_sets, parts, xid "
                "Actual: none"
            ),
        ),
        ({"gate_set/mine.yml": "id: mine"}, "Actual: files in gate_set"),
    ],
    ids=["import", "none", "folder"],
)
def test_profiles_that_cannot_be_used_are_named(folder: Path, files: dict[str, str], said: str) -> None:
    profiles(folder, files)
    with pytest.raises(PlugInError) as caught:
        loader.known("gate_sets")
    assert str(caught.value).startswith("plug-in any of other 1.0 (rackready.profiles: other.profiles) - Expected: ")
    assert said in str(caught.value)


def test_a_module_that_is_no_folder_brings_no_profiles(folder: Path) -> None:
    bring(folder, "other", "profiles", "any", "other", {"other.py": ""})
    with pytest.raises(PlugInError, match=r"Expected: other is a package: a folder Actual: a single module\."):
        loader.known("gpu")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id: [", "a gate set Actual: while parsing a flow node"),
        (
            "id: mine\ndescription: x\ngates: []\n",
            "): gates - Expected: at least 1 item Actual: none. Correct the file.",
        ),
        (SET.format(id="yours", gate=INVENTORY), "id - Expected: mine Actual: yours."),
    ],
    ids=["yaml", "shape", "stem"],
)
def test_a_profile_that_cannot_be_read_is_named_with_its_package(folder: Path, text: str, said: str) -> None:
    profiles(folder, {"gate_sets/mine.yml": text})
    with pytest.raises(RackreadyError) as caught:
        loader.gate_set("mine")
    assert str(caught.value).startswith(
        "profiles/gate_sets/mine.yml (plug-in any of other 1.0 (rackready.profiles: other.profiles))"
    )
    assert said in str(caught.value)
    assert loader.gate_set("bringup").id == "bringup"


@pytest.mark.parametrize("owner", ["ours", "theirs"])
def test_a_profile_id_that_two_have_is_refused(folder: Path, owner: str) -> None:
    name = "bringup" if owner == "ours" else "mine"
    profiles(folder, {f"gate_sets/{name}.yml": SET.format(id=name, gate=INVENTORY)})
    if owner == "theirs":
        profiles(folder, {f"gate_sets/{name}.yml": SET.format(id=name, gate=INVENTORY)}, "first")
    with pytest.raises(
        PlugInError, match=rf"gate_sets profile {name} - Expected: one Actual: 2: .*plug-in any of other 1\.0"
    ):
        loader.known("gate_sets")
    assert "h100_sxm" in loader.known("gpu"), "other families are not concerned"


def test_a_gate_set_of_a_plug_in_is_compared_with_the_gates_before_a_run(folder: Path) -> None:
    profiles(folder, {"gate_sets/mine.yml": SET.format(id="mine", gate="node/gpu/sanity/nothing")})
    site = site_with(gates={"set": "mine"})
    with pytest.raises(SiteInvalidError) as caught:
        require_gates(site, "site.yml")
    [problem] = caught.value.problems
    assert (problem.path, problem.message.split(" - ")[0]) == (
        "gates.set: mine.gates[0].id",
        "gate node/gpu/sanity/nothing does not exist",
    )


# switches ------------------------------------------------------------------------------------------------------------

ENTRY = """from rackready.design.switch_systems import SYSTEMS, SwitchSystem
from rackready.drivers.switch.base import SwitchDriver
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module_anywhere\n", "it can be imported Actual: ModuleNotFoundError"),
        ("ENTRY = 1\n", "other:ENTRY is a SwitchSystem Actual: a int"),
        (
            ENTRY + "ENTRY = SwitchSystem('other:int')\n",
            "its driver other:int can be imported Actual: AttributeError: module 'other' has no attribute 'int'",
        ),
        (
            ENTRY + "ENTRY = SwitchSystem('builtins:int')\n",
            "its driver is a class of SwitchDriver Actual: <class 'int'>",
        ),
        (
            ENTRY + "class D(SwitchDriver): ...\nENTRY = SwitchSystem('other:D')\n",
            "its driver has every method of SwitchDriver Actual: not commit, compare, ",
        ),
        (
            ENTRY + "ENTRY = SwitchSystem('other:D', sub_port='{slot}')\n",
            "its port and sub_port use {port}, {cage}, {sub}, {place}, {lane} or {within} only Actual: '{slot}'",
        ),
    ],
    ids=["import", "kind", "driver", "class", "abstract", "sub-port"],
)
def test_a_switch_system_that_cannot_be_used_is_named_and_ours_work(folder: Path, text: str, said: str) -> None:
    bring(folder, "other", "switches", "acme_os", "other:ENTRY", {"other.py": text})
    with pytest.raises(PlugInError) as caught:
        driver_for("leaf01", "acme_os")
    assert str(caught.value).startswith("plug-in acme_os of other 1.0 (rackready.switches: other:ENTRY) - Expected: ")
    assert said in str(caught.value)
    assert driver_for("leaf01", "cumulus_nvue") is CumulusNvue
    with pytest.raises(RackreadyError, match=r"Expected: one of acme_os, arista_eos, cisco_nxos, cumulus_nvue, sonic"):
        driver_for("leaf01", "junos")


@pytest.mark.parametrize("owner", ["ours", "theirs"])
def test_a_switch_system_that_two_have_is_refused(folder: Path, owner: str) -> None:
    name = "cumulus_nvue" if owner == "ours" else "acme_os"
    for package in ["other"] if owner == "ours" else ["first", "other"]:
        bring(
            folder,
            package,
            "switches",
            name,
            f"{package}:ENTRY",
            {f"{package}.py": ENTRY + "ENTRY = SYSTEMS['cumulus_nvue']\n"},
        )
    with pytest.raises(PlugInError, match=rf"rackready\.switches: {name} - Expected: one Actual: 2: .*of other 1\.0"):
        driver_for("leaf01", name)


def test_a_system_without_a_driver_is_refused_before_a_run(folder: Path) -> None:
    model = "id: acme_one\nports: swp1-swp64\nos: [acme_os]\nrate: 800\nsource: a test of ours\n"
    profiles(folder, {"switch/acme_one.yml": model})
    raw = document()
    raw["switches"][0] |= {"os": "acme_os", "model": "acme_one"}
    site = parse_site(raw, source="site.yml", base=ROOT)
    require_drivers(site, "site.yml", switches=False)
    with pytest.raises(
        SiteInvalidError, match=r"switches\[0\]\.os: leaf01: switch operating system 'acme_os' is not known"
    ):
        require_drivers(site, "site.yml")


# schedulers ----------------------------------------------------------------------------------------------------------

SCHEDULER = """
from rackready.drivers.scheduler.registry import Scheduler
from rackready.model.base import Model

class Settings(Model):
    queue: str = "gpu"

def connect(settings, paths):
    {body}

ENTRY = Scheduler(Settings, connect)
"""


def document() -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8"))
    return raw


def site_with(**sections: object) -> Site:
    return parse_site(document() | sections, source="site.yml", base=ROOT)


def handed_to(name: str, **settings: object) -> Site:
    return site_with(handover={"kind": "plugin", "scheduler": name, "settings": settings})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_module_anywhere\n", "it can be imported Actual: ModuleNotFoundError"),
        ("ENTRY = 1\n", "other:ENTRY is a Scheduler Actual: a int"),
        (SCHEDULER.format(body="return 3"), "connect returns a SchedulerAdapter Actual: a int"),
        (SCHEDULER.format(body="return {}['x']"), "it connects, or raises SchedulerError Actual: KeyError: 'x'"),
    ],
    ids=["import", "kind", "adapter", "raises"],
)
def test_a_scheduler_that_cannot_be_used_is_named(folder: Path, text: str, said: str) -> None:
    bring(folder, "other", "schedulers", "lsf", "other:ENTRY", {"other.py": text})
    with pytest.raises(PlugInError) as caught:
        adapter_for(handed_to("lsf"), EnvPaths(folder, "lab"))
    assert str(caught.value).startswith("plug-in lsf of other 1.0 (rackready.schedulers: other:ENTRY) - Expected: ")
    assert said in str(caught.value)
    require_drivers(load_site("none", site_file=ROOT / "inventories/sim/site.yml", root=ROOT), "site.yml")


@pytest.mark.parametrize("owner", ["ours", "theirs"])
def test_a_scheduler_that_two_have_is_refused(folder: Path, owner: str) -> None:
    name = "slurm" if owner == "ours" else "lsf"
    for package in ["other"] if owner == "ours" else ["first", "other"]:
        bring(
            folder,
            package,
            "schedulers",
            name,
            f"{package}:ENTRY",
            {f"{package}.py": SCHEDULER.format(body="return 3")},
        )
    with pytest.raises(PlugInError, match=rf"rackready\.schedulers: {name} - Expected: one Actual: 2: .*of other 1\.0"):
        require_drivers(handed_to(name), "site.yml")


def test_settings_that_a_scheduler_does_not_take_stop_who_connects(folder: Path) -> None:
    bring(folder, "other", "schedulers", "lsf", "other:ENTRY", {"other.py": SCHEDULER.format(body="return 3")})
    with pytest.raises(
        RackreadyError,
        match=r"^handover\.settings\.queue: plug-in lsf of other 1\.0 .* Expected: text",
    ):
        adapter_for(handed_to("lsf", queue=3), EnvPaths(folder, "lab"))
