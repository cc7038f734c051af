"""The HTTP door of a render pod: takes chat and completion requests, calls the pod's vLLM render server."""
