"""Shipped profiles: each loads, its stem is its id, every figure has a source, and none is a known wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from rackready.design.hostvars import gpu_vars, platform_vars
from rackready.design.site import parse_site
from rackready.model.base import expand_range
from rackready.model.problems import RackreadyError
from rackready.model.profile import GpuProfile, SwitchProfile
from rackready.model.supply import Figure
from rackready.profiles import loader

ROOT = Path(__file__).resolve().parents[3]
PROFILES = Path(loader.__file__).parent
GPUS = loader.known("gpu")
PLATFORMS = loader.known("platform")
SWITCHES = loader.known("switch")

PROMISED = {
    "l4",
    "l40s",
    "a100_40_sxm",
    "a100_80_sxm",
    "h100_pcie",
    "h100_sxm",
    "h100_nvl",
    "h200_sxm",
    "b200_sxm",
    "gb200_nvl72",
    "b300_sxm",
    "gb300_nvl72",
    "rtx_pro_6000",
}

SPARSE = {
    "l4": {"bf16": 242, "fp8": 485, "tf32": 120},
    "l40s": {"bf16": 733, "fp8": 1466, "tf32": 366},
    "a100_40_sxm": {"bf16": 624, "tf32": 312},
    "a100_80_sxm": {"bf16": 624, "tf32": 312},
    "a100_40_pcie": {"bf16": 624, "tf32": 312},
    "a100_80_pcie": {"bf16": 624, "tf32": 312},
    "h100_pcie": {"bf16": 1513, "fp8": 3026, "tf32": 756},
    "h100_nvl": {"bf16": 1671, "fp8": 3341, "tf32": 835},
    "h100_sxm": {"bf16": 1979, "fp8": 3958, "tf32": 989},
    "h200_sxm": {"bf16": 1979, "fp8": 3958, "tf32": 989},
    "b200_sxm": {"bf16": 4500, "fp8": 9000},
    "gb200_nvl72": {"bf16": 5000, "fp8": 10000, "fp4": 20000},
    "b300_sxm": {"bf16": 4500, "fp8": 9000},
    "gb300_nvl72": {"bf16": 5000, "fp8": 10000},
    "rtx_pro_6000": {"fp4": 4000},
}
"""What data sheets print with 2:4 sparsity. A profile must hold half of it."""


def raw_figures(document: object) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        if {"value", "unit", "source"} <= document.keys():
            yield document
        document = list(document.values())
    for item in document if isinstance(document, list) else []:
        yield from raw_figures(item)


def figures(model: BaseModel, where: str) -> Iterator[tuple[str, Figure]]:
    if isinstance(model, Figure):
        yield where, model
        return
    for name in type(model).model_fields:
        value: Any = getattr(model, name)
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [("", value)]
        )
        for key, item in items:
            if isinstance(item, BaseModel):
                yield from figures(item, f"{where}.{name}.{key}".rstrip("."))


@pytest.mark.parametrize("family", ["gpu", "platform", "switch"])
def test_every_profile_loads_and_its_stem_is_its_id(family: str) -> None:
    for stem in loader.known(family):
        assert getattr(loader, family)(stem).id == stem


def test_promised_gpus_are_there_and_each_has_a_server() -> None:
    assert set(GPUS) >= PROMISED
    assert {loader.platform(name).gpu for name in PLATFORMS} == set(GPUS)


@pytest.mark.parametrize("family", ["gpu", "platform", "switch"])
def test_every_figure_has_a_source_of_substance(family: str) -> None:
    for stem in loader.known(family):
        found = list(figures(getattr(loader, family)(stem), stem))
        for where, figure in found:
            assert len(figure.source) >= 15, f"{where}: {figure.source}"
            assert "(memory)" not in figure.source, where
            assert figure.value > 0, where


def test_what_is_computed_says_so_as_data() -> None:
    """Readers of a profile's file see a source; programs see the field, and the two agree."""
    for file in sorted(PROFILES.rglob("*.yml")):
        for found in raw_figures(yaml.safe_load(file.read_text(encoding="utf-8"))):
            assert str(found["source"]).startswith("derived") == found.get("derived", False), f"{file.name}: {found}"


def test_a_site_s_profile_of_before_the_field_is_read() -> None:
    old = {"value": 2047, "unit": "W", "source": "derived: 4 x 300 W"}
    assert Figure.model_validate(old).derived
    assert not Figure.model_validate(old | {"derived": False}).derived
    assert not Figure.model_validate(old | {"source": "its vendor's datasheet"}).derived


@pytest.mark.parametrize("gpu", GPUS)
def test_compute_is_dense(gpu: str) -> None:
    compute = loader.gpu(gpu).compute
    for precision, sparse in SPARSE[gpu].items():
        dense = compute[precision].value  # type: ignore[index] - the table names number formats
        assert dense == pytest.approx(sparse / 2, rel=0.05), (
            f"{gpu} {precision}: {dense} - the sparse figure is {sparse}"
        )


