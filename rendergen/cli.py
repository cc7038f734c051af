"""The `rendergen` command."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from pathlib import Path

from rendergen import __version__
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.up import run_until_stopped
from rendergen.service.api_keys import key_line, key_name, new_key

__all__ = ["main", "settings_from"]


def main(argv: list[str] | None = None) -> int:
    """Run the command; its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    ours, for_vllm = _split(arguments)
    parser = _parser()
    args = parser.parse_args(ours)
    if args.command == "keys":
        print(_made_key(args.name))
        return 0
    return asyncio.run(run_until_stopped(_settings(parser, args, for_vllm), out=sys.stdout))


def settings_from(arguments: list[str]) -> LaunchSettings:
    """What the command line of `rendergen up` asks for. A mistake is told on standard error, and SystemExit(2)."""
    ours, for_vllm = _split(arguments)
    parser = _parser()
    return _settings(parser, parser.parse_args(ours), for_vllm)


def _settings(parser: argparse.ArgumentParser, args: argparse.Namespace, for_vllm: list[str]) -> LaunchSettings:
    try:
        vllm_args = shlex.split(args.vllm_args)
    except ValueError as error:
        parser.error(f"--vllm-args: {error}")
    return LaunchSettings(
        model=args.model,
        served_model_name=args.served_model_name,
        host=args.host,
        port=args.port,
        api_keys_file=args.api_keys_file,
        no_auth=args.no_auth,
        render_replicas=args.render_replicas,
        generate_replicas=args.generate_replicas,
        tool_call_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        max_model_len=args.max_model_len,
        kv_cache_gib=args.kv_cache_gib,
        allowed_media_domains=tuple(args.allow_media_domain),
        plugin=args.plugin,
        vllm_args=(*vllm_args, *for_vllm),
        log_dir=args.log_dir,
        check_memory=args.memory_check,
        start_timeout_s=args.start_timeout,
    )


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Everything after the first `--` is for vLLM."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rendergen", description="A vision-language model behind one router.")
    parser.add_argument("--version", action="version", version=f"rendergen {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_up(commands)
    _add_keys(commands)
    return parser


def _add_keys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = commands.add_parser("keys", help="API keys for callers of the router")
    actions = keys.add_subparsers(required=True, metavar="ACTION")
    new = actions.add_parser(
        "new",
        help="make a key",
        description="Make an API key and print it, this once, with the line for the router's --api-keys-file, which "
        "does not tell the key.",
    )
    new.add_argument("name", type=_key_name, metavar="NAME", help="whose key it is; shown in the router's log")


def _made_key(name: str) -> str:
    key = new_key()
    return f"The key, shown this once:\n{key}\n\nThe line for the file of --api-keys-file:\n{key_line(name, key)}"


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    defaults = LaunchSettings()
    up = commands.add_parser(
        "up",
        help="start vLLM, the services and the router on this machine, until Ctrl-C",
        description="Start vLLM's render server and engine, the services before them and the router on this machine; "
        "stop all of it on Ctrl-C.",
        epilog="Flags after a -- go to both kinds of vLLM process: rendergen up -- --max-num-seqs 4",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    model = up.add_argument_group("the model")
    model.add_argument(
        "--model", default=defaults.model, metavar="PATH_OR_NAME", help="a directory, or a name on the Hugging Face hub"
    )
    model.add_argument(
        "--served-model-name", default="", metavar="NAME", help="the `model` of requests; empty: from the model's name"
    )
    model.add_argument(
        "--max-model-len", type=int, default=defaults.max_model_len, metavar="TOKENS", help="the context"
    )
    model.add_argument(
        "--tool-call-parser", default=defaults.tool_call_parser, metavar="NAME", help="vLLM's; an empty string for none"
    )
    model.add_argument(
        "--reasoning-parser", default=defaults.reasoning_parser, metavar="NAME", help="vLLM's; an empty string for none"
    )
    model.add_argument(
        "--allow-media-domain",
        action="append",
        default=[],
        metavar="DOMAIN",
        help="fetch images given by URL from this host; may be repeated. Without it every remote image URL is refused",
    )
    stack = up.add_argument_group("the processes")
    stack.add_argument("--host", default=defaults.host, help="address the router listens on")
    stack.add_argument("--port", type=_port, default=defaults.port, help="the router's port; 0 takes a free one")
    stack.add_argument(
        "--api-keys-file", type=Path, metavar="FILE", help="API keys that callers need; see rendergen keys new --help"
    )
    stack.add_argument(
        "--no-auth", action="store_true", help="serve without API keys on an address that others can reach"
    )
    stack.add_argument("--render-replicas", type=int, default=defaults.render_replicas, metavar="N", help="render pods")
    stack.add_argument(
        "--generate-replicas", type=int, default=defaults.generate_replicas, metavar="N", help="generate pods"
    )
    stack.add_argument(
        "--kv-cache-gib", type=int, default=defaults.kv_cache_gib, metavar="GIB", help="per engine, without a GPU"
    )
    stack.add_argument(
        "--plugin",
        action=argparse.BooleanOptionalAction,
        default=defaults.plugin,
        help="load rendergen's plugin into vLLM: payloads as frames, checked before the engine sees them",
    )
    stack.add_argument("--vllm-args", default="", metavar='"ARGS"', help="more flags for vLLM, as one string")
    stack.add_argument("--log-dir", type=Path, metavar="DIR", help="default: .rendergen/logs/<time>")
    stack.add_argument(
        "--memory-check", action=argparse.BooleanOptionalAction, default=True, help="estimate memory before starting"
    )
    stack.add_argument(
        "--start-timeout", type=float, default=defaults.start_timeout_s, metavar="SECONDS", help="until all is ready"
    )


def _key_name(text: str) -> str:
    try:
        return key_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is no port: 0 to 65535")
    return port
