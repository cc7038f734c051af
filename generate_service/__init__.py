"""The HTTP door of a generate pod: takes payloads, calls the pod's vLLM engine server."""
