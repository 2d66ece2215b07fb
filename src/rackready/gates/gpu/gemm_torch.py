"""Matrix multiplication in BF16, FP8 and TF32 by PyTorch; rates and results of the GPUs are compared."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pydantic import Field

from rackready.design.facts import NodeFacts
from rackready.format_error import FormatError
from rackready.gates.base import Command, FleetMetric, Gate, GateFacts, Output, Outputs, Run, trouble
from rackready.gates.engine.container import ImageInputs, container_argv, exit_text
from rackready.gates.engine.shipped_script import document
from rackready.gates.gpu import matmul, paired_outputs, parts, siblings
from rackready.gates.gpu.siblings import Comparison, compare
from rackready.gates.judging.expectation import launches
from rackready.gates.judging.finding_kinds import ErrorKind, FailKind
from rackready.gates.judging.judge import Judge
from rackready.model.outcome import Verdict
from rackready.model.place import Place
from rackready.model.profile import Precision
from rackready.ondevice import gemm as script

_KINDS: tuple[Literal["bf16", "fp8", "tf32"], ...] = ("bf16", "fp8", "tf32")
_EFFECT, _SIGMA = 0.03, 0.01
_START_S, _FETCH_S = 300, 1800
"""Time for Python and PyTorch to start; with an image, the time that any container gate has to fetch it. Judgement."""
_STEP = (
    "Check clocks, power and temperature under load (gate node/gpu/stress/burn). "
    "Replace a GPU that stays slow: docs/runbooks/gpu.md."
)
_WRONG = (
    "Drain the node at once, run the field diagnostic, then replace the GPU: docs/runbooks/silent-data-corruption.md."
)
_WHICH = (
    "Drain the node at once: no result has a majority. "
    "Run the field diagnostic on every GPU, then replace those that fail: "
    "docs/runbooks/silent-data-corruption.md."
)
_TORCH = (
    "Name an image with PyTorch for CUDA (gates.also, input `image`) or a Python of the node that has it "
    "(input `python`), or skip the gate with a reason (site.yml gates.skip)."
)


TORCH_NOT_RUN = ErrorKind(
    "gemm-torch-not-run",
    "GEMM by PyTorch did not run",
    meaning="PyTorch could not run the matrix products, so nothing was measured.",
    next_step=_TORCH,
)
TORCH_UNREADABLE = ErrorKind(
    "gemm-torch-unreadable",
    "GEMM by PyTorch unreadable",
    meaning="The program printed something other than its readings.",
    next_step=_TORCH,
)
PRODUCTS_VARY = FailKind(
    "gemm-products-vary",
    "{kind} products differ from run to run",
    meaning="The GPU returns different results for the same product: it corrupts data silently.",
    next_step=_WRONG,
    runbook="docs/runbooks/silent-data-corruption.md",
)
PRODUCTS_DIFFER = FailKind(
    "gemm-products-differ",
    "{kind} products differ between the GPUs",
    meaning="The GPUs return different results for the same product and no result has a majority: at least one "
    "corrupts data silently.",
    next_step=_WHICH,
    runbook="docs/runbooks/silent-data-corruption.md",
)
PRODUCT_ODD = FailKind(
    "gemm-product-odd-one",
    "{kind} product differs from its siblings'",
    meaning="This GPU returns another result for the same product than most of its siblings: it corrupts data "
    "silently.",
    next_step=_WRONG,
    runbook="docs/runbooks/silent-data-corruption.md",
)
RATE_LOW = FailKind(
    "gemm-torch-slow",
    "{metric} is slow",
    meaning="The GPU computes slower than its model should.",
    next_step=_STEP,
    runbook="docs/runbooks/gpu.md",
)

FINDINGS = (
    RATE_LOW,
    TORCH_NOT_RUN,
    TORCH_UNREADABLE,
    PRODUCTS_VARY,
    PRODUCTS_DIFFER,
    PRODUCT_ODD,
)


class GemmTorch(Gate):
    """Every GPU multiplies BF16, FP8 and TF32 matrices as fast as its siblings, and always with the same result."""

    id = "node/gpu/performance/gemm-torch"
    findings = (
        *matmul.FINDINGS,
        *siblings.FINDINGS,
        paired_outputs.SAME_LAUNCH,
        *FINDINGS,
    )
    covers = frozenset({"gpu"})
    fleet = tuple(FleetMetric(f"gemm_{kind}", _EFFECT, _SIGMA) for kind in _KINDS)

    class Inputs(ImageInputs):
        """Location of PyTorch and length of the load."""

        image: str = Field(
            "",
            description="container image with PyTorch for CUDA; empty: PyTorch of the node's own python3",
        )
        python: tuple[str, ...] = Field(
            ("python3",),
            min_length=1,
            description="command that runs a Python with PyTorch, in the image or on the node",
        )
        precisions: tuple[Literal["bf16", "fp8", "tf32"], ...] | None = Field(
            None, min_length=1, description="number formats; null: those for which the GPU profile has a rate"
        )
        duration_s: int = Field(20, ge=5, le=3600, description="length of one launch and precision, s")
        warm_up_s: int = Field(5, ge=0, le=600, description="first seconds whose readings (two a second) are not used")
        dimension: int = Field(8192, ge=256, le=65536, description="rows and columns of the matrices")
        launches: int | None = Field(
            None,
            ge=1,
            le=50,
            description="launches whose median counts; null: computed from the number of GPUs of the site and an "
            "effect of 3 %",
        )

    inputs: Inputs

    def _launches(self, facts: GateFacts, node: str) -> int:
        return self.inputs.launches or launches(facts.fleet * parts.gpus(facts, node), sigma=_SIGMA, effect=_EFFECT)

    def _kinds(self, facts: NodeFacts) -> tuple[Precision, ...]:
        return self.inputs.precisions or tuple(kind for kind in _KINDS if kind in facts.gpu.compute)

    def plan(self, facts: GateFacts, nodes: Sequence[str]) -> list[Run]:
        """Return as many launches per node as the site's size requires, each with all precisions."""
        return [
            Run.of_node(node, *(self._command(facts, node, number) for number in range(self._launches(facts, node))))
            for node in nodes
        ]

    def _command(self, facts: GateFacts, node: str, number: int) -> Command:
        kinds = self._kinds(facts.nodes[node])
        python = (*self.inputs.python, "-", str(self.inputs.duration_s), str(self.inputs.dimension), *kinds)
        argv = container_argv(self.inputs, *python, options=("--interactive",)) if self.inputs.image else python
        longest = self.inputs.duration_s * len(kinds) + (_FETCH_S if self.inputs.image else _START_S)
        return Command(
            key=f"gemm-{number}", node=node, argv=argv, stdin=inspect.getsource(script), timeout_s=longest, stage=number
        )

    def tools(self, outputs: Outputs) -> dict[str, str]:
        """Return the versions of PyTorch and of its CUDA."""
        try:
            found = document(outputs["gemm-0"], script.FORMAT)
            return {"torch": str(found["torch"]), "cuda": str(found["cuda"])}
        except (KeyError, FormatError):
            return {}

    def evaluate(self, facts: GateFacts, run: Run, outputs: Outputs) -> Verdict:
        """Judge the results, then compare the median of each GPU's launches with its siblings."""
        node = run.nodes[0]
        judge = Judge()
        found = [
            self._read(judge, facts, node, outputs.get(f"gemm-{number}"))
            for number in range(self._launches(facts, node))
        ]
        bad: set[int] = set()
        whole = None not in found and paired_outputs.distinct(
            judge, node, "the GEMM", [_figures(one) for one in found if one is not None]
        )
        for kind in self._kinds(facts.nodes[node]) if whole else ():
            rows = [one[kind] for one in found if one is not None]
            bad |= _compare_products(judge, node, kind, rows)
            values = {gpu: median(self._steady(row[gpu]) for row in rows) for gpu in range(parts.gpus(facts, node))}
            bad |= self._judge(judge, facts, node, kind, values)
        if not judge.errors:
            judge.measured.update(f"{node}/gpu{gpu}" for gpu in range(parts.gpus(facts, node)) if gpu not in bad)
        if matmul.needs_fleet(facts.nodes[node].gpu, self._kinds(facts.nodes[node]), parts.gpus(facts, node)):
            judge.fleet_pending = True
        return judge.verdict(node)

    def _read(
        self, judge: Judge, facts: GateFacts, node: str, output: Output | None
    ) -> dict[str, list[dict[str, Any]]] | None:
        if judge.trouble(trouble(output, node, "GEMM by PyTorch")) or output is None:
            return None
        try:
            found = document(output, script.FORMAT)
            if "error" in found:
                judge.error(node, TORCH_NOT_RUN, "a measurement", found["error"])
                return None
            return {
                kind: self._rows(found["loads"][kind], parts.gpus(facts, node))
                for kind in self._kinds(facts.nodes[node])
            }
        except (FormatError, KeyError, TypeError, ValueError) as error:
            judge.error(node, TORCH_UNREADABLE, "readings of every GPU and precision", f"{error} ({exit_text(output)})")
            return None

    def _rows(self, rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """Return the rows. Raises FormatError if they are incomplete."""
        if len(rows) != count:
            raise FormatError(f"{len(rows)} GPUs instead of {count}")
        for gpu, row in enumerate(rows):
            readings = [float(value) for value in row["readings"]]
            steady = self._steady(row) if readings else 0.0
            if (
                not isinstance(row["differ"], int)
                or not isinstance(row["digest"], int)
                or not all(math.isfinite(value) and value > 0 for value in readings)
                or steady <= 0
            ):
                raise FormatError(f"gpu{gpu} has no steady load")
        return rows

    def _steady(self, row: dict[str, Any]) -> float:
        """Return the median after the warm-up, or of the second half if the load is shorter than the warm-up."""
        readings = [float(value) for value in row["readings"]]
        return median(readings[2 * self.inputs.warm_up_s :] or readings[len(readings) // 2 :])

    def _judge(self, judge: Judge, facts: GateFacts, node: str, kind: Precision, values: dict[int, float]) -> set[int]:
        judge.judged += 1
        for gpu, value in values.items():
            judge.metric(f"gemm_{kind}", f"{node}/gpu{gpu}", value, "GFLOPS")
        slow = matmul.judge_rates(judge, facts.nodes[node].gpu, node, kind, values, RATE_LOW)
        units = facts.fleet * parts.gpus(facts, node)
        return slow | compare(
            judge,
            node,
            values,
            Comparison(f"gemm_{kind}", "GFLOPS", _EFFECT, _SIGMA, self._launches(facts, node), units, _STEP),
        )


def _figures(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, object]:
    """Return the readings of one launch, by precision and GPU."""
    return {f"{kind} on gpu{gpu}": row["readings"] for kind, rows in found.items() for gpu, row in enumerate(rows)}


def _compare_products(judge: Judge, node: str, kind: str, rows: list[list[dict[str, Any]]]) -> set[int]:
    """Fail every GPU whose products differ from its own first one or from those of most siblings. Return those GPUs."""
    judge.judged += 1
    bad: set[int] = set()
    for gpu in range(len(rows[0])):
        differ = sum(int(one[gpu]["differ"]) for one in rows)
        if differ:
            bad.add(gpu)
            judge.fail(
                Place(node, f"gpu{gpu}"),
                PRODUCTS_VARY,
                "the same result each time",
                f"{differ} of its comparisons differ",
                kind=kind,
            )
    return bad | _compare_first_products(
        judge, node, kind, [{row[gpu]["digest"] for row in rows} for gpu in range(len(rows[0]))], bad
    )


def _compare_first_products(judge: Judge, node: str, kind: str, digests: list[set[int]], known: set[int]) -> set[int]:
    """Compare the GPUs' first products. Return the GPUs that differ from most.

    Without a majority it is unknown which GPU is right, so none counts as measured.
    """
    groups = Counter(digest for seen in digests for digest in seen)
    most, times = groups.most_common(1)[0]
    if times * 2 <= len(digests) and len(groups) > 1:
        said = "; ".join(
            f"{digest} on {', '.join(f'gpu{gpu}' for gpu, seen in enumerate(digests) if digest in seen)}"
            for digest in sorted(groups)
        )
        judge.fail(node, PRODUCTS_DIFFER, "one digest on all of them", said, kind=kind)
        return set(range(len(digests)))
    others = {gpu for gpu, seen in enumerate(digests) if gpu not in known and seen != {most}}
    for gpu in sorted(others):
        judge.fail(Place(node, f"gpu{gpu}"), PRODUCT_ODD, f"digest {most}, as most have", "another", kind=kind)
    return others
