"""Start tracing if OpenTelemetry's environment variables ask for it. It needs headway[otel]."""

import os
from typing import TYPE_CHECKING

from headway.errors import SettingError
from headway.server.intake.service import Service

if TYPE_CHECKING:
    from headway.server.observe.spans import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP = "http/protobuf"


def start_tracing(service: Service, port: int) -> "Tracing | None":
    """Trace the service's calls from now on, if an endpoint is set. The caller closes the result.

    port: the server's. Raises SettingError if an endpoint is set and calls cannot be traced.
    """
    endpoint = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if not endpoint or off or os.environ.get("OTEL_TRACES_EXPORTER", "") == "none":
        return None
    for name in PROTOCOLS:
        if os.environ.get(name, HTTP) != HTTP:
            raise SettingError(f"{name} is {os.environ[name]}, and traces go out as {HTTP} alone")
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
