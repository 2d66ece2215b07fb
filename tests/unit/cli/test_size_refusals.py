"""`rackready size`: every refusal has its text and exit code 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rackready.profiles import loader

Size = Callable[..., tuple[int, str, str]]
LLM = Path(__file__).resolve().parents[2] / "fixtures" / "made" / "llm"
L8, GPT2 = str(LLM / "llama31_8b.json"), str(LLM / "gpt2.json")
PLATFORMS = [loader.platform(name) for name in loader.known("platform")]
IDS = sorted({item.id for item in PLATFORMS} | {item.gpu for item in PLATFORMS})
SHAPE = ("--params", "70B", "--layers", "80", "--hidden", "8192", "--heads", "64")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("model",),
            (
                "--config, --params - Expected: exactly one of them Actual: neither. "
                "Name the model by its config.json, or by its parameters and shape."
            ),
        ),
        (
            ("model", "--config", L8, "--params", "8B"),
            (
                "--config, --params - Expected: exactly one of them Actual: both. "
                "Name the model by its config.json, or by its parameters and shape."
            ),
        ),
        (
            ("serve", "--params", "70B", "--layers", "80"),
            (
                "--hidden, --heads - Expected: the shape with --params, because cache and activations depend on it "
                "Actual: not given. Give them, or --config."
            ),
        ),
        (
            ("serve", "--params", "seventy", *SHAPE[2:]),
            (
                "--params seventy - Expected: a number above 0 such as 70B, 8.03B or 15T (K, M, B, T: 10^3 to 10^12) "
                "Actual: 'seventy'. Correct it."
            ),
        ),
        (
            ("serve", *SHAPE, "--kv-heads", "7"),
            "--kv-heads 7 - Expected: a divisor of --heads 64 Actual: 7. Correct it.",
        ),
        (
            ("serve", *SHAPE[:5], "8200", *SHAPE[6:]),
            "--hidden 8200 - Expected: a multiple of --heads 64 Actual: 8200. Correct one of them.",
        ),
        (
            ("serve", "--config", L8, "--weights", "int3"),
            (
                "--weights int3 - Expected: one of fp32, bf16, fp16, fp8, int8, int4, nvfp4, mxfp4 Actual: int3. "
                "Choose one of them."
            ),
        ),
        (
            ("serve", "--config", L8, "--kv", "int4"),
            "--kv int4 - Expected: one of bf16, fp16, fp8, int8 Actual: int4. Choose one of them.",
        ),
        (
            ("serve", "--config", L8, "--utilization", "1.2"),
            "--utilization 1.2 - Expected: above 0 and at most 1 Actual: 1.2. Correct it.",
        ),
        (
            ("train", "--config", GPT2, "--sequence", "2048"),
            "--sequence 2048: above the maximum of gpt2 - Expected: at most 1024 Actual: 2048. Lower it.",
        ),
        (
            ("serve", "--config", L8, "--context", "200000"),
            "--context 200000: above the maximum of llama - Expected: at most 131072 Actual: 200000. Lower it.",
        ),
        (
            ("serve", "--config", L8, "--price-hour", "1", "--price-gpu", "1"),
            "--price-hour, --price-gpu - Expected: one of them Actual: both. Choose rent or purchase.",
        ),
        (
            ("serve", "--config", L8, "--price-gpu", "1", "--life-years", "0"),
            "--life-years 0 - Expected: above 0 Actual: 0. Correct it.",
        ),
        (
            ("serve", "--config", L8, "--price-gpu", "1", "--pue", "0.9"),
            "--pue 0.9 - Expected: at least 1, because IT power is part of it Actual: 0.9. Correct it.",
        ),
        (
            (
                "serve",
                "--config",
                L8,
                "--price-hour",
                "h1000=2",
                "--price-hour",
                "dear",
                "--price-hour",
                "-1",
                "--price-hour",
                "3",
                "--price-hour",
                "4",
            ),
            (
                f"--price-hour h1000=2 - Expected: one of {', '.join(IDS)} Actual: h1000. Correct it.\n"
                "--price-hour dear - Expected: a price, or ID=PRICE Actual: dear. Correct it.\n"
                "--price-hour -1 - Expected: at least 0 Actual: -1. Correct it.\n"
                "--price-hour 4 - Expected: one price for all servers Actual: 3 before it. Give it once."
            ),
        ),
        (
            ("serve", "--config", L8, "--price-hour", "inf", "--life-years", "nan"),
            (
                "--price-hour inf - Expected: a number Actual: inf. Correct it.\n--life-years nan - Expected: a number "
                "Actual: nan. Correct it."
            ),
        ),
        (
            ("serve", "--config", L8, "--price-hour", "2", "--price-kwh", "0.1", "--pue", "1.3"),
            (
                "--price-kwh, --pue - Expected: --price-gpu with it Actual: none. "
                "A price per hour includes energy and cooling: omit it."
            ),
        ),
        (
            ("serve", "--config", L8, "--tp", "3"),
            (
                "--tp 3: 32 heads and 8 key and value heads cannot be split over 3 GPUs - "
                "Expected: one of 1, 2, 4, 8, 16, 32 Actual: 3. Choose one of them."
            ),
        ),
        (("train", "--config", L8, "--ep", "8"), "--ep 8: llama has no experts - Expected: 1 Actual: 8. Remove it."),
        (
            ("serve", "--config", L8, "--virtual-overhead", "3"),
            "--virtual-overhead 3 - Expected: at least 0 and below 1 Actual: 3. Give a share, e.g. 0.03 for 3 %.",
        ),
        (
            (
                "serve",
                "--config",
                L8,
                "--on",
                "dgx_h100",
                "--used",
                "0.5",
                "--virtual-overhead",
                "0.03",
                "--virtual-used",
                "0.8",
                "--virtual-fee",
                "1",
            ),
            (
                "--used, --virtual-overhead, --virtual-used, --virtual-fee - "
                "Expected: --price-hour or --price-gpu with it Actual: none. Give a price, or omit it."
            ),
        ),
        (
            ("serve", "--config", L8, "--price-hour", "2", "--life-years", "5", "--load", "0.8"),
            (
                "--life-years, --load - Expected: --price-gpu with it Actual: none. "
                "A price per hour includes the purchase and energy: omit it."
            ),
        ),
        (
            (
                "serve",
                "--config",
                L8,
                "--on",
                "dgx_h100",
                "--on",
                "dgx_b200",
                "--price-hour",
                "2.5",
                "--price-hour",
                "l40s=1",
            ),
            (
                "--price-hour l40s=1 - Expected: one of dgx_b200, dgx_h100, b200_sxm, h100_sxm (--on) Actual: l40s. "
                "Also name it with --on, or omit its price."
            ),
        ),
        (
            ("serve", "--config", L8, "--on", "dgx_h100", "--price-gpu", "40000", "--price-gpu", "dgx_h100=35000"),
            (
                "--price-gpu 40000 - Expected: a server without a price of its own "
                "Actual: all servers have one. Omit it."
            ),
        ),
        (
            ("train", "--config", L8, "--on", "dgx_h100", "--price-hour", "2"),
            (
                "--price-hour - Expected: --tokens with it, to price a run Actual: none. "
                "Give the tokens of the run, or omit the price."
            ),
        ),
        (
            ("serve", "--config", L8, "--virtual-used", "1.5"),
            "--virtual-used 1.5 - Expected: above 0 and at most 1 Actual: 1.5. Correct it.",
        ),
        (
            ("serve", "--config", L8, "--virtual-fee", "-1"),
            "--virtual-fee -1 - Expected: at least 0 Actual: -1. Correct it.",
        ),
        (
            ("train", "--config", L8, "--optimizer", "lion"),
            "--optimizer lion - Expected: one of adam, adam_no_master, adam8bit, sgd Actual: lion. Choose one of them.",
        ),
        (
            ("train", "--config", L8, "--recompute", "some"),
            "--recompute some - Expected: one of selective, none, full Actual: some. Choose one of them.",
        ),
        (
            ("train", "--config", L8, "--gradient-bytes", "3"),
            "--gradient-bytes 3 - Expected: 2 or 4 Actual: 3. Choose one of them.",
        ),
        (
            ("train", "--config", L8, "--tokens", "1T", "--mfu", "40"),
            "--mfu 40 - Expected: above 0 and at most 1 Actual: 40. Correct it.",
        ),
        (
            ("train", "--config", L8, "--tp", "8", "--pp", "2", "--gpus", "100", "--on", "dgx_h100"),
            "--gpus 100 - Expected: a multiple of tp x pp = 8 x 2 = 16 Actual: 100. Use 96, or other degrees.",
        ),
        (
            ("serve", "--params", "0.1", *SHAPE[2:]),
            "--params 0.1 - Expected: at least 1 parameter Actual: 0.1. Give a number such as 70B.",
        ),
        (
            ("serve", "--params", "1B", *SHAPE[2:], "--vocabulary", "128256"),
            (
                "--params 1B - Expected: at least 2,101,354,496, which its embeddings have Actual: 1B. "
                "Correct one of them."
            ),
        ),
        (("serve", *SHAPE, "--vocabulary", "-1"), "--vocabulary -1 - Expected: at least 0 Actual: -1. Correct it."),
        (
            ("serve", "--config", L8, "--reserve-gib", "-0.5"),
            "--reserve-gib -0.5 - Expected: at least 0, or -1 for 2 Actual: -0.5. Correct it.",
        ),
        (
            ("train", "--config", L8, "--reserve-gib", "inf"),
            "--reserve-gib inf - Expected: at least 0, or -1 for 2 Actual: inf. Correct it.",
        ),
    ],
)
def test_refusal(size: Size, arguments: tuple[str, ...], text: str) -> None:
    assert size(*arguments) == (2, "", text + "\n")


def test_a_file_that_is_no_json_is_refused(size: Size, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("layers: 3", encoding="utf-8")
    code, _, err = size("model", "--config", str(tmp_path / "config.json"))
    assert code == 2
    assert err.startswith(f"{tmp_path}/config.json - Expected: a JSON file Actual: Expecting value")


def test_a_file_nested_too_deep_is_refused(size: Size, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * 200_000 + "]" * 200_000, encoding="utf-8")
    assert size("model", "--config", str(path)) == (
        2,
        "",
        f"{path} - Expected: a JSON file Actual: nested too deep to be read. Give a model's config.json.\n",
    )


def test_a_wrong_option_value_is_a_refusal_and_no_defect(size: Size) -> None:
    code, _, err = size("train", "--config", L8, "--zero", "7")
    assert code == 2
    assert "defect" not in err
    assert "--zero" in err


def test_a_refusal_is_one_json_document_when_json_is_wanted(size: Size) -> None:
    code, out, _ = size("serve", "--config", L8, "--kv", "int4", "--output", "json")
    assert code == 2
    found = json.loads(out)
    assert found["error"] == "--kv int4 - Expected: one of bf16, fp16, fp8, int8 Actual: int4. Choose one of them."
    assert (found["code"], found["where"], found["expected"], found["actual"], found["next_step"]) == (
        "refused",
        "--kv int4",
        "one of bf16, fp16, fp8, int8",
        "int4",
        "Choose one of them.",
    )
