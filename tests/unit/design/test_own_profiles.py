"""A site's own profiles: used before packaged ones, refused with file and data path, and fixed for a campaign."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from rackready.cli.doctor_profiles import site_profiles
from rackready.cli.doctor_scene import Scene
from rackready.design.facts import desired_digest, node_facts
from rackready.design.own_profiles import Own
from rackready.design.pinned import digest, edited, pin, pinned_file, read_pinned, site_of
from rackready.design.plan import plan_site
from rackready.design.site import load_site
from rackready.model.outcome import Outcome
from rackready.model.phase import PhaseContext
from rackready.model.problems import Problem, SiteInvalidError
from rackready.paths import EnvPaths
from rackready.profiles import loader, scope

ROOT = Path(__file__).resolve().parents[3]
PACKAGED = Path(loader.__file__).parent


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    yield
    scope.use(())


@pytest.fixture
def paths(tmp_path: Path) -> EnvPaths:
    folder = tmp_path / "inventories" / "lab"
    folder.mkdir(parents=True)
    text = (ROOT / "inventories" / "sim" / "site.yml").read_text(encoding="utf-8")
    (folder / "site.yml").write_text(text, encoding="utf-8")
    return EnvPaths(tmp_path, "lab")


def own(paths: EnvPaths, family: str, wanted: str, **changes: object) -> Path:
    """Write a packaged profile as one of the site's own, with changes; ``like``: under another id."""
    like = str(changes.pop("like", wanted))
    document = yaml.safe_load((PACKAGED / family / f"{like}.yml").read_text(encoding="utf-8"))
    file = paths.inventory / "profiles" / family / f"{wanted}.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    merged = {**document, "id": wanted, **changes}
    text = yaml.safe_dump({key: value for key, value in merged.items() if value is not ...}, sort_keys=False)
    file.write_text(text, encoding="utf-8")
    return file


def run_on(paths: EnvPaths, platform: str) -> None:
    text = paths.site_file.read_text(encoding="utf-8")
    paths.site_file.write_text(text.replace("platform: dgx_h100", f"platform: {platform}"), encoding="utf-8")


def load(paths: EnvPaths) -> object:
    return load_site(paths.env, root=paths.root)


def refused(paths: EnvPaths) -> list[str]:
    with pytest.raises(SiteInvalidError) as error:
        load(paths)
    return [str(problem) for problem in error.value.problems]


def test_an_own_server_with_an_own_gpu_is_planned(paths: EnvPaths) -> None:
    own(paths, "gpu", "h100_lab", like="h100_sxm", product_name="NVIDIA H100 LAB")
    own(paths, "platform", "lab_box", like="dgx_h100", gpu="h100_lab", rack_units=7)
    run_on(paths, "lab_box")
    site = load_site("lab", root=paths.root)
    facts = node_facts(site, "node01")
    assert (facts.platform.id, facts.gpu.product_name) == ("lab_box", "NVIDIA H100 LAB")
    assert plan_site(site).racks
    assert {"lab_box", "dgx_h100"} <= set(loader.known("platform"))


@pytest.mark.parametrize("family", ["switch", "software"])
def test_the_other_families_are_found_too(paths: EnvPaths, family: str) -> None:
    like = {"switch": "sn5600", "software": "hgx-r580-debian12"}[family]
    own(paths, family, "lab-own", like=like)
    text = paths.site_file.read_text(encoding="utf-8")
    paths.site_file.write_text(text.replace(like, "lab-own"), encoding="utf-8")
    load(paths)
    assert getattr(loader, family)("lab-own").id == "lab-own"


def test_an_own_parts_catalogue_is_found(paths: EnvPaths) -> None:
    own(paths, "parts", "lab", like="nvidia")
    load(paths)
    assert loader.known("parts") == ["lab", "nvidia"]


def test_profiles_of_another_site_are_not_found(paths: EnvPaths) -> None:
    own(paths, "platform", "dgx_h100", rack_units=7)
    load(paths)
    assert loader.platform("dgx_h100").rack_units == 7
    load_site("sim", root=ROOT)
    assert loader.platform("dgx_h100").rack_units == 8
    load(paths)
    assert loader.platform("dgx_h100").rack_units == 7


def test_threads_find_them(paths: EnvPaths) -> None:
    own(paths, "platform", "dgx_h100", rack_units=7)
    load(paths)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: loader.platform("dgx_h100").rack_units).result() == 7


def test_every_problem_is_refused_at_once_with_file_and_data_path(paths: EnvPaths) -> None:
    own(paths, "platform", "dgx_h100", gpus="many", colour="blue", rack_units=...)
    own(paths, "gpu", "other", like="h100_sxm", id="another")
    own(paths, "platform", "lab_box", like="dgx_h100", gpu="h900")
    stray = paths.inventory / "profiles" / "servers" / "x.yml"
    stray.parent.mkdir()
    stray.write_text("id: x\n", encoding="utf-8")
    (paths.inventory / "profiles" / "switch").mkdir()
    (paths.inventory / "profiles" / "switch" / "sw.yml").write_text("a: [", encoding="utf-8")
    text = paths.site_file.read_text(encoding="utf-8")
    paths.site_file.write_text(text.replace("gates: {set: bringup}", "gates: {set: nothing}"), encoding="utf-8")
    folder = "inventories/lab/profiles"
    found = refused(paths)
    spelling = "Correct its spelling or remove it; `rackready schema --of platform` lists the keys."
    integer = "Expected: a whole number"
    assert [
        f"{folder}/gpu/other.yml: id: Expected: other Actual: another. Make the id equal to the stem of the file.",
        f"{folder}/platform/dgx_h100.yml: colour: unknown key. {spelling}",
        f"{folder}/platform/dgx_h100.yml: gpus: {integer} Actual: 'many'. Correct it.",
        f"{folder}/platform/dgx_h100.yml: rack_units: is required and missing. Add it.",
    ] == found[1:5]
    assert found[0].startswith("gates.set: gate_sets profile 'nothing' does not exist")
    assert found[5].startswith(f"{folder}/platform/lab_box.yml: gpu: gpu profile 'h900' does not exist - Expected: one")
    assert found[6].startswith(f"{folder}/servers/x.yml: file in the folder of profiles - Expected: FAMILY/ID.yml, ")
    assert found[7].startswith(f"{folder}/switch/sw.yml: line 1, column ")
    assert len(found) == 8


