"""Run a short data-parallel training; rank 0 prints losses, agreement of ranks and tokens per second as JSON.

Started once for each GPU (torchrun). A small transformer learns one fixed batch of random tokens, so its loss must
start near ln(vocabulary) and fall. Every rank must end with the same parameters, bit for bit, because all of them apply
the same reduced gradients.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import socket
import sys
import time
import traceback
from datetime import timedelta
from typing import Any, NoReturn, Protocol

FORMAT = "rackready/ddp-step/v1"


class Backend(Protocol):
    """The trainer: PyTorch on nodes, a stub in tests."""

    rank: int
    world: int
    tokens: int
    """Return the tokens of all ranks in one step."""
    versions: dict[str, str]

    def step(self) -> float:
        """Do one step; return the loss, averaged over all ranks."""

    def wait(self) -> None:
        """Wait until the device has finished its work."""

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - what every rank says
        """Return every rank's value, in order of rank."""

    def checksum(self) -> str:
        """Return a digest of this rank's parameters."""


def train(backend: Backend, warmup: int, steps: int) -> dict[str, Any]:
    """Train and return the report, which is the same on every rank."""
    losses = [backend.step() for _ in range(warmup)]
    backend.wait()
    begun = time.monotonic()
    losses += [backend.step() for _ in range(steps)]
    backend.wait()
    seconds = time.monotonic() - begun
    return {
        "format": FORMAT,
        "world": backend.world,
        "hosts": backend.gather(socket.gethostname()),
        "losses": losses
        if all(math.isfinite(loss) for loss in losses)
        else [loss if math.isfinite(loss) else None for loss in losses],
        "checksums": backend.gather(backend.checksum()),
        "seconds": backend.gather(seconds),
        "tokens_per_second": backend.tokens * steps / seconds if seconds > 0 else None,
        "versions": backend.versions,
        "complete": True,
    }


class Torch:
    """PyTorch with DistributedDataParallel: NCCL on GPUs, gloo on CPUs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.dist: Any = importlib.import_module("torch.distributed")
        gpu = options.backend == "nccl"
        local = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = self.torch.device(f"cuda:{local}" if gpu else "cpu")
        if gpu and not self.torch.cuda.is_available():
            message = "PyTorch finds no CUDA device"
            raise RuntimeError(message)
        if gpu:
            self.torch.cuda.set_device(self.device)
        self.dist.init_process_group(options.backend, timeout=timedelta(seconds=options.wait))
        self.rank, self.world = self.dist.get_rank(), self.dist.get_world_size()
        self.tokens = options.batch * options.sequence * self.world
        self.versions = {"torch": str(self.torch.__version__), "backend": options.backend}
        if gpu:
            self.versions |= {
                "cuda": str(self.torch.version.cuda),
                "nccl": ".".join(map(str, self.torch.cuda.nccl.version())),
            }
        self._build(options, gpu=gpu)

    def _build(self, options: argparse.Namespace, *, gpu: bool) -> None:
        nn = self.torch.nn
        self.torch.manual_seed(options.seed)
        layer = nn.TransformerEncoderLayer(
            options.width, options.width // 64, 4 * options.width, dropout=0.0, batch_first=True
        )
        model = nn.Sequential(
            nn.Embedding(options.vocabulary, options.width),
            nn.TransformerEncoder(layer, options.layers),
            nn.Linear(options.width, options.vocabulary),
        )
        nn.init.normal_(model[2].weight, std=0.002)  # so that the first loss is ln(vocabulary)
        nn.init.zeros_(model[2].bias)
        parallel = importlib.import_module("torch.nn.parallel").DistributedDataParallel
        self.model = parallel(model.to(self.device), device_ids=[self.device.index] if gpu else None)
        self.optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=options.rate)
        source = self.torch.Generator().manual_seed(options.seed + 1 + self.rank)
        shape = (options.batch, options.sequence + 1)
        self.batch = self.torch.randint(options.vocabulary, shape, generator=source).to(self.device)

    def step(self) -> float:
        """Do one step; return the loss, averaged over all ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.torch.autocast(self.device.type, dtype=self.torch.bfloat16):
            out = self.model(self.batch[:, :-1])
            loss = self.torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), self.batch[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        told = loss.detach().clone()
        self.dist.all_reduce(told)
        mean: float = float(told.item()) / int(self.world)
        return mean

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def gather(self, value: Any) -> list[Any]:  # noqa: ANN401 - what every rank says
        """Return every rank's value, in order of rank."""
        out: list[Any] = [None] * self.world
        self.dist.all_gather_object(out, value)
        return out

    def checksum(self) -> str:
        """Return a digest of this rank's parameters."""
        digest = importlib.import_module("hashlib").sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().float().cpu().numpy().tobytes())
        return str(digest.hexdigest())


KEPT: list[Backend] = []
"""Objects that must live until the process ends: PyTorch 1.13 may wait for ever while it destroys a process group of
gloo. The thread that destroys it holds Python's lock and waits for gloo's thread, which waits for that lock to
destroy a tensor."""


def options(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="short data-parallel training run")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl")
    for name, value in (
        ("warmup", 5),
        ("steps", 50),
        ("batch", 8),
        ("sequence", 1024),
        ("width", 1024),
        ("layers", 8),
        ("vocabulary", 32000),
        ("seed", 7),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--wait", type=int, default=900, help="longest time that a rank waits for the others, s")
    parser.add_argument("--rate", type=float, default=3e-4)
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Train; rank 0 prints the report on a line of its own."""
    wanted = options(argv)
    try:
        backend = Torch(wanted)
    except ImportError as error:
        sys.stderr.write(f"{type(error).__name__}: PyTorch cannot be used by {sys.executable}: {error}\n")
        return 1
    KEPT.append(backend)
    report = train(backend, wanted.warmup, wanted.steps)
    if backend.rank == 0:
        sys.stdout.write("\n" + json.dumps(report) + "\n")
        sys.stdout.flush()
    backend.dist.destroy_process_group()
    return 0


def end(argv: list[str]) -> NoReturn:
    """Train, then exit without Python's cleanup, which would destroy the objects in KEPT."""
    code = 1
    try:
        code = main(argv)
    except Exception:  # noqa: BLE001 - printed, whatever it is, and told by the exit code
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    end(sys.argv[1:])
