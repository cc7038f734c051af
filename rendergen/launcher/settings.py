"""What a stack on this machine consists of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rendergen.tiny_model import TINY_MODEL_NAME, TINY_MODEL_PATH

__all__ = ["LaunchSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSettings:
    """How many processes to start, of what model, and how. Every address is on this machine."""

    model: str = str(TINY_MODEL_PATH)
    """A directory with a model, or a name on the Hugging Face hub."""

    served_model_name: str = ""
    """The `model` of requests. Empty: `tiny-vlm` for the model shipped here, else the directory's or hub's name."""

    host: str = "127.0.0.1"
    """The address the router listens on. All other processes listen on 127.0.0.1."""

    port: int = 8080
    """The router's port; 0 takes a free one."""

    api_keys_file: Path | None = None
    """A file with the API keys that callers of the router need. None: they need none."""

    no_auth: bool = False
    """Serve without API keys on an address that others can reach."""

    render_replicas: int = 1
    """Render pods: a vLLM render server and a render service each."""

    generate_replicas: int = 1
    """Generate pods: a vLLM engine and a generate service each."""

    tool_call_parser: str = "hermes"
    """vLLM's parser for tool calls; empty for none."""

    reasoning_parser: str = "qwen3"
    """vLLM's parser for reasoning; empty for none."""

    max_model_len: int = 4096
    """Tokens of context, prompt and answer together."""

    kv_cache_gib: int = 1
    """Memory of each engine's KV cache where it runs on the CPU, in GiB."""

    allowed_media_domains: tuple[str, ...] = ()
    """Host names from which images may be fetched, for the router and vLLM. None: every remote URL is refused before a
    connection is opened."""

    plugin: bool = True
    """Load rendergen's plugin into vLLM; without it payloads go as JSON, and unchecked."""

    vllm_args: tuple[str, ...] = ()
    """More flags for both kinds of vLLM process; they win over the launcher's own."""

    render_service_args: tuple[str, ...] = ()
    generate_service_args: tuple[str, ...] = ()
    router_args: tuple[str, ...] = ()

    environment: tuple[tuple[str, str], ...] = ()
    """Variables added to every process's environment."""

    log_dir: Path | None = None
    """Where each process's log goes. None: a new directory below `.rendergen/logs` in the working directory."""

    check_memory: bool = True
    """Compare the memory available with an estimate before starting."""

    start_timeout_s: float = 600.0
    """Longest wait for everything to be ready; a model that has to be downloaded may need more."""

    stop_grace_s: float = 20.0
    """How long a process may take to stop after SIGTERM before it is killed with all its children."""

    @property
    def name(self) -> str:
        """The name under which the model is served."""
        return self.served_model_name or _name_of(self.model)

    @property
    def model_path(self) -> Path | None:
        """The model's directory, or None for a name on the hub."""
        path = Path(self.model).expanduser()
        return path if path.is_absolute() or self.model.startswith((".", "~")) or path.exists() else None


def _name_of(model: str) -> str:
    path = Path(model).expanduser()
    if path == TINY_MODEL_PATH:
        return TINY_MODEL_NAME
    return path.resolve().name if path.is_dir() else model