def test_a_link_that_leads_to_no_file_is_a_problem_of_its_own(paths: EnvPaths) -> None:
    link = paths.inventory / "profiles/gpu/h100_lab.yml"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../shared/h100_lab.yml")
    (paths.inventory / "profiles/platform").symlink_to("/")
    step = "Correct the link, or put the files themselves there."
    assert refused(paths) == [
        (
            "inventories/lab/profiles/gpu/h100_lab.yml: link - Expected: one to a file "
            f"Actual: ../../shared/h100_lab.yml, which cannot be found. {step}"
        ),
        f"inventories/lab/profiles/platform: link - Expected: one to a file Actual: /, a folder. {step}",
    ]


def test_consequences_of_a_broken_profile_are_not_reported(paths: EnvPaths) -> None:
    own(paths, "gpu", "h100_lab", like="h100_sxm", power=...)
    own(paths, "platform", "lab_box", like="dgx_h100", gpu="h100_lab")
    run_on(paths, "lab_box")
    assert refused(paths) == ["inventories/lab/profiles/gpu/h100_lab.yml: power: is required and missing. Add it."]


def test_a_consequence_is_one_whatever_its_words_are() -> None:
    broken = Own(broken=frozenset({("platform", "lab_box")}))
    assert broken.follows(Problem("racks", "in other words", profile=("platform", "lab_box")))
    text = "platform profile 'lab_box' does not exist - Expected: one of dgx_h100."
    assert not broken.follows(Problem("racks", text)), "words alone decide nothing"
    assert not broken.follows(Problem("racks", text, profile=("switch", "lab_box")))


def test_doctor_names_them_and_what_they_hide(paths: EnvPaths) -> None:
    scene = Scene(paths, None)
    assert site_profiles(scene) == (Outcome.PASS, "none: all profiles are packaged")
    own(paths, "platform", "dgx_h100", rack_units=7)
    own(paths, "platform", "lab_box", like="dgx_h100")
    assert site_profiles(scene) == (
        Outcome.PASS,
        "2 in profiles/: platform/dgx_h100, platform/lab_box; they replace packaged profiles: platform/dgx_h100",
    )


def test_doctor_shows_the_errors_of_a_wrong_profile(paths: EnvPaths) -> None:
    own(paths, "platform", "lab_box", like="dgx_h100", rack_units=..., gpus="eight")
    outcome, text = site_profiles(Scene(paths, None))
    assert outcome is Outcome.FAIL
    file = "inventories/lab/profiles/platform/lab_box.yml"
    assert [line.partition(" - ")[0] for line in text.splitlines()] == [
        f"{file}: gpus: Expected: a whole number Actual: 'eight'. Correct it.",
        f"{file}: rack_units: is required and missing. Add it.",
    ]


def test_an_edit_during_a_campaign_changes_nothing_and_is_reported(paths: EnvPaths) -> None:
    own(paths, "platform", "dgx_h100", rack_units=7)
    site = load_site("lab", root=paths.root)
    before = desired_digest(site, "node01")
    ctx = PhaseContext("lab", paths.root, "c1", site_digest=pin(paths, site))
    assert edited(ctx) == ""
    own(paths, "platform", "dgx_h100", rack_units=7, product="ANOTHER")
    assert edited(ctx).startswith(f"{paths.site_file}, an overlay or a site profile was edited during")
    assert loader.platform("dgx_h100").product == "DGXH100"
    assert load_site("lab", root=paths.root) != site
    assert loader.platform("dgx_h100").product == "ANOTHER"
    pinned = site_of(ctx)
    assert (pinned, digest(pinned)) == (site, ctx.site_digest)
    assert (loader.platform("dgx_h100").product, desired_digest(pinned, "node01")) == ("DGXH100", before)


def test_another_process_finds_those_of_the_campaign(paths: EnvPaths) -> None:
    own(paths, "platform", "lab_box", like="dgx_h100")
    run_on(paths, "lab_box")
    stored = pinned_file(paths, pin(paths, load_site("lab", root=paths.root)))
    shutil.rmtree(paths.inventory / "profiles")
    program = (
        "import sys; from pathlib import Path; from rackready.design.pinned import read_pinned;"
        "from rackready.design.facts import node_facts;"
        "print(node_facts(read_pinned(Path(sys.argv[1])), 'node01').platform.id)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(stored)], capture_output=True, text=True, check=True)
    assert done.stdout == "lab_box\n"
    assert read_pinned(stored).own_profiles[0].file == "inventories/lab/profiles/platform/lab_box.yml"
