"""`rackready help`: explains a term, gate, key, runbook or exit code; an unknown topic is refused with near matches."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import documents
from rackready.cli.help_topics import topics
from rackready.gates.engine.registry import all_gates

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any) -> Any:  # noqa: ANN401
    """Call the command line where there is no checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RACKREADY_ROOT", str(tmp_path))
    return command


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("epoch", "starts a new epoch"),
        ("gate-set", "A named list of gates"),
        ("Gate Set", "A named list of gates"),
        ("concepts", "What a deploy does"),
        ("exit-codes", "130  stopped with Ctrl-C"),
        ("campaign.batch_size", "whole number; 1 to 256; default: 32"),
        ("batch_size", "campaign.batch_size (key)"),
        ("racks[].nodes[].bmc", "port: whole number or series; default: 443"),
        ("node/gpu/sanity/nvlink", "input crc_limit = null"),
        ("nvlink", "node/gpu/sanity/nvlink (gate)"),
        ("nvlink-down", "Drain the node."),
    ],
)
def test_a_topic_is_explained(outside: Any, topic: str, said: str) -> None:  # noqa: ANN401
    code, out, err = outside("help", topic)
    assert (code, err) == (0, "")
    assert said in out


def test_a_name_of_several_kinds_gives_all_of_them(outside: Any) -> None:  # noqa: ANN401
    document = json.loads(outside("help", "retire", "--output", "json")[1])
    assert [(item["kind"], item["name"]) for item in document["found"]] == [("term", "retire"), ("runbook", "retire")]


def test_a_name_that_is_in_many_places_is_listed(outside: Any) -> None:  # noqa: ANN401
    code, out, _ = outside("help", "username")
    assert code == 0
    code, out, _ = outside("help", "template")
    assert code == 0
    assert out.splitlines()[0].startswith("template matches ")
    assert "  key      racks[].nodes[].template" in out.splitlines()


def test_an_unknown_topic_names_near_ones(outside: Any) -> None:  # noqa: ANN401
    code, out, err = outside("help", "nvlnk")
    assert (code, out) == (2, "")
    assert err.startswith("help nvlnk - Expected: a topic Actual: 'nvlnk'. Near it: nvlink, ")
    assert err.endswith("`rackready help` lists all topics.\n")
    assert "Near it" not in outside("help", "qqqqqqqqqq")[2]


def test_all_topics_are_listed(outside: Any) -> None:  # noqa: ANN401
    out = outside("help")[1]
    assert all(
        word in out
        for word in (
            "busbw",
            "exit-codes",
            "silent-data-corruption",
            "node/gpu/sanity/xid",
            "handover",
            "keys inside them",
        )
    )
    listed = json.loads(outside("help", "--output", "json")[1])["topics"]
    assert {item["kind"] for item in listed} == {"page", "term", "runbook", "gate", "finding", "key"}


def test_a_finding_is_explained_by_its_code(outside: Any) -> None:  # noqa: ANN401
    code, out, _ = outside("help", "nvlink-inactive")
    assert (code, out.splitlines()[:2]) == (0, ["nvlink-inactive (finding)", "NVLink down"])
    assert "- fail, found by `node/gpu/sanity/nvlink`" in out
    assert "](" not in out


def test_inputs_of_a_gate_read_as_in_a_site_file(outside: Any) -> None:  # noqa: ANN401
    _, out, _ = outside("help", "node/gpu/sanity/nvlink")
    assert "= null: " in out
    assert "None" not in out


def test_topics_are_those_of_the_documents() -> None:
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    names = {topic.kind: {item.name for item in topics() if item.kind == topic.kind} for topic in topics()}
    assert names["term"] == {
        word
        for line in re.findall(r"^- (\*\*.*?):", glossary, re.MULTILINE)
        for word in re.findall(r"\*\*(.+?)\*\*", line)
    }
    assert names["runbook"] == {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} - {"README"}
    assert names["gate"] == set(all_gates())
    assert documents.gate_titles() == {gate_id: kind.title() for gate_id, kind in all_gates().items()}


def test_every_topic_has_a_text_without_links() -> None:
    texts = {f"{topic.kind} {topic.name}": topic.text() for topic in topics()}
    assert [name for name, text in texts.items() if not text.strip() or "](" in text] == []


def test_an_installation_without_documents_says_so(
    monkeypatch: pytest.MonkeyPatch,
    outside: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(documents, "shipped", lambda: tmp_path)
    documents.terms.cache_clear()
    topics.cache_clear()
    code, _, err = outside("help", "epoch")
    assert (code, f"docs/ - Expected: in {tmp_path} Actual: not there." in err, "Install rackready again." in err) == (
        2,
        True,
        True,
    )


def test_a_link_shows_its_words_and_its_target() -> None:
    text = "See [the plan](../howto/plan.md#power), [there](#here), [NVIDIA](https://nvidia.example/x) and [`a`](a)."
    assert documents._plain(text, "reference/glossary.md") == (
        "See the plan (docs/howto/plan.md#power), there, NVIDIA (https://nvidia.example/x) and `a` (docs/reference/a)."
    )


def test_links_of_pages_name_files_that_exist() -> None:
    text = "\n".join(topic.text() for topic in topics() if topic.kind in {"page", "term", "runbook", "finding"})
    found = set(re.findall(r"\((docs/[^)#]+)", text))
    assert len(found) > 5
    assert [name for name in found if not (ROOT / name).exists()] == []


def test_a_paragraph_is_one_line_and_code_stays() -> None:
    text = "Short\nlines.\n\n- item\n  goes on\n- next\n\n```sh\na\nb\n```\n| x |\n| y |\n\nEnd\nhere."
    assert documents._joined(text).split("\n")[:-1] == [
        "Short lines.",
        "",
        "- item goes on",
        "- next",
        "",
        "```sh",
        "a",
        "b",
        "```",
        "| x |",
        "| y |",
        "",
        "End here.",
    ]
