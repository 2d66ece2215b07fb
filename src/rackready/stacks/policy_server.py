"""``pulumi-analyzer-policy-rackready``: serves the policy pack in stacks/policy to Pulumi's engine.

The engine starts it for a pack whose runtime is ``rackready`` (pkg/resource/plugin/analyzer_plugin.go, v3.250.0): first
its address, then ``.``, as arguments. Pulumi's own package `pulumi-policy` 1.21 serves packs of the runtime ``python``.
It wants protobuf 5, where this project has 6, and a language host of the engine's release, which no Go module has.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.protobuf import empty_pb2  # type: ignore[import-untyped]
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc, plugin_pb2
from pulumi.runtime.rpc import UNKNOWN as UNKNOWN_TEXT
from pulumi.runtime.rpc import _special_secret_sig, _special_sig_key

from rackready import __version__
from rackready.stacks.end_with_engine import end_with
from rackready.stacks.policy import RULES, UNKNOWN

PACK = "rackready"
_LEVELS = analyzer_pb2.EnforcementLevel


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """Judges each resource by every rule. Levels of rules are the engine's: a configuration may change them."""

    def __init__(self) -> None:
        self._levels = dict.fromkeys((rule.name for rule in RULES), _LEVELS.MANDATORY)

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802 - gRPC's own names
        """Answer the engine's first call."""
        del request, context
        return analyzer_pb2.AnalyzerHandshakeResponse()

    def ConfigureStack(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Take the stack's name; no rule needs it."""
        del request, context
        return analyzer_pb2.AnalyzerStackConfigureResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Return the version."""
        del request, context
        return plugin_pb2.PluginInfo(version=__version__)

    def GetAnalyzerInfo(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Return the rules with their levels."""
        del request, context
        rules = [
            analyzer_pb2.PolicyInfo(
                name=rule.name, description=rule.description, enforcementLevel=self._levels[rule.name]
            )
            for rule in RULES
        ]
        return analyzer_pb2.AnalyzerInfo(name=PACK, version=__version__, supportsConfig=True, policies=rules)

    def Configure(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Take the levels of ``--policy-pack-config``."""
        del context
        for name, config in request.policyConfig.items():
            if name in self._levels:
                self._levels[name] = config.enforcementLevel
        return empty_pb2.Empty()

    def Analyze(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Judge one resource."""
        del context
        props = plain(MessageToDict(request.properties))
        found = [
            analyzer_pb2.AnalyzeDiagnostic(
                policyName=rule.name,
                policyPackName=PACK,
                policyPackVersion=__version__,
                description=rule.description,
                message=str(message),
                enforcementLevel=self._levels[rule.name],
                urn=request.urn,
            )
            for rule in RULES
            if self._levels[rule.name] != _LEVELS.DISABLED
            for message in rule.judge(request.type, props)
        ]
        return analyzer_pb2.AnalyzeResponse(diagnostics=found)

    def AnalyzeStack(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Find nothing: every rule is about one resource."""
        del request, context
        return analyzer_pb2.AnalyzeResponse()

    def Remediate(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Change nothing."""
        del request, context
        return analyzer_pb2.RemediateResponse()

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Do nothing: no answer takes long."""
        del request, context
        return empty_pb2.Empty()


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return properties as plain JSON: secrets opened, unknown ones as ``UNKNOWN``."""
    if value == UNKNOWN_TEXT:
        return UNKNOWN
    if isinstance(value, dict):
        if value.get(_special_sig_key) == _special_secret_sig:
            return plain(value.get("value"))
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Serve the engine until it ends."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    server = grpc.server(ThreadPoolExecutor(max_workers=4), options=_GRPC_CHANNEL_OPTIONS)
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(Analyzer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))  # at its end, the engine interrupts its plugins
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