@pytest.mark.parametrize("gpu", GPUS)
def test_number_formats_keep_their_proportion(gpu: str) -> None:
    # A tensor core does twice as much in half the width: a sparse figure that slipped in breaks the row.
    compute = {str(name): figure.value for name, figure in loader.gpu(gpu).compute.items()}
    assert compute["bf16"] == compute["fp16"]
    assert compute["bf16"] == pytest.approx(2 * compute["tf32"], rel=0.03) if "tf32" in compute else True
    assert compute["fp8"] == pytest.approx(2 * compute["bf16"], rel=0.03) if "fp8" in compute else True


def test_known_wrong_figures_are_not_ours() -> None:
    assert loader.gpu("b300_sxm").compute["fp8"].value == 4500  # 7,000 circulates
    assert loader.gpu("rtx_pro_6000").memory_bandwidth.value == 1597  # type: ignore[union-attr] - 1,792 is the Workstation Edition
    assert loader.gpu("b200_sxm").memory_nominal.value == 180  # type: ignore[union-attr] - 192 is what is advertised
    assert loader.gpu("h200_sxm").compute == loader.gpu("h100_sxm").compute
    assert loader.platform("dgx_h100").psus.count == 6  # type: ignore[union-attr] - 4 x 3,000 W circulates


@pytest.mark.parametrize("gpu", GPUS)
def test_memory_is_what_nvml_gives_and_not_more_than_is_sold(gpu: str) -> None:
    profile = loader.gpu(gpu)
    assert profile.memory_nominal is not None
    assert profile.memory.unit == "MiB"
    assert 0.85 < profile.memory.value * 2**20 / 1e9 / profile.memory_nominal.value < 1.08


@pytest.mark.parametrize("platform", PLATFORMS)
def test_platforms_agree_with_themselves(platform: str) -> None:
    profile = loader.platform(platform)
    assert len(profile.gpu_pci) in {0, profile.gpus}
    assert all(nic.gpu < profile.gpus for nic in profile.nics)
    assert sorted(nic.rail for nic in profile.nics) == list(range(1, len(profile.nics) + 1))
    assert profile.max_power.value >= profile.gpus * loader.gpu(profile.gpu).power.limit.value
    if profile.psus is not None and profile.psus.max_w is not None and profile.psus.min_count is not None:
        assert profile.psus.min_count * profile.psus.max_w.value >= profile.max_power.value


def test_what_is_not_published_is_said() -> None:
    assert loader.platform("dgx_h100").unpublished() == ()
    assert loader.platform("dgx_b200").unpublished() == (
        "the PCI addresses of its GPUs",
        "the device names of its compute NICs",
    )
    assert gpu_vars(loader.gpu("gb300_nvl72"))["gpu_tuning_power_min_w"] == 0  # the role's preflight refuses 0


def test_a_tray_of_nvl72_does_not_run_the_fabric_manager() -> None:
    sim_site = parse_site(
        yaml.safe_load((ROOT / "inventories/sim/site.yml").read_text(encoding="utf-8")), source="site.yml", base=ROOT
    )
    assert platform_vars(sim_site, loader.platform("gb200_nvl72"))["nvidia_fabricmanager_enabled"] is False
    assert platform_vars(sim_site, loader.platform("dgx_h100"))["nvidia_fabricmanager_enabled"] is True
    assert loader.platform("gb200_nvl72").nvlink_domain == 72


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_name_their_ports(switch: str) -> None:
    profile = loader.switch(switch)
    ports = expand_range(profile.ports)
    assert profile.radix is None or profile.radix == len(ports) * max(profile.breakout)
    assert len(ports) % profile.ports_per_cage == 0
    assert (profile.uplinks is None) == (profile.uplink_rate is None)


def test_radixes_of_reference_architectures() -> None:
    def radix(profile: SwitchProfile) -> int:
        return profile.radix or len(expand_range(profile.ports))

    assert {name: radix(loader.switch(name)) for name in ("qm9700", "sn5600", "sn5600_2x400", "q3400_ra")} == {
        "qm9700": 64,
        "sn5600": 64,
        "sn5600_2x400": 128,
        "q3400_ra": 144,
    }


def test_a_figure_without_a_source_is_refused() -> None:
    raw = yaml.safe_load((PROFILES / "gpu/l4.yml").read_text(encoding="utf-8"))
    raw["memory"]["source"] = ""
    with pytest.raises(ValidationError, match=r"memory\.source"):
        GpuProfile.model_validate(raw)


def test_an_unknown_number_format_is_refused() -> None:
    raw = yaml.safe_load((PROFILES / "gpu/l4.yml").read_text(encoding="utf-8"))
    raw["compute"]["fp8_sparse"] = {"value": 485, "unit": "TFLOPS", "source": "NVIDIA L4 datasheet"}
    with pytest.raises(ValidationError, match="fp8_sparse"):
        GpuProfile.model_validate(raw)


def test_a_stem_that_is_not_the_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = yaml.safe_load((PROFILES / "gpu/l40s.yml").read_text(encoding="utf-8"))
    monkeypatch.setattr(loader.yaml, "load", lambda *_args, **_named: other)
    with pytest.raises(
        RackreadyError,
        match=r"^profiles/gpu/l4.yml: id - Expected: l4 Actual: l40s. Make the id equal to the file's stem.$",
    ):
        loader._load("gpu", "l4", GpuProfile)
