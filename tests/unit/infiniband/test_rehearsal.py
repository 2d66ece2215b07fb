"""`rackready sim fabric`: the result of a small fabric, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rackready.cli.main import build
from rackready.drivers.ib.text import IbTextError
from rackready.model.outcome import Finding
from rackready.model.problems import RackreadyError
from rackready_sim.errors import SimError
from rackready_sim.ibtwin import ibsim, report
from rackready_sim.ibtwin.losses import sweep
from rackready_sim.ibtwin.report import rehearse
from rackready_sim.ibtwin.routes import RouteCheck, lost_pairs, read_ibdmchk, read_lfts, uplinks
from rackready_sim.ibtwin.topology import twin_of
from rackready_sim.sampling import evenly
from tests.unit.infiniband.fabrics import plan_of, site_of, site_text
from tests.unit.infiniband.twins import LACKING, REASON

real = pytest.mark.skipif(bool(LACKING), reason=REASON)
LOOP = """\
---------------------- CA to CA : LFT ROUTE HOP HISTOGRAM -----------------
The number of CA pairs that are in each number of hops distance.
This data is based on the result of the routing algorithm.

HOPS NUM-CA-CA-PAIRS
  2   24
  3   6
---------------------------------------------------------------------------

-I- Scanned:30 CA to CA paths
-I- Using full credit loop check.
Found credit loop on: S0000000000001000/U1/P2 VL: 0
-E- credit loops in routing
"""


@real
def test_a_small_fabric_passes_as_text_and_json(tmp_path: Path) -> None:
    file = tmp_path / "site.yml"
    file.write_text(site_text(8, 4), encoding="utf-8")
    app = build(["sim"])
    done = CliRunner().invoke(app, ["sim", "fabric", "--site", str(file), "--uplinks", "2", "--output", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["passed"], found["findings"], found["credit_loops"], found["lost_pairs"]) == (True, [], False, 0)
    assert (found["switches"], found["adapters"], found["paths"]) == (17, 64, 64 * 63)
    assert found["partition_keys_read"] == 64
    assert any("ibsim 0.10 does not know 400 Gb/s" in note for note in found["notes"])
    # The only spine joins both units: without it 32 adapters of one lose those of the other, rail by rail.
    spine, *links = found["losses"]
    assert (spine["lost"], spine["pairs"] > 0) == ("spine-001", True)
    assert [item["pairs"] for item in links] == [0, 0]
    text = CliRunner().invoke(app, ["sim", "fabric", "--site", str(file), "--uplinks", "1"])
    assert "credit loops: none" in text.output
    assert "losses: 1 of 2 survived" in text.output
    assert "passed" in text.output


@real
def test_an_engine_that_opensm_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RackreadyError, match="Actual: ar_updn"):
        rehearse(site_of(tmp_path, 8, 4), "ar_updn", 0, lambda _text: None)


def test_missing_programs_are_named_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibsim, "_which", lambda program: None if program == "opensm" else "/usr/bin/true")
    monkeypatch.setattr(ibsim, "_preload", lambda: "/lib/libumad2sim.so")
    with pytest.raises(SimError, match=r"missing: opensm\. Install them as root: apt-get install opensm"):
        rehearse(site_of(tmp_path, 8, 4), "updn", 0, lambda _text: None)


@real
def test_walked_tables_lose_the_pairs_of_a_cable_that_is_pulled(tmp_path: Path) -> None:
    twin = twin_of(plan_of(tmp_path, 8, 4)[1])
    with ibsim.running(twin, tmp_path, twin.adapters[min(twin.adapters)]) as sim:
        sweep(sim, "updn")
        tables = read_lfts((tmp_path / "opensm-lfts.dump").read_text(encoding="utf-8"))
        assert list(lost_pairs(twin, tables)) == []
        gone = next(link for link in twin.links if link.a.node[0] == "H")
        assert len(list(lost_pairs(twin, tables, {id(gone)}))) == 2 * 63
        with pytest.raises(SimError, match="not found"):
            sim.tell('Unlink "no-such-node"[1]')


def test_ibdmchk_without_a_judgement_is_an_error() -> None:
    assert read_ibdmchk(LOOP) == RouteCheck(30, {2: 24, 3: 6}, loops=True)
    for text in ("", LOOP.rsplit("-E-", maxsplit=1)[0], LOOP.replace("Scanned", "Skipped")):
        with pytest.raises(SimError):
            read_ibdmchk(text)
    for text in (
        "",
        "0x0001 033 # Channel Adapter portguid 0x1: 'x'\n",
        "Unicast lids [0-1] of switch Lid 2 guid 0x1 ('x'):\n",
    ):
        with pytest.raises(IbTextError):
            read_lfts(text)


def test_a_result_passes_only_when_all_of_it_was_checked() -> None:
    clean = RouteCheck(2, {2: 2}, loops=False)

    def result(**changed: object) -> report.Rehearsal:
        return report.Rehearsal("updn", 1, 2, 2, 0, (), **{"routes": clean, **changed})  # type: ignore[arg-type]

    wrong = Finding(code="x", where="x", what="x", expected="x", actual="x", next_step="x")
    assert result().passed
    assert not result(routes=None).passed
    assert not result(routes=RouteCheck(2, {2: 2}, loops=True)).passed
    assert not result(lost_pairs=1).passed
    assert not result(findings=[wrong]).passed


def test_a_sample_of_uplinks_is_spread_evenly(tmp_path: Path) -> None:
    links = uplinks(twin_of(plan_of(tmp_path, 8, 4)[1]))
    assert evenly(links, len(links)) == links
    assert len({id(link) for link in evenly(links, 5)}) == 5
    assert evenly(links, 0) == []
