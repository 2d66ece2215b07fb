"""JSON as tools print it: what is not one clear document is refused, word for word."""

from __future__ import annotations

import pytest

from rackready import printed_json
from rackready.format_error import FormatError
from rackready.gates.base import Output
from rackready.gates.engine.registry import gate
from rackready.gates.records.offline import facts
from rackready.model.outcome import Outcome
from tests.gates.support import text

TWICE = "key 'status' twice in one JSON object"


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ('{"status": "FAIL", "status": "PASS"}', TWICE),
        ('{"status": "PASS", "status": "PASS"}', TWICE),
        ('{"tests": [{"name": "memory", "status": "FAIL", "gpu": 1, "status": "PASS"}]}', TWICE),
        ('{"' + "k" * 200 + '": 1, "' + "k" * 200 + '": 2}', f"key '{'k' * 80}' twice in one JSON object"),
        ('{"status": NaN}', "NaN where JSON has a number"),
        (
            '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n',
            "XML (nvidia_smi_log), not JSON",
        ),
        ("<html><body>401</body></html>", "XML (html), not JSON"),
        ("<<<", "XML (without a root element), not JSON"),
        ("bash: dcgmi: command not found\n", "no JSON, but 'bash: dcgmi: command not found'"),
        (
            '{"status": "PASS"}\n{"status": "FAIL"}\n',
            "two JSON documents, the second at line 2: the output of one command is wanted",
        ),
        ('{"status": "PASS"}[]', "two JSON documents, the second at line 1: the output of one command is wanted"),
        ('{"status": "PASS"}\n}', "JSON cut off or damaged at line 2 column 1"),
        ("true\n{}", "no JSON, but 'true'"),
        ('{"status": "PASS"', "JSON cut off or damaged at line 1 column 18"),
        (" ", "empty output"),
        ('{"status": ' + "1" * 5000 + "}", "JSON with a number of more digits than Python reads"),
    ],
    ids=[
        "other value",
        "same value",
        "inside",
        "long name",
        "nan",
        "xml",
        "html",
        "angles",
        "words",
        "two",
        "two at once",
        "a bracket more",
        "a word first",
        "cut off",
        "empty",
        "long number",
    ],
)
def test_what_is_no_clear_document_is_refused(printed: str, says: str) -> None:
    with pytest.raises(FormatError) as refused:
        printed_json.load(printed)
    assert str(refused.value) == says


def test_a_key_may_stand_in_several_objects() -> None:
    assert printed_json.load('{"a": {"id": 1}, "b": {"id": 2}, "id": [{"id": 3}]}') == {
        "a": {"id": 1},
        "b": {"id": 2},
        "id": [{"id": 3}],
    }


def test_a_second_answer_in_a_diagnostic_never_makes_it_pass() -> None:
    """DCGM's own document with the failing GPU's status said a second time, as what a damaged file could have."""
    bad = text("dcgm/dgx_h100_r3_dcgm4_gpu3_memory.json")
    both = bad.replace('"status": "Fail"', '"status": "Fail", "status": "Pass"').replace(
        '"status" : "Fail"', '"status" : "Fail", "status" : "Pass"'
    )
    assert both != bad
    made = gate("node/gpu/validation/dcgm-r3")
    known = facts("dgx_h100", 1)
    run = made.plan(known, ["node01"])[0]
    [key] = [command.key for command in run.commands if command.role == "step"][-1:]
    verdict = made.evaluate(known, run, {key: Output(key, "node01", "x", 0, both)})
    assert verdict.outcome is Outcome.ERROR
    assert TWICE in str(verdict.findings[0])


def test_half_a_character_is_refused_and_a_whole_one_is_read() -> None:
    """Written as escapes, as JSON has characters beyond the first plane."""
    assert printed_json.load(r'{"name": "\ud83d\ude00"}') == {"name": "\U0001f600"}
    for half, which in ((r'{"name": "NVIDIA \ud800"}', "ud800"), (r'{"\uDC00": 1}', "udc00")):
        with pytest.raises(FormatError, match=rf"^half a character \(\\{which} alone\) in a JSON string$"):
            printed_json.load(half)
