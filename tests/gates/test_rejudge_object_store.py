"""Stored outputs of an object store judged again: fetched several at once, and nothing passes while it is away."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rackready.evidence.report_source import ReportSource
from rackready.ledger import connected
from rackready.ledger.backend import Backend, backend_of
from rackready.ledger.sqlite import SqliteFile
from rackready.model.object_store import SharedOutputs
from rackready.paths import Database
from tests.gates.phase_rack import Played, Rack, play
from tests.gates.test_rejudge import again, verdicts
from tests.s3_server import PREFIX, RecordedServer, serving, settings


def moved(played: Played, server: RecordedServer) -> None:
    """Move all outputs from this machine to the store."""
    for file in played.paths.raw.rglob("*.z"):
        server.plant(f"{PREFIX}/{file.relative_to(played.paths.raw)}", file.read_bytes())
    shutil.rmtree(played.paths.raw)


def test_a_report_judges_outputs_of_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = play(tmp_path / "rack", Rack())
    then = verdicts(again(played))
    with serving("recorded", tmp_path) as server:
        assert isinstance(server, RecordedServer)
        moved(played, server)
        shared = SharedOutputs.model_validate({"s3": settings(server.endpoint, tmp_path)})

        def with_store(database: Database | Path) -> Backend:
            backend = backend_of(database)
            assert isinstance(backend, SqliteFile)
            return replace(backend, raw_outputs=shared)

        monkeypatch.setattr(connected, "backend_of", with_store)
        monkeypatch.setattr(ReportSource, "raw", lambda *_: {})  # the page fetches its own
        server.delay = 0.02
        assert verdicts(again(played)) == then
        assert server.most > 4
        assert set(Counter(server.requests).values()) == {1}, "each output is fetched once, into the cache"
        shutil.rmtree(played.paths.raw)
        server.close()
        found = again(played)
    judged = {
        (node["name"], gate["gate"]): (gate["outcome"], gate["findings"][0]["text"] if gate["findings"] else "")
        for node in found["nodes"]
        for gate in node["gates"]
        if gate["raw"]
    }
    assert judged != {}
    assert {outcome for outcome, _ in judged.values()} == {"error"}
    assert all("a store that answers" in text and "connection refused" in text for _, text in judged.values())
