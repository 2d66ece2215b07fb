"""docs/howto/size.md: every command in it runs, and every figure in it is what the program says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rackready.cli import main

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/howto/size.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
GIB = 2**30


def answer(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = [
        str(ROOT / "tests/fixtures/made/llm/llama31_70b.json") if word == "llama-3.1-70b/config.json" else word
        for word in shlex.split(command)
    ]
    assert main.run([*words[1:], "--output", "json"]).code == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_there_is_one_example_of_each_command() -> None:
    assert [shlex.split(command)[2] for command in COMMANDS] == ["model", "serve", "train"]


def test_model_example(capsys: pytest.CaptureFixture[str]) -> None:
    model = answer(COMMANDS[0], capsys)["model"]
    weights, cache = model["weight_bytes"] / GIB, model["kv_bytes_per_token"]["bf16"]
    assert (
        f"{model['parameters'] / 1e9:.2f} billion parameters, {weights:.1f} GiB of weights in bf16, {cache:,.0f} "
        "bytes of cache" in TEXT
    )


def test_serve_example(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(COMMANDS[1], capsys)
    assert len(document["candidates"]) == 2
    for row in document["candidates"]:
        decode, prefill = row["decode"], row["prefill"]
        line = [
            row["platform"],
            f"tp {row['tp']} pp {row['pp']}",
            f"{row['memory']['weights'] / GIB:.1f} GiB",
            f"{decode['tokens_per_second']:,.0f}",
        ]
        line += [
            f"{decode['per_sequence']:.1f}",
            f"{prefill['tokens_per_second']:,.0f}",
            f"{decode['limit']}, {prefill['limit']}",
        ]
        assert f"| {' | '.join(line)} | {row['cost']['per_million_tokens']:.2f} {document['currency']} |" in TEXT


def test_train_example(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(COMMANDS[2], capsys)
    assert len(document["candidates"]) == 2
    for row in document["candidates"]:
        memory = row["memory"]
        line = [
            row["platform"],
            f"tp {row['tp']} pp {row['pp']} dp {row['dp']}",
            f"{memory['total'] / GIB:.1f} GiB of {memory['available'] / GIB:.1f} GiB",
        ]
        line += [row["limit"], f"{row['days']:.1f}", f"{row['gpu_hours']:,.0f}", f"{row['cost']['run']:,.0f}"]
        assert f"| {' | '.join(line)} |" in TEXT


def test_one_micro_batch_a_step_is_bound_by_the_interconnect(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(COMMANDS[2].replace("--micro-batches 64", "--micro-batches 1"), capsys)
    assert {row["limit"] for row in document["candidates"]} == {"interconnect"}


def test_every_option_that_the_text_names_exists() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/rackready/cli").glob("size*.py"))
    missing = [
        option for option in re.findall(r"`(--[a-z-]+)", TEXT) if f'"{option}"' not in source and option != "--output"
    ]
    assert missing == []
