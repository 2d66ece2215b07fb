"""`rackready gate evaluate --all`: judges outputs of one node by every gate that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rackready.cli.captured_inputs import EXIT_CODE, numbers, read, stripped
from rackready.cli.output import Format, console, print_json, print_table
from rackready.model.outcome import Outcome
from rackready.model.problems import RackreadyError

if TYPE_CHECKING:
    from rackready.gates.base import GateFacts
    from rackready.gates.plain.all_gates import Judged


def evaluate_all(
    facts: GateFacts,
    inputs: Mapping[str, Mapping[str, Any]],
    captured: Sequence[str],
    codes: Sequence[str],
    output: Format,
) -> int:
    """Judge, print, and return the exit code: 1 when a gate fails, else 2 for an error or without a verdict, else 0."""
    from rackready.gates.plain.all_gates import judge_all  # noqa: PLC0415
    from rackready.gates.records.offline import Captured  # noqa: PLC0415

    if len(facts.nodes) != 1:
        raise RackreadyError(
            "gate evaluate --all",
            expected="outputs of one node",
            actual=f"{len(facts.nodes)} nodes",
            next_step="Judge each node separately.",
        )
    texts = _texts(captured)
    ended = numbers(EXIT_CODE, codes, list(texts))
    found = judge_all(facts, inputs, {key: Captured(text, int(ended[key])) for key, text in texts.items()})
    judged = [item for item in found if item.verdict is not None]
    if output is Format.JSON:
        print_json(_document(found))
    else:
        _print(found)
    outcomes = {item.verdict.outcome for item in judged if item.verdict is not None}
    return 1 if Outcome.FAIL in outcomes else 0 if outcomes == {Outcome.PASS} else 2


def _texts(captured: Sequence[str]) -> dict[str, str]:
    """Return outputs by kind. Raises RackreadyError for a file of no known kind, and for two of one kind."""
    from rackready.gates.plain.all_gates import kind_of, unknown  # noqa: PLC0415

    out: dict[str, str] = {}
    files: dict[str, str] = {}
    for path in captured:
        text = stripped(read(path), f"--input {path}")
        kind = kind_of(text)
        if kind is None:
            first = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
            step = "Judge other outputs by a gate's id."
            raise RackreadyError(
                f"--input {path}", expected=f"the output of {unknown()}", actual=f"{first[:60]!r}", next_step=step
            )
        if kind.key in out:
            raise RackreadyError(
                f"--input {path}",
                expected=f"one output of `{kind.gives}`",
                actual=f"{files[kind.key]} and {path}",
                next_step="Give each output once.",
            )
        out[kind.key], files[kind.key] = text, path
    return out


def _document(found: Sequence[Judged]) -> dict[str, Any]:
    return {
        "gates": [
            {"gate": item.gate, "lacks": list(item.lacks), **item.verdict.model_dump(mode="json")}
            for item in found
            if item.verdict is not None
        ],
        "not_judged": [{"gate": item.gate, "lacks": list(item.lacks)} for item in found if item.verdict is None],
    }


def _print(found: Sequence[Judged]) -> None:
    rows = [
        (item.gate, item.verdict.outcome.value, str(len(item.verdict.findings)))
        for item in found
        if item.verdict is not None
    ]
    if rows:
        print_table(("gate", "outcome", "findings"), rows)
    for item in found:
        for finding in item.verdict.findings if item.verdict is not None else ():
            console.print(f"{item.gate}: {finding}")
    for item in found:
        if item.lacks:
            words = "not judged" if item.verdict is None else "not judged as a whole"
            console.print(f"{words}: {item.gate}: also needs {', '.join(f'`{words}`' for words in item.lacks)}")
    if not rows:
        console.print("nothing was judged: every gate lacks some outputs")
