"""Memory of language models: published checks pass, and wrong formulas in circulation differ from ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rackready.design.sizing import parameters
from rackready.design.sizing.hugging_face import read_config
from rackready.design.sizing.parallel import Layout, check
from rackready.design.sizing.precision import weight_bytes
from rackready.design.sizing.serving_memory import ServingJob, kv_bytes_per_token, serving_memory, weights_on_gpu
from rackready.design.sizing.stages import stages
from rackready.design.sizing.training_memory import TrainingJob, activation_bytes, training_memory
from rackready.model.llm import Llm
from rackready.model.problems import RackreadyError

LLM = Path(__file__).resolve().parents[3] / "fixtures" / "made" / "llm"
GIB = 2**30


def shipped(name: str) -> Llm:
    return read_config(json.loads((LLM / f"{name}.json").read_text(encoding="utf-8")), name)[0]


L8, L70, MIXTRAL, DEEPSEEK, GPT2 = (
    shipped(name) for name in ("llama31_8b", "llama31_70b", "mixtral_8x7b", "deepseek_v3", "gpt2")
)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        (L8, 8.03e9, 8.03e9),
        (L70, 70.55e9, 70.55e9),
        (MIXTRAL, 46.70e9, 12.88e9),
        (DEEPSEEK, 671.0e9, 37.5e9),
        (GPT2, 124.4e6, 124.4e6),
    ],
    ids=lambda value: value.name if isinstance(value, Llm) else "",
)
def test_parameters_are_those_that_makers_publish(model: Llm, total: float, active: float) -> None:
    assert parameters.total(model) == pytest.approx(total, rel=0.002)
    assert parameters.active(model) == pytest.approx(active, rel=0.002)


def test_a_gate_is_a_third_matrix() -> None:
    # The copied calculator assumes two matrices (num_mlp_linears = 2): 1.9 billion short for an 8B model.
    wrong = parameters.total(L8) - L8.layers * L8.hidden * L8.intermediate
    assert parameters.total(L8) - wrong == pytest.approx(1.88e9, rel=0.01)
    assert parameters.feed_forward(GPT2, 4 * 768) == 2 * 768 * 4 * 768


def test_positions_count_only_where_they_are_learned() -> None:
    # The copied calculator always adds them: 131,072 x 4,096 would be half a billion parameters that Llama does not
    # have.
    assert L8.learned_positions == 0
    assert GPT2.learned_positions == 1024


def test_cache_of_a_token() -> None:
    assert kv_bytes_per_token(L8) == 131_072
    assert kv_bytes_per_token(L8) * 4096 == 512 * 2**20
    assert kv_bytes_per_token(L70) == 327_680
    assert kv_bytes_per_token(L70) * 32_768 == 10 * GIB
    assert kv_bytes_per_token(L70, "fp8") == 163_840


def test_cache_is_not_that_of_the_copied_calculator() -> None:
    # It lacks the factor 2 (keys AND values) and ignores grouped queries: L x h x bytes.
    wrong = L70.layers * L70.hidden * 2
    assert kv_bytes_per_token(L70) == wrong / 4
    assert kv_bytes_per_token(GPT2) == 2 * GPT2.layers * GPT2.hidden * 2  # no grouping: twice the wrong one


def test_latent_attention_caches_one_vector() -> None:
    assert kv_bytes_per_token(DEEPSEEK) == 61 * (512 + 64) * 2 == 70_272
    # Taken for grouped queries with 128 heads it would be 57 times as much.
    assert kv_bytes_per_token(DEEPSEEK) < 2 * 61 * 128 * 128 * 2 / 50
    assert kv_bytes_per_token(DEEPSEEK, "bf16", Layout(tp=8)) == 70_272  # every GPU keeps all of it


@pytest.mark.parametrize(("tp", "share"), [(1, 1), (2, 2), (8, 8), (16, 8), (64, 8)])
def test_tensor_parallelism_divides_the_cache_by_its_heads_at_most(tp: int, share: int) -> None:
    assert kv_bytes_per_token(L70, "bf16", Layout(tp=tp)) == 327_680 / share


def test_sequences_take_whole_blocks() -> None:
    memory = serving_memory(
        L8, Layout(), ServingJob(context=17, utilization=1.0), weights_on_gpu(L8, Layout()) + 131_072 * 16 * 5
    )
    assert memory.kv_tokens == 80
    assert memory.sequences == 2  # 17 tokens are two blocks of 16
    assert serving_memory(L8, Layout(), ServingJob(context=17), 1e9).sequences == 0


def test_bytes_of_a_weight() -> None:
    assert (weight_bytes("bf16"), weight_bytes("fp8"), weight_bytes("int4"), weight_bytes("int4", 32)) == (
        2,
        1,
        (4 + 20 / 128) / 8,
        (4 + 20 / 32) / 8,
    )
    assert weight_bytes("nvfp4") == 4.5 / 8


def test_quantization_leaves_embeddings_in_sixteen_bits() -> None:
    quantized = L8.model_copy(update={"weights": "int4"})
    outside = parameters.outside_layers(L8)
    assert weights_on_gpu(quantized, Layout()) == pytest.approx(
        (parameters.total(L8) - outside) * weight_bytes("int4") + outside * 2
    )
    assert weights_on_gpu(quantized, Layout()) > parameters.total(L8) * weight_bytes("int4")
    assert weights_on_gpu(DEEPSEEK, Layout()) == pytest.approx(671e9, rel=0.01)


def job(**changes: object) -> TrainingJob:
    return TrainingJob(**{"sequence": 4096, "micro_batch": 1, **changes})  # type: ignore[arg-type] - fields by name


def test_states_of_mixed_precision_adam_are_eighteen_bytes() -> None:
    memory = training_memory(L8, Layout(), job())
    total = parameters.total(L8)
    assert memory.weights + memory.gradients + memory.optimizer == pytest.approx(18 * total)
    assert training_memory(L8, Layout(), job(gradient_bytes=2)).gradients == pytest.approx(2 * total)
    assert training_memory(L8, Layout(), job(optimizer="adam8bit")).optimizer == pytest.approx(6 * total)
    assert training_memory(L8, Layout(), job(optimizer="sgd")).optimizer == pytest.approx(8 * total)
    lean = training_memory(L8, Layout(), job(optimizer="adam_no_master", gradient_bytes=2))
    assert lean.weights + lean.gradients + lean.optimizer == pytest.approx(12 * total)


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"), [(0, 1, 1, 1), (1, 1, 1, 64), (2, 1, 64, 64), (3, 64, 64, 64)]
)
def test_zero_divides_by_data_parallel_ranks(zero: int, weights: int, gradients: int, optimizer: int) -> None:
    memory = training_memory(L8, Layout(tp=8, dp=64, zero=zero), job())
    share = parameters.total(L8) / 8
    assert memory.weights == pytest.approx(2 * share / weights)
    assert memory.gradients == pytest.approx(4 * share / gradients)
    assert memory.optimizer == pytest.approx(12 * share / optimizer)


def test_zero_is_not_that_of_the_copied_calculator() -> None:
    # (b) It divides stage 3 weights by t p twice (by all GPUs after t p), and stage 0 and 1 gradients not at all.
    total, gpus = parameters.total(L8), 8 * 64
    stage3 = training_memory(L8, Layout(tp=8, dp=64, zero=3), job())
    assert stage3.weights == pytest.approx(2 * total / gpus)
    assert stage3.weights != pytest.approx(2 * total / 8 / gpus)
    assert training_memory(L8, Layout(tp=8, dp=64, zero=1), job()).gradients != pytest.approx(4 * total)


def test_experts_are_sharded_over_their_own_ranks() -> None:
    layout = Layout(tp=1, dp=16, ep=8, zero=1)
    stage = stages(MIXTRAL, layout)[0]
    assert stage.routed == pytest.approx(parameters.routed(MIXTRAL) * 32 / 8)
    memory = training_memory(MIXTRAL, layout, job())
    assert memory.optimizer == pytest.approx(12 * ((stage.dense + stage.outside) / 16 + stage.routed / 2))


def test_activations_of_a_layer() -> None:
    whole = 4096 * 4096  # s b h
    assert activation_bytes(L8, job(), 1) == 34 * whole
    assert activation_bytes(L8, job(recompute="full"), 1) == 2 * whole
    assert activation_bytes(L8, job(recompute="none"), 1) == 34 * whole + 5 * 32 * 4096**2
    assert activation_bytes(L8, job(), 8) == 34 * whole / 8
    assert activation_bytes(L8, job(sequence_parallel=False), 8) == 10 * whole + 24 * whole / 8


def test_full_recomputation_is_not_selective() -> None:
    # (d) The copied calculator calls 34 s b h "checkpointed": full recomputation keeps 2 s b h, and one layer's worth
    # while it computes again.
    full, selective = training_memory(L8, Layout(), job(recompute="full")), training_memory(L8, Layout(), job())
    assert selective.activations == 17 * full.activations
    assert full.recomputing == activation_bytes(L8, job(), 1)


def test_pipeline_stages_hold_their_own_layers() -> None:
    # (f) The copied calculator does not divide by p. With one micro-batch a stage holds its layers only; a full 1F1B
    # pipeline holds p times them.
    one = training_memory(L70, Layout(tp=8, pp=4), job(micro_batches=1))
    full = training_memory(L70, Layout(tp=8, pp=4), job(micro_batches=8))
    alone = training_memory(L70, Layout(tp=8), job())
    assert one.activations == alone.activations / 4
    assert full.activations == alone.activations
    assert full.stage == "first"


def test_the_fullest_gpu_has_the_embeddings() -> None:
    first, last = stages(L70, Layout(tp=8, pp=4))
    matrix = L70.vocabulary * L70.hidden / 8
    assert first.outside == matrix
    assert last.outside == pytest.approx(matrix, rel=0.001)
    assert first.parameters > parameters.total(L70) / 32  # spread evenly it would be less
    tied = L70.model_copy(update={"tied": True})
    assert stages(tied, Layout(pp=4))[1].outside == pytest.approx(
        L70.vocabulary * L70.hidden, rel=0.001
    )  # the head is a copy on the last stage


def test_an_odd_number_of_layers_makes_one_stage_fuller() -> None:
    assert stages(DEEPSEEK, Layout(pp=4))[0].layers == 16


@pytest.mark.parametrize(
    ("model", "layout", "text"),
    [
        (
            L70,
            Layout(tp=3),
            (
                "--tp 3: 64 heads and 8 key and value heads cannot be split over 3 GPUs - "
                "Expected: one of 1, 2, 4, 8, 16, 32, 64 Actual: 3. Choose one of them."
            ),
        ),
        (
            L70,
            Layout(pp=81),
            "--pp 81: the model has fewer layers than pipeline stages - Expected: at most 80 Actual: 81. Lower it.",
        ),
        (L8, Layout(ep=2), "--ep 2: llama has no experts - Expected: 1 Actual: 2. Remove it."),
        (
            MIXTRAL,
            Layout(ep=3, dp=3),
            "--ep 3: experts cannot be split evenly - Expected: a divisor of 8 Actual: 3. Choose one.",
        ),
        (
            MIXTRAL,
            Layout(ep=4, dp=6),
            (
                "--ep 4: expert-parallel ranks are data-parallel ranks - Expected: a divisor of --dp 6 Actual: 4. "
                "Choose one."
            ),
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(model: Llm, layout: Layout, text: str) -> None:
    with pytest.raises(RackreadyError) as refused:
        check(model, layout)
    assert str(refused.value) == text
