"""`rackready size`: JSON and text agree, every default is printed, and tables fit the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Size = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[3]
LLM = ROOT / "tests" / "fixtures" / "made" / "llm"
L8, L70 = str(LLM / "llama31_8b.json"), str(LLM / "llama31_70b.json")
GPT2 = str(LLM / "gpt2.json")
SHAPE = ("--params", "70B", "--layers", "80", "--hidden", "8192", "--heads", "64")


def test_model_says_what_the_shape_says(size: Size) -> None:
    code, out, _ = size("model", "--config", L8, "--output", "json")
    document = json.loads(out)
    assert code == 0
    assert document["model"]["parameters"] == 8_030_261_248
    assert document["model"]["kv_bytes_per_token"] == {"bf16": 131072, "fp16": 131072, "fp8": 65536, "int8": 65536}
    assert document["assumed"] == []


def test_a_config_with_a_byte_order_mark_is_read(size: Size, tmp_path: Path) -> None:
    """Editors on Windows begin a file in UTF-8 with one."""
    marked = tmp_path / "config.json"
    marked.write_bytes(b"\xef\xbb\xbf" + Path(L8).read_bytes())
    assert size("model", "--config", str(marked), "--output", "json")[0] == 0


def test_the_file_of_modelopt_beside_it_is_read(size: Size, tmp_path: Path) -> None:
    config, beside = tmp_path / "config.json", tmp_path / "hf_quant_config.json"
    config.write_text(Path(L8).read_text(encoding="utf-8"), encoding="utf-8")
    beside.write_text('{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}', encoding="utf-8")
    assert json.loads(size("model", "--config", str(config), "--output", "json")[1])["model"]["weights"] == "nvfp4"
    beside.write_text("[4]", encoding="utf-8")
    code, _, err = size("model", "--config", str(config))
    assert code == 2
    assert f"{beside} - Expected: one JSON object Actual: list." in err
    assert size("model", "--config", str(config), "--weights", "fp8")[0] == 0


def test_serve_names_layout_limit_and_cost(size: Size) -> None:
    code, out, _ = size(
        "serve",
        "--config",
        L70,
        "--context",
        "32768",
        "--on",
        "dgx_h100",
        "--price-hour",
        "2.5",
        "--virtual-overhead",
        "0.2",
        "--output",
        "json",
    )
    row = json.loads(out)["candidates"][0]
    assert code == 0
    assert (row["platform"], row["tp"], row["pp"], row["gpus"], row["fits"], row["limit"]) == (
        "dgx_h100",
        8,
        1,
        8,
        True,
        "bandwidth",
    )
    assert (row["sequences"], row["smallest"]) == (42, {"tp": 4, "pp": 1, "gpus": 4})
    assert row["cost"]["per_million_tokens"] == pytest.approx(
        2.5 * 8 / (row["decode"]["tokens_per_second"] * 3600) * 1e6
    )
    assert row["cost"]["per_million_tokens_virtual"] == pytest.approx(row["cost"]["per_million_tokens"] / 0.8)


def test_virtual_machines_are_priced_beside_metal(size: Size) -> None:
    rented = ("serve", "--config", L8, "--on", "dgx_h100", "--price-hour", "2", "--used", "0.4")
    terms = ("--virtual-used", "0.8", "--virtual-fee", "0.5", "--virtual-overhead", "0.05")
    cost = json.loads(size(*rented, *terms, "--output", "json")[1])["candidates"][0]["cost"]
    assert (cost["gpu_hour"], cost["gpu_hour_virtual"]) == (pytest.approx(2 / 0.4), pytest.approx(2.5 / 0.8))
    assert cost["per_million_tokens_virtual"] == pytest.approx(
        cost["per_million_tokens"] * (2.5 / 0.8) / (2 / 0.4) / 0.95
    )
    document = json.loads(size(*rented, *terms[:2], "--output", "json")[1])
    assert document["assumed"][-2:] == [
        "virtual machines are as fast as metal (--virtual-overhead)",
        "their licences cost nothing (--virtual-fee)",
    ]
    assert document["candidates"][0]["cost"]["gpu_hour_virtual"] == pytest.approx(2 / 0.8)


def test_price_of_zero_is_a_price(size: Size) -> None:
    arguments = (
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
        "dgx_b200=0",
        "--virtual-used",
        "0.5",
    )
    costs = {row["platform"]: row["cost"] for row in json.loads(size(*arguments, "--output", "json")[1])["candidates"]}
    assert (costs["dgx_h100"]["gpu_hour"], costs["dgx_b200"]["gpu_hour"]) == (2.5, 0)
    assert "0.00 (virtual 0.00)" in size(*arguments)[1]


def test_efficiency_makes_results_dearer(size: Size) -> None:
    def cost(*more: str) -> float:
        document = json.loads(
            size("serve", "--config", L8, "--on", "dgx_h100", "--price-hour", "2", "--output", "json", *more)[1]
        )
        return float(document["candidates"][0]["cost"]["per_million_tokens"])

    assert cost("--efficiency", "0.5") == pytest.approx(2 * cost())


def test_without_a_stated_overhead_nothing_is_said_of_virtual_machines(size: Size) -> None:
    document = json.loads(size("serve", "--config", L8, "--on", "dgx_h100", "--price-hour", "2", "--output", "json")[1])
    assert set(document["candidates"][0]["cost"]) == {"gpu_hour", "per_million_tokens"}


def test_every_default_is_printed(size: Size) -> None:
    _, out, _ = size("serve", *SHAPE, "--on", "dgx_h200")
    flat = " ".join(out.split())
    for text in (
        "--kv-heads",
        "--vocabulary",
        "--weights",
        "--context",
        "--kv)",
        "--utilization",
        "--reserve-gib",
        "--sequences",
        "--efficiency",
    ):
        assert text in flat, text
    _, out, _ = size("train", *SHAPE, "--on", "dgx_h200", "--tokens", "1T", "--price-gpu", "1000")
    flat = " ".join(out.split())
    for text in (
        *(
            "--gradient-bytes",
            "--optimizer",
            "--recompute",
            "--sequence)",
            "--micro-batch)",
            "--micro-batches",
            "--zero",
            "--gpus",
            "--mfu",
        ),
        *(
            "--load",
            "--price-kwh",
            "--pue",
            "--used",
            "micro-batch 1",
            "tp ",
            "pp ",
            "dp 1",
            "MFU 0.4 (source: assumed)",
        ),
    ):
        assert text in flat, text


def test_the_cheapest_tensor_parallelism_is_searched_not_the_smallest(size: Size) -> None:
    def cost(*more: str) -> tuple[int, float]:
        row = json.loads(
            size("serve", "--config", L70, "--on", "dgx_h100", "--price-hour", "2.5", "--output", "json", *more)[1]
        )["candidates"][0]
        return row["tp"], row["cost"]["per_million_tokens"]

    found = cost()
    assert found[0] == 8
    assert found[1] == pytest.approx(min(cost("--tp", str(width))[1] for width in (2, 4, 8)))
    assert cost("--tp", "2")[1] > 5 * found[1]


def test_sequences_are_spread_over_as_many_replicas_as_they_need(size: Size) -> None:
    def row(*more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            size("serve", "--config", L70, "--on", "dgx_h100", "--output", "json", *more)[1]
        )["candidates"][0]
        return found

    many = row("--sequences", "400", "--tp", "8")
    assert (many["replicas"], many["sequences"]) == (3, 134)
    assert row("--sequences", "400", "--tp", "8", "--least-rate", "70")["decode"]["per_sequence"] >= 70
    assert row("--sequences", "400", "--tp", "8", "--least-rate", "70")["replicas"] > 3
    assert size("serve", "--config", L70, "--on", "dgx_h100", "--least-rate", "100000")[0] == 1


def test_prices_per_server_model(size: Size) -> None:
    prices = ("--price-hour", "2.5", "--price-hour", "l40s=1", "--price-hour", "dgx_b200=6")
    document = json.loads(
        size(
            "serve", "--config", L8, "--on", "dgx_h100", "--on", "dgx_b200", "--on", "l40s", *prices, "--output", "json"
        )[1]
    )
    assert {row["platform"]: row["cost"]["gpu_hour"] for row in document["candidates"]} == {
        "dgx_h100": 2.5,
        "dgx_b200": 6,
        "sys_521ge_l40s": 1,
    }
    document = json.loads(
        size("serve", "--config", L8, "--on", "dgx_h100", "--on", "l40s", "--price-hour", "l40s=1", "--output", "json")[
            1
        ]
    )
    assert [(row["platform"], bool(row["cost"])) for row in document["candidates"]] == [
        ("sys_521ge_l40s", True),
        ("dgx_h100", False),
    ]


def test_micro_batches_of_the_fastest_run_are_searched(size: Size) -> None:
    def row(*more: str) -> dict[str, Any]:
        document = json.loads(
            size(
                "train",
                "--config",
                L70,
                "--gpus",
                "1024",
                "--tokens",
                "1T",
                "--on",
                "dgx_h100",
                "--output",
                "json",
                *more,
            )[1]
        )
        found: dict[str, Any] = document["candidates"][0]
        return found

    assert (row()["limit"], row()["days"]) == ("compute", pytest.approx(12.09, abs=0.01))
    assert row("--micro-batches", "1", "--tp", "8", "--pp", "1")["days"] > 2 * row()["days"]
    assert row()["step"]["tokens"] <= 16 * 2**20


def test_what_was_said_is_not_called_assumed(size: Size) -> None:
    _, out, _ = size(
        *(
            "serve",
            "--config",
            L8,
            "--context",
            "4096",
            "--kv",
            "fp8",
            "--utilization",
            "0.8",
            "--reserve-gib",
            "0",
            "--sequences",
            "8",
        ),
        *("--efficiency", "0.6", "--on", "dgx_h100", "--output", "json"),
    )
    assert json.loads(out)["assumed"] == []


def test_train_gives_days_and_cost(size: Size) -> None:
    code, out, _ = size(
        *(
            "train",
            "--config",
            L70,
            "--gpus",
            "1024",
            "--tokens",
            "1T",
            "--mfu",
            "0.38",
            "--mfu-source",
            "our last run",
            "--on",
            "dgx_h100",
        ),
        *("--micro-batches", "64", "--price-hour", "2", "--output", "json"),
    )
    document = json.loads(out)
    row = document["candidates"][0]
    assert code == 0
    assert document["job"]["mfu_source"] == "our last run"
    assert (row["tp"], row["pp"], row["dp"], row["zero"]) == (8, 1, 128, 1)
    assert row["days"] == pytest.approx(6 * 70_553_706_496 * 1e12 / (1024 * 989.4e12 * 0.38 * 86_400))
    assert row["cost"]["run"] == pytest.approx(2 * row["days"] * 24 * 1024)
    assert row["memory"]["total"] <= row["memory"]["available"]


def test_serve_says_which_limit_it_could_not_judge(size: Size) -> None:
    code, out, _ = size("serve", "--config", L70, "--on", "r760xa_h100_nvl", "--tp", "8", "--pp", "1")
    assert code == 0
    assert "bandwidth, compute; not judged: interconnect (network)" in out
    note = (
        "r760xa_h100_nvl: the rate of the network between its GPUs is not published in the profile: the interconnect "
        "is not judged and may be the tighter limit"
    )
    assert note in out
    document = json.loads(
        size("serve", "--config", L70, "--on", "r760xa_h100_nvl", "--tp", "8", "--pp", "1", "--output", "json")[1]
    )
    assert document["candidates"][0]["decode"]["not_judged"] == ["interconnect (network)"]


def test_what_no_server_can_do_is_exit_1_and_says_how_much_is_missing(size: Size) -> None:
    code, out, _ = size("serve", "--config", L70, "--on", "l4", "--tp", "1", "--pp", "1")
    assert code == 1
    assert "does not fit" in out
    assert "GiB short" in out


def test_quantized_weights_need_less(size: Size) -> None:
    document = json.loads(size("serve", "--config", L70, "--weights", "fp8", "--on", "dgx_h100", "--output", "json")[1])
    assert document["candidates"][0]["smallest"] == {"tp": 2, "pp": 1, "gpus": 2}
    assert document["model"]["weight_bytes"] == pytest.approx(70.55e9 + 2 * 128256 * 8192, rel=0.001)


@pytest.mark.parametrize("terminal", [False, True])
def test_narrow_output_cuts_no_server_and_no_number(
    size: Size,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,  # noqa: FBT001 - a case
) -> None:
    monkeypatch.setattr("rackready.cli.output.console._width", 80)
    monkeypatch.setattr("rackready.cli.output.console._force_terminal", terminal)
    code, out, _ = size(
        "train",
        "--config",
        L70,
        "--gpus",
        "1024",
        "--micro-batches",
        "64",
        "--tokens",
        "1T",
        "--on",
        "dgx_h100",
        "--price-hour",
        "2",
    )
    assert code == 0
    assert "…" not in out
    for text in ("dgx_h100", "h100_sxm", "62.9 GiB of 79.6 GiB", "16.4 GiB", "12.1", "297,123", "594,246"):
        assert text in out, text


def test_weights_that_the_user_names_replace_those_of_the_file(size: Size, tmp_path: Path) -> None:
    path = tmp_path / "hqq.json"
    path.write_text(
        json.dumps(
            {**json.loads(Path(L8).read_text("utf-8")), "quantization_config": {"quant_method": "hqq", "nbits": 3}}
        ),
        encoding="utf-8",
    )
    code, out, _ = size("model", "--config", str(path), "--weights", "int4", "--output", "json")
    assert code == 0
    assert (json.loads(out)["model"]["weights"], json.loads(out)["assumed"]) == ("int4", [])


def test_rate_that_no_layout_reaches_is_no_lack_of_memory(size: Size) -> None:
    arguments = ("serve", "--config", L8, "--on", "dgx_h100", "--least-rate", "100000")
    code, out, _ = size(*arguments, "--output", "json")
    row = json.loads(out)["candidates"][0]
    assert (code, row["fits"], row["limit"], row["sequences"]) == (1, False, "rate", 0)
    # One sequence alone, on the layout that is fastest for it.
    alone = json.loads(
        size(
            *arguments[:-2],
            "--least-rate",
            "1",
            "--sequences",
            "1",
            "--tp",
            str(row["tp"]),
            "--pp",
            "1",
            "--output",
            "json",
        )[1]
    )
    assert row["best_rate"] == pytest.approx(alone["candidates"][0]["decode"]["per_sequence"])
    code, text, _ = size(*arguments)
    assert code == 1
    assert f"rate: {row['best_rate']:,.1f} tokens/s at most, 100,000.0 wanted" in text
    assert "too slow" in text
    assert "memory:" not in text


def test_lack_of_memory_names_no_rate(size: Size) -> None:
    code, out, _ = size(
        "serve",
        "--config",
        L70,
        "--on",
        "dgx_h100",
        "--tp",
        "1",
        "--pp",
        "1",
        "--least-rate",
        "100000",
        "--output",
        "json",
    )
    row = json.loads(out)["candidates"][0]
    assert (code, row["fits"], row["limit"], row["best_rate"]) == (1, False, "memory", None)


@pytest.mark.parametrize(("mode", "name"), [("serve", "context"), ("train", "sequence")])
def test_default_length_is_none_that_the_model_was_not_made_for(size: Size, mode: str, name: str) -> None:
    code, out, err = size(mode, "--config", GPT2, "--on", "dgx_h100", "--output", "json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["job"][name] == 1024
    assert f"1,024 tokens a sequence, the maximum of gpt2 (--{name})" in document["assumed"]
