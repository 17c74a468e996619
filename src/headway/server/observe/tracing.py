"""Start tracing if OpenTelemetry's environment variables ask for it. It needs headway[otel]."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.intake.service import Service

if TYPE_CHECKING:
    from headway.server.observe.spans import Tracing

# The first one that is set counts. An empty variable is not set, as OpenTelemetry has it.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"


def start_tracing(service: Service, port: int) -> "Tracing | None":
    """Trace the service's calls from now on, if an endpoint is set. The caller closes the result.

    port: the server's. Raises SettingError if an endpoint is set and calls cannot be traced.
    """
    endpoint, protocol = _first_set(ENDPOINTS), _first_set(PROTOCOLS)
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not endpoint or off or os.environ.get("OTEL_TRACES_EXPORTER", "") == "none":
        return None
    if protocol and os.environ[protocol] != HTTP:
        raise SettingError(
            f"{protocol} is {os.environ[protocol]}, and traces go out as {HTTP} alone"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from headway.server.observe.spans import Tracing
    except ImportError as error:
        raise SettingError(
            f"{endpoint} is set, and {error.name} is not installed: "
            "pip install 'headway[otel]', or unset it"
        ) from error
    return Tracing(BatchSpanProcessor(OTLPSpanExporter()), service, port)


def _first_set(names: Sequence[str]) -> str:
    """The first of these environment variables that is set; empty if none is."""
    return next((name for name in names if os.environ.get(name)), "")
