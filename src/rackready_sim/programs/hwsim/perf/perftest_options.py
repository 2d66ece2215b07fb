"""Command line of perftest 25.x."""

from __future__ import annotations

_NO_PEAK = 20000
_VALUED = {
    "-d": "device", "--ib-dev": "device", "-p": "port", "--port": "port", "-s": "size", "--size": "size",
    "-n": "iters", "--iters": "iters", "-D": "duration", "--duration": "duration", "-q": "qps", "--qp": "qps",
    "-x": "gid", "--gid-index": "gid", "--use_cuda": "cuda", "-m": "mtu", "--mtu": "mtu", "-i": "ib_port",
    "--ib-port": "ib_port", "-t": "depth", "--tx-depth": "depth", "-S": "sl", "--sl": "sl", "--tclass": "tclass",
    "-T": "tos", "--tos": "tos", "--out_json_file": "json_file", "-c": "connection", "--connection": "connection",
    "-Q": "cq", "--cq-mod": "cq", "-l": "list", "--post_list": "list", "-u": "timeout", "--qp-timeout": "timeout",
    "-o": "outs", "--use_cuda_bus_id": "cuda_bus", "-I": "inline", "--inline_size": "inline",
    "--bind_source_ip": "source",
}  # fmt: skip
_FLAGS = {
    "-F", "--CPU-freq", "--report_gbits", "-b", "--bidirectional", "-a", "--all", "--use_cuda_dmabuf", "--cpu_util",
    "-R", "--rdma_cm", "--perform_warm_up", "--out_json", "-N", "--noPeak", "-z", "--comm_rdma_cm", "-h", "--help",
    "-V", "--version", "-r", "--disable_pcie_relaxed",
}  # fmt: skip


class Options:
    """The command line."""

    def __init__(self, name: str) -> None:
        self.name, self.host = name, ""
        self.values: dict[str, str] = {}
        self.flags: set[str] = set()

    @property
    def latency(self) -> bool:
        """Whether it is a latency test."""
        return self.name.endswith("_lat")

    @property
    def verb(self) -> str:
        """Name of the operation, as in the result's title."""
        return "RDMA_Read" if "_read_" in self.name else "RDMA_Write"

    @property
    def size(self) -> int:
        """Message size, bytes."""
        return int(self.values.get("size", 2 if self.latency else 65536))

    @property
    def iters(self) -> int:
        """Iterations."""
        return int(self.values.get("iters", 1000 if self.latency else 5000))

    @property
    def no_peak(self) -> bool:
        """Whether no peak is measured; the program prints that if nobody asked for it.

        See force_dependecies of src/perftest_parameters.c.
        """
        return "duration" in self.values or self.iters > _NO_PEAK or bool(self.flags & {"-N", "--noPeak"})

    @property
    def port(self) -> int:
        """TCP port of the exchange."""
        return int(self.values.get("port", 18515))


def parse(name: str, argv: list[str]) -> Options | str:
    """Sort the command line; a text is the error."""
    options = Options(name)
    queue = list(argv)
    while queue:
        word, _, value = queue.pop(0).partition("=")
        if word in _VALUED:
            if not value and not queue:
                return f"option requires an argument -- '{word.lstrip('-')}'"
            options.values[_VALUED[word]] = value or queue.pop(0)
        elif word in _FLAGS:
            options.flags.add(word)
        elif word.startswith("-"):
            return f"unrecognized option '{word}'"
        else:
            options.host = word
    numbers = ("size", "iters", "duration", "qps", "gid", "cuda", "port", "ib_port")
    bad = next((key for key in numbers if key in options.values and not options.values[key].isdigit()), None)
    return f"Invalid value for {bad}: {options.values[bad]}" if bad else options
