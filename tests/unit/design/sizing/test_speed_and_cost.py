"""Bounds of speed, days of a run and costs: by hand, against the profiles, with the limiting resource."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready.design.sizing import candidates, links, parameters
from rackready.design.sizing.cost import Price, gpu_hour, per_million, virtual
from rackready.design.sizing.hugging_face import read_config
from rackready.design.sizing.parallel import Layout
from rackready.design.sizing.precision import computed_in
from rackready.design.sizing.serving_memory import ServingJob, kv_bytes_per_token
from rackready.design.sizing.serving_speed import decode, forward_flops, prefill
from rackready.design.sizing.training_memory import TrainingJob
from rackready.design.sizing.training_speed import training_days, training_time
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError
from rackready.profiles import loader

LLM = Path(__file__).resolve().parents[3] / "fixtures" / "made" / "llm"


def shipped(name: str) -> Llm:
    return read_config(json.loads((LLM / f"{name}.json").read_text(encoding="utf-8")), name)[0]


L8, L70, MIXTRAL, DEEPSEEK = (shipped(name) for name in ("llama31_8b", "llama31_70b", "mixtral_8x7b", "deepseek_v3"))
H100, DGX = loader.gpu("h100_sxm"), loader.platform("dgx_h100")


def test_days_of_a_run() -> None:
    # 6 x 70e9 x 15e12 / (16,384 x 989.4e12 x 0.4 x 86,400): the published 70B run of 15 T tokens in the order of 6.4 M
    # H100 hours.
    days = training_days(70e9, 15e12, 16_384, 989.4, 0.4)
    assert days == pytest.approx(11.24, rel=0.001)
    # With the sparse figure, which is often taken for dense, it would be half.
    assert training_days(70e9, 15e12, 16_384, 1978.9, 0.4) == pytest.approx(days / 2, rel=0.001)


def test_forward_pass_is_two_operations_a_parameter() -> None:
    assert forward_flops(L8, 0) == 2 * 8_030_261_248
    assert forward_flops(MIXTRAL, 0) == pytest.approx(2 * 12.88e9, rel=0.001)
    assert forward_flops(L8, 1000) - forward_flops(L8, 0) == 4 * 32 * 32 * 128 * 1000


def test_decode_is_bound_by_bandwidth() -> None:
    job = ServingJob(context=4096)
    bound = decode(L8, Layout(), job, H100, DGX, 1)
    # All weights but the input embedding, of which one row is read, and one sequence's cache.
    read = 2 * (8_030_261_248 - 128_256 * 4096 - 4096) + 4096 * kv_bytes_per_token(L8)
    assert bound.limit == "bandwidth"
    assert bound.per_sequence == pytest.approx(3350e9 / read, rel=0.001)
    assert bound.per_sequence < 3350e9 / 15e9


def test_batching_shares_the_weights_and_not_the_cache() -> None:
    job = ServingJob(context=4096)
    one, many = (decode(L8, Layout(), job, H100, DGX, count) for count in (1, 64))
    assert one.tokens_per_second < many.tokens_per_second < 64 * one.tokens_per_second
    assert many.per_sequence < one.per_sequence


def test_enough_short_sequences_are_bound_by_compute() -> None:
    assert decode(L8, Layout(), ServingJob(context=1), H100, DGX, 4096).limit == "compute"


def test_prefill_is_bound_by_compute() -> None:
    bound = prefill(L8, Layout(), ServingJob(context=8192), H100, DGX)
    assert bound.limit == "compute"
    assert bound.tokens_per_second == pytest.approx(989.4e12 / forward_flops(L8, 4096), rel=0.001)


def test_prefill_over_pcie_is_bound_by_the_interconnect() -> None:
    card, server = loader.gpu("l40s"), loader.platform("sys_521ge_l40s")
    assert prefill(L70, Layout(tp=8), ServingJob(context=8192), card, server).limit == "interconnect"
    assert prefill(L70, Layout(tp=8), ServingJob(context=8192), H100, DGX).limit == "compute"


def test_a_batch_visits_more_experts() -> None:
    few, many = (decode(MIXTRAL, Layout(tp=2), ServingJob(context=128), H100, DGX, count) for count in (1, 32))
    assert many.seconds["bandwidth"] > 2 * few.seconds["bandwidth"]  # 2 of 8 experts for one token, nearly all for 32


def test_a_pipeline_does_not_make_one_token_faster() -> None:
    job = ServingJob(context=4096)
    flat, piped = (decode(L70, layout, job, H100, DGX, 8) for layout in (Layout(tp=8), Layout(tp=4, pp=2)))
    assert piped.per_sequence < flat.per_sequence


def test_fewer_sequences_than_stages_leave_stages_idle() -> None:
    one, four, eight = (
        decode(L70, Layout(tp=2, pp=4), ServingJob(context=4096), H100, DGX, count) for count in (1, 4, 8)
    )
    assert one.tokens_per_second == one.per_sequence
    assert four.tokens_per_second == pytest.approx(4 * one.tokens_per_second)
    assert eight.tokens_per_second == pytest.approx(8 * eight.per_sequence)


def test_weights_are_computed_in_their_own_format_or_unpacked() -> None:
    assert computed_in(H100, "fp8") == ("fp8", "")
    fmt, note = computed_in(loader.gpu("a100_80_sxm"), "fp8")
    assert fmt == "bf16"
    assert note == "fp8 weights are unpacked and multiplied in bf16: no fp8 rate of NVIDIA A100-SXM4-80GB is used"
    assert computed_in(loader.gpu("b200_sxm"), "nvfp4")[0] == "fp4"


def test_links_are_those_of_the_server() -> None:
    assert links.between(DGX, H100, 8) == links.LinkRates(450e9, "NVLink")
    assert links.between(DGX, H100, 16) == links.LinkRates(50e9, "network")
    nvl, dell = loader.gpu("h100_nvl"), loader.platform("r760xa_h100_nvl")
    assert links.between(dell, nvl, 2) == links.LinkRates(300e9, "NVLink bridge")
    assert links.between(dell, nvl, 4) == links.LinkRates(64e9, "PCIe")
    assert links.between(dell, nvl, 8) == links.LinkRates(None, "network")  # its network cards are not in the profile
    assert links.between(loader.platform("gb200_nvl72"), loader.gpu("gb200_nvl72"), 72).carrier == "NVLink"


def test_an_all_reduce_moves_nearly_twice_its_size() -> None:
    assert links.all_reduce(8e9, 8, 450e9) == pytest.approx(2 * 7 / 8 * 8 / 450)


def test_training_names_what_binds() -> None:
    job = TrainingJob(4096, 1, micro_batches=1)
    small = training_time(L70, Layout(tp=8, dp=128, zero=1), job, H100, DGX, 1e12, 0.4)
    large = training_time(
        L70, Layout(tp=8, dp=128, zero=1), TrainingJob(4096, 1, micro_batches=64), H100, DGX, 1e12, 0.4
    )
    assert small.limit == "interconnect"  # gradients are exchanged after every single sequence
    assert large.limit == "compute"
    assert large.days == pytest.approx(12.08, rel=0.01)
    # Days follow from the slowest resource: steps x its seconds, here the exchange of gradients and not 6 N D at MFU
    # 0.4.
    assert small.days == pytest.approx(1e12 / small.step_tokens * small.seconds["interconnect"] / 86_400)
    assert small.days > 2 * large.days
    assert small.gpu_hours == pytest.approx(small.days * 24 * 1024)
    assert small.step_tokens == 4096 * 128


def exchanged(zero: int, batches: int) -> float:
    job = TrainingJob(4096, 1, micro_batches=batches, recompute="full")
    return training_time(L70, Layout(dp=1024, zero=zero), job, H100, DGX, 1e12, 0.4).seconds["interconnect"]


def test_zero_2_scatters_gradients_and_zero_3_gathers_weights_in_every_micro_batch() -> None:
    # One GPU's share of the network of a DGX H100 is 400 Gb/s, 50e9 bytes a second.
    one = 1023 / 1024 * parameters.total(L70) / 50e9
    assert exchanged(1, 8) == exchanged(1, 1) == pytest.approx(one * 2 * 4)
    assert exchanged(2, 8) == pytest.approx(one * (8 * 4 + 2))
    assert exchanged(3, 8) == pytest.approx(one * 8 * (4 + 2 + 2))


def test_a_run_with_zero_3_lasts_at_least_as_long_as_its_gathers() -> None:
    job = TrainingJob(4096, 1, micro_batches=4, recompute="full")
    run = training_time(L70, Layout(dp=1024, zero=3), job, H100, DGX, 1e12, 0.4)
    gathers = 1e12 / (4096 * 1024) * 2 * 2 * parameters.total(L70) / 50e9 / 86_400
    assert gathers > 15
    assert (run.limit, run.days > gathers) == ("interconnect", True)


def test_ranks_with_different_experts_do_not_gather_them_from_each_other() -> None:
    job = TrainingJob(4096, 1, micro_batches=1)
    whole, own = (
        training_time(MIXTRAL, Layout(dp=8, ep=ep, zero=3), job, H100, DGX, 1e12, 0.4).seconds["interconnect"]
        for ep in (1, 8)
    )
    assert own < whole / 10


def test_what_training_cannot_know_is_not_called_compute() -> None:
    nvl, dell = loader.gpu("h100_nvl"), loader.platform("r760xa_h100_nvl")  # its network cards are not in the profile
    job = TrainingJob(4096, 1, micro_batches=64)
    many = training_time(L8, Layout(tp=2, dp=32, zero=1), job, nvl, dell, 1e12, 0.4)
    assert (many.limit, "interconnect" in many.seconds) == ("not known", False)
    unknown = H100.model_copy(update={"memory_bandwidth": None})
    assert training_time(L8, Layout(tp=8, zero=1), job, unknown, DGX, 1e12, 0.4).limit == "not known"
    assert training_time(L8, Layout(), job, H100, DGX, 1e12, 0.4).limit == "compute"  # one GPU needs no link


def test_serving_names_the_limit_that_was_not_judged() -> None:
    nvl, dell = loader.gpu("h100_nvl"), loader.platform("r760xa_h100_nvl")  # its network cards are not in the profile
    job = ServingJob(context=8192)
    assert decode(L70, Layout(tp=2), job, nvl, dell, 1).not_judged == ()  # a bridged pair
    assert decode(L70, Layout(tp=2, pp=4), job, nvl, dell, 1).not_judged == (
        "interconnect (network)",
    )  # stages in other servers
    wide = prefill(L70, Layout(tp=8), job, nvl, dell)
    assert (wide.limit, "interconnect" in wide.seconds, wide.not_judged) == (
        "compute",
        False,
        ("interconnect (network)",),
    )
    unlinked = nvl.model_copy(update={"pcie": None})
    assert prefill(L70, Layout(tp=4), job, unlinked, dell).not_judged == ("interconnect (PCIe)",)
    unknown = H100.model_copy(update={"memory_bandwidth": None})
    assert decode(L70, Layout(tp=8), job, unknown, DGX, 1).not_judged == ("bandwidth",)
    assert decode(L70, Layout(tp=8), job, H100, DGX, 1).not_judged == ()


def test_smallest_layout_that_fits_is_reported() -> None:
    def smallest(model: Llm, platform: str) -> Layout | None:
        profile = loader.platform(platform)
        load = candidates.Load()
        return candidates.serve_on(
            profile, loader.gpu(profile.gpu), model, ServingJob(8192, reserve=2 * 2**30), Layout(0, 0), load
        ).smallest

    assert smallest(L8, "dgx_h100") == Layout(1, 1)
    assert smallest(L70, "dgx_h100") == Layout(2, 1)  # 131.4 GiB of weights do not fit one GPU of 79.6
    assert smallest(L70, "dgx_h200") == Layout(2, 1)  # sold as 141 GB, 126 GiB of it usable
    assert smallest(L70, "dgx_b200") == Layout(1, 1)
    assert smallest(DEEPSEEK, "dgx_h100") == Layout(8, 2)
    assert smallest(DEEPSEEK, "dgx_h200") == Layout(8, 1)


def test_what_fits_nowhere_is_bound_by_memory() -> None:
    l4, dell = loader.gpu("l4"), loader.platform("r760xa_l4")
    found = candidates.serve_on(dell, l4, DEEPSEEK, ServingJob(8192), Layout(1, 1), candidates.Load())
    assert (found.fits, found.limit, found.decode) == (False, "memory", None)
    trained = candidates.train_on(dell, l4, L70, TrainingJob(4096, 1), Layout(1, 1), 0, 0.4)
    assert (trained.fits, trained.limit) == (False, "memory")


def test_gpus_must_be_a_multiple_of_a_replica() -> None:
    with pytest.raises(RackreadyError) as refused:
        candidates.train_on(DGX, H100, L70, TrainingJob(4096, 1), Layout(8, 2), 100, 0.4)
    assert (
        str(refused.value)
        == "--gpus 100 - Expected: a multiple of tp x pp = 8 x 2 = 16 Actual: 100. Use 96, or other degrees."
    )


def test_an_unknown_server_is_refused() -> None:
    with pytest.raises(
        RackreadyError,
        match=r"^--on h100: no server or GPU profile has that id - Expected: one of h100_sxm, .* and \d+ more "
        r"Actual: h100. Correct it.$",
    ):
        candidates.servers(("h100",))
    assert {platform.id for platform, _ in candidates.servers(("l40s", "dgx_h100"))} == {"sys_521ge_l40s", "dgx_h100"}


def test_a_gpu_hour_rented_and_owned() -> None:
    assert gpu_hour(Price(hour=2.5)) == 2.5
    assert gpu_hour(Price()) is None
    # 35,040 over 4 years of 8,760 hours is 1.00; 1.275 kW x 1.3 x 0.10 is 0.16575.
    assert gpu_hour(Price(purchase=35_040, watts=1275, pue=1.3, kwh=0.10)) == pytest.approx(1.16575)
    assert gpu_hour(Price(purchase=35_040, used=0.5)) == pytest.approx(2.0)
    assert gpu_hour(Price(hour=2.5, used=0.5)) == 5.0, "an hour that is rented and not used is paid for too"
    assert gpu_hour(Price(purchase=35_040, used=0.5, fee=0.25, watts=1000, kwh=0.1)) == pytest.approx(2.6)


def test_cost_of_a_million_tokens() -> None:
    assert per_million(2.5, 8, 1000) == pytest.approx(5.5556, rel=1e-4)
    assert virtual(5.0, 0.2) == pytest.approx(6.25)
