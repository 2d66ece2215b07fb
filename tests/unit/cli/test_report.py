"""`rackready report`: what it refuses, and the raw output as text and as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rackready.evidence.store import EvidenceStore
from rackready.ledger.store import Ledger
from rackready.paths import EnvPaths

TEXT = "GPU 0: as the tool \u00fc left it\n"


@pytest.fixture
def paths(call: Any, tmp_path: Path) -> EnvPaths:  # noqa: ANN401, ARG001 - call makes the checkout
    found = EnvPaths(tmp_path, "sim")
    ledger = Ledger.open(found.database)
    ledger.put_campaign("c1", env="sim", kind="validate", nodes=[], site_digest="", abi="1", status="ended")
    return found


@pytest.fixture
def digest(paths: EnvPaths) -> str:
    ledger = Ledger.open(paths.database)
    try:
        return EvidenceStore.open(ledger, paths.raw).put_raw(TEXT)
    finally:
        ledger.close()


def test_a_raw_output_is_printed_as_it_is_or_as_one_document(call: Any, digest: str) -> None:  # noqa: ANN401
    assert call("report", "--raw", digest) == (0, TEXT, "")
    code, out, _ = call("report", "--raw", digest, "--output", "json")
    assert (code, json.loads(out)) == (0, {"raw": digest, "text": TEXT})


@pytest.mark.parametrize(
    ("words", "said"),
    [(("c9",), "c9"), (("c1", "--again"), "c1, --again"), (("--junit", "x.xml"), "--junit x.xml")],
    ids=["no campaign", "a campaign", "a file"],
)
def test_a_raw_output_takes_no_word_that_would_be_passed_over(
    call: Any,  # noqa: ANN401
    digest: str,
    words: tuple[str, ...],
    said: str,
) -> None:
    text = f"--raw {digest} - Expected: only --env and --output with it Actual: {said}. Remove the other options.\n"
    assert call("report", *words, "--raw", digest) == (2, "", text)


def test_junit_goes_neither_onto_itself_nor_into_a_pipe(call: Any, paths: EnvPaths, tmp_path: Path) -> None:  # noqa: ANN401
    own, pipe = paths.reports / "c1.junit.xml", tmp_path / "pipe"
    os.mkfifo(pipe)
    for target, actual, step in (
        (own, "the report's own", "Omit --junit: the report itself is written"),
        (pipe, "a named pipe", f"Name another, or take {own}: the report itself is written"),
        (tmp_path, "Is a directory", f"Name another, or take {own}: the report itself is written"),
    ):
        text = f"--junit {target} - Expected: another writable file Actual: {actual}. {step}.\n"
        assert call("report", "--junit", str(target)) == (2, "", text)
        assert own.read_text(encoding="utf-8").startswith("<?xml")


def test_a_campaign_that_is_not_on_record_is_refused(call: Any, paths: EnvPaths) -> None:  # noqa: ANN401
    assert call("report", "c9") == (
        2,
        "",
        "campaign c9 - Expected: one of c1 Actual: none of them. Omit it for the latest.\n",
    )
    file = paths.database.file
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()
    Ledger.open(paths.database).close()
    text = (
        "report --env sim - Expected: a campaign on record Actual: none yet. "
        "Run `rackready deploy`, then report again.\n"
    )
    assert call("report") == (2, "", text)
