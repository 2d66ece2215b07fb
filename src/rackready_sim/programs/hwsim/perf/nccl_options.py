"""Command line of NCCL's tests. Format of nccl-tests 2.19.6 (src/common.cu)."""

from __future__ import annotations

MIB, GIB = 1 << 20, 1 << 30
CUDA_ERROR, NCCL_ERROR, FAILURE = 2, 3, 1
"""Exit codes."""
_VALUED = {
    "t": "threads", "nthreads": "threads", "g": "gpus", "ngpus": "gpus", "b": "min", "minbytes": "min", "e": "max",
    "maxbytes": "max", "i": "step", "stepbytes": "step", "f": "factor", "stepfactor": "factor", "n": "iters",
    "iters": "iters", "m": "agg", "agg_iters": "agg", "w": "warmup", "warmup_iters": "warmup", "c": "check",
    "check": "check", "o": "op", "op": "op", "d": "type", "datatype": "type", "r": "root", "root": "root",
    "z": "blocking", "blocking": "blocking", "T": "timeout", "timeout": "timeout", "G": "graph", "cudagraph": "graph",
    "C": "cpu", "report_cputime": "cpu", "a": "average", "average": "average", "R": "register",
    "local_register": "register", "J": "json", "json": "json", "N": "cycles", "run_cycles": "cycles", "p": "parallel",
    "parallel_init": "parallel", "y": "stream", "S": "report",
}  # fmt: skip


class Options:
    """The command line with the tests' defaults."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def number(self, key: str, default: int) -> int:
        """Return an integer option."""
        return int(self.values.get(key, default))

    def bytes(self, key: str, default: int) -> int:
        """Return a size; suffixes K, M, G."""
        text = self.values.get(key)
        return default if text is None else parse_bytes(text)


class RunError(Exception):
    """The test ends early: exit code and output."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as 8G. Raise ValueError if it is none."""
    scale = {"K": 1 << 10, "M": MIB, "G": GIB}.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if scale > 1 else text) * scale)


def parse(argv: list[str]) -> Options:
    """Read the command line. Raise RunError for an option that does not exist."""
    options, queue = Options(), list(argv)
    while queue:
        word, mark, value = queue.pop(0).partition("=")
        name = word.lstrip("-")
        if not word.startswith("--") and word.startswith("-") and len(name) > 1:
            name, value, mark = name[0], name[1:] + mark + value, "="
        if name not in _VALUED or not word.startswith("-") or (not mark and not queue):
            raise RunError(FAILURE, f"invalid option '{word}'\nUSAGE: see --help\n")
        options.values[_VALUED[name]] = value if mark else queue.pop(0)
    return options
