from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rendergen.launcher.commands import NO_REMOTE_MEDIA, Ports, ProcessSpec, Role, plan, ports_needed
from rendergen.launcher.machine import Device, Machine
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.torch_companions import FIX_DIRECTORY

CPU = Machine(Device.CPU)
GPU = Machine(Device.GPU)
ONE = LaunchSettings(model="org/model", port=8080)
PORTS = Ports(router=8080, vllm_render=(1,), vllm_engine=(2,), render_service=(3,), generate_service=(4,))


def by_name(settings: LaunchSettings, machine: Machine, ports: Ports = PORTS) -> dict[str, ProcessSpec]:
    return {spec.name: spec for spec in plan(settings, machine, ports)}


def flag(spec: ProcessSpec, name: str) -> str:
    """What follows the last such flag, as argparse reads it."""
    at = len(spec.argv) - 1 - spec.argv[::-1].index(name)
    return spec.argv[at + 1]


def test_one_of_each() -> None:
    """A stack is vLLM twice, a service before each, and the router; each with the path that tells its readiness."""
    specs = plan(ONE, CPU, PORTS)
    assert [(spec.name, spec.url, spec.ready_path) for spec in specs] == [
        ("vllm-render-0", "http://127.0.0.1:1", "/health"),
        ("vllm-engine-0", "http://127.0.0.1:2", "/health"),
        ("render-service-0", "http://127.0.0.1:3", "/readyz"),
        ("generate-service-0", "http://127.0.0.1:4", "/readyz"),
        ("router", "http://127.0.0.1:8080", "/readyz"),
    ]


def test_services_are_told_what_is_behind_them() -> None:
    """Each service gets its own vLLM's address, the router those of all services."""
    settings = replace(ONE, render_replicas=2, generate_replicas=2, host="0.0.0.0")
    specs = by_name(settings, CPU, Ports(8080, (1, 2), (3, 4), (5, 6), (7, 8)))
    python = (sys.executable, "-m")
    assert specs["render-service-1"].argv == (
        *(*python, "render_service", "--host", "127.0.0.1", "--port", "6", "--vllm-url", "http://127.0.0.1:2"),
    )
    assert specs["generate-service-0"].argv == (
        *(*python, "generate_service", "--host", "127.0.0.1", "--port", "7", "--vllm-url", "http://127.0.0.1:3"),
    )
    assert specs["router"].argv == (
        *(*python, "router", "--host", "0.0.0.0", "--port", "8080"),
        *("--render-pods", "http://127.0.0.1:5,http://127.0.0.1:6"),
        *("--generate-pods", "http://127.0.0.1:7,http://127.0.0.1:8"),
    )


def test_the_router_is_told_who_may_call_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file by its whole path, or that nobody needs a key; on loopback neither."""
    monkeypatch.chdir(tmp_path)
    assert flag(by_name(replace(ONE, api_keys_file=Path("k")), CPU)["router"], "--api-keys-file") == str(tmp_path / "k")
    assert "--no-auth" in by_name(replace(ONE, no_auth=True), CPU)["router"].argv
    assert not {"--no-auth", "--api-keys-file"} & set(by_name(ONE, CPU)["router"].argv)


def test_the_router_is_told_the_same_media_domains_as_vllm() -> None:
    """In lower case, as both compare them. Where there are none, vLLM gets one that matches nothing."""
    specs = by_name(replace(ONE, allowed_media_domains=("A.example", "b.example")), CPU)
    assert flag(specs["router"], "--allowed-media-domains") == "a.example,b.example"
    for name in ("vllm-render-0", "vllm-engine-0"):
        at = specs[name].argv.index("--allowed-media-domains")
        assert specs[name].argv[at + 1 : at + 3] == ("a.example", "b.example")
    assert "--allowed-media-domains" not in by_name(ONE, CPU)["router"].argv


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:8080"), ("::", "http://[::1]:8080"), ("10.1.2.3", "http://10.1.2.3:8080")],
)
def test_the_routers_url_can_be_called(host: str, url: str) -> None:
    """A wildcard address to listen on is shown as an address to call."""
    assert by_name(replace(ONE, host=host), CPU)["router"].url == url


@pytest.mark.parametrize("name", ["vllm-render-0", "vllm-engine-0"])
def test_what_both_vllm_processes_must_agree_on(name: str) -> None:
    """Model, name, context, parsers and thinking are said to the render server and the engine alike."""
    spec = by_name(ONE, CPU)[name]
    assert flag(spec, "--model") == "org/model"
    assert flag(spec, "--served-model-name") == "org/model"
    assert flag(spec, "--host") == "127.0.0.1"
    assert flag(spec, "--max-model-len") == "4096"
    assert flag(spec, "--tool-call-parser") == "hermes"
    assert flag(spec, "--reasoning-parser") == "qwen3"
    assert flag(spec, "--dtype") == "bfloat16"
    assert "--enable-auto-tool-choice" in spec.argv
    assert json.loads(flag(spec, "--default-chat-template-kwargs")) == {"enable_thinking": False}
    assert json.loads(flag(spec, "--limit-mm-per-prompt")) == {"image": 4, "video": 0}


def test_which_module_is_run() -> None:
    """The modules behind `vllm launch render` and `vllm serve`; the scale-out endpoints are the engine's."""
    specs = by_name(ONE, CPU)
    assert flag(specs["vllm-render-0"], "-m") == "vllm.entrypoints.launchers.render.entry"
    assert flag(specs["vllm-engine-0"], "-m") == "vllm.entrypoints.launchers.api_server.entry"
    assert "--enable-scale-out" in specs["vllm-engine-0"].argv
    assert "--enable-scale-out" not in specs["vllm-render-0"].argv


def test_cpu_flags_stay_off_a_gpu() -> None:
    """What makes vLLM run on a CPU would only make it slow, or other, on a GPU."""
    cpu, gpu = by_name(ONE, CPU)["vllm-engine-0"], by_name(ONE, GPU)["vllm-engine-0"]
    for name in ("--enforce-eager", "--dtype", "--max-num-seqs"):
        assert name in cpu.argv
        assert name not in gpu.argv
    assert cpu.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "VLLM_CPU_KVCACHE_SPACE" not in gpu.environment


@pytest.mark.parametrize("name", ["vllm-render-0", "vllm-engine-0"])
def test_remote_media_is_refused_unless_allowed(name: str) -> None:
    """By default no host name can match; an operator's list replaces that. Redirects are never followed."""
    spec = by_name(ONE, CPU)[name]
    assert flag(spec, "--allowed-media-domains") == NO_REMOTE_MEDIA
    assert spec.environment["VLLM_MEDIA_URL_ALLOW_REDIRECTS"] == "0"
    allowed = by_name(replace(ONE, allowed_media_domains=("a.example", "b.example")), CPU)[name]
    at = allowed.argv.index("--allowed-media-domains")
    assert allowed.argv[at + 1 : at + 3] == ("a.example", "b.example")
    assert NO_REMOTE_MEDIA not in allowed.argv


def test_parsers_can_be_left_out() -> None:
    """An empty name means that the model has no such parser."""
    spec = by_name(replace(ONE, tool_call_parser="", reasoning_parser=""), CPU)["vllm-engine-0"]
    assert not {"--tool-call-parser", "--enable-auto-tool-choice", "--reasoning-parser"} & set(spec.argv)


def test_the_users_flags_come_last() -> None:
    """argparse takes the last of a repeated flag: the user's wins over the launcher's."""
    settings = replace(ONE, vllm_args=("--max-model-len", "99"), router_args=("--log-level", "debug"))
    specs = by_name(settings, CPU)
    assert flag(specs["vllm-engine-0"], "--max-model-len") == "99"
    assert flag(specs["vllm-render-0"], "--max-model-len") == "99"
    assert flag(specs["router"], "--log-level") == "debug"


def test_the_hub_is_off_for_a_local_model(tmp_path: Path) -> None:
    """A directory holds all that is needed; a name on the hub may have to be downloaded."""
    local = by_name(replace(ONE, model=str(tmp_path)), CPU)["vllm-engine-0"]
    assert local.environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in by_name(ONE, CPU)["vllm-engine-0"].environment


def test_engines_share_the_machine() -> None:
    """Several engines get a GPU each, or leave the CPU's cores to the kernel; a single one chooses by itself."""
    settings = replace(ONE, generate_replicas=2)
    ports = Ports(8080, (1,), (2, 3), (4,), (5, 6))
    cpu = by_name(settings, CPU, ports)
    assert cpu["vllm-engine-1"].environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert by_name(settings, GPU, ports)["vllm-engine-1"].environment["CUDA_VISIBLE_DEVICES"] == "1"
    chosen = by_name(settings, replace(GPU, gpus=("4", "7")), ports)
    assert chosen["vllm-engine-1"].environment["CUDA_VISIBLE_DEVICES"] == "7"
    assert not {"VLLM_CPU_OMP_THREADS_BIND", "CUDA_VISIBLE_DEVICES"} & set(
        by_name(ONE, CPU)["vllm-engine-0"].environment
    )


def test_the_torch_fix_is_for_vllm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where something is broken, only for vLLM's processes, and before what PYTHONPATH holds already."""
    monkeypatch.setenv("PYTHONPATH", "/mine")
    specs = by_name(ONE, replace(CPU, broken_torch_companions=("torchvision",)))
    assert specs["vllm-engine-0"].environment["PYTHONPATH"] == f"{FIX_DIRECTORY}{os.pathsep}/mine"
    assert specs["vllm-engine-0"].environment["RENDERGEN_BROKEN_TORCH_COMPANIONS"] == "torchvision"
    assert "PYTHONPATH" not in specs["router"].environment
    assert "PYTHONPATH" not in by_name(ONE, CPU)["vllm-engine-0"].environment


PLUGINS: dict[str, tuple[tuple[str, ...] | None, bool, str | None]] = {
    "with": (None, True, "rendergen"),
    "beside others": (("lora", "rendergen"), True, "lora,rendergen"),
    "without": (None, False, None),
    "without, beside others": (("lora", "rendergen"), False, "lora"),
}


@pytest.mark.parametrize(("listed", "plugin", "names"), PLUGINS.values(), ids=PLUGINS)
def test_the_plugin_is_named(listed: tuple[str, ...] | None, plugin: bool, names: str | None) -> None:
    """To both kinds of vLLM process and no other; plugins that the caller's shell names stay."""
    specs = plan(replace(ONE, plugin=plugin), replace(CPU, vllm_plugins=listed), PORTS)
    assert [spec.environment.get("VLLM_PLUGINS") for spec in specs] == [names, names, None, None, None]


def test_added_environment_reaches_all() -> None:
    """The caller's variables win over the launcher's, in every process."""
    specs = plan(replace(ONE, environment=(("DO_NOT_TRACK", "0"),)), CPU, PORTS)
    assert {spec.environment["DO_NOT_TRACK"] for spec in specs} == {"0"}


@pytest.mark.parametrize(("port", "needed", "router"), [(8080, 8, 8080), (0, 9, 1)])
def test_ports_are_dealt_out_once(port: int, needed: int, router: int) -> None:
    """Every process gets a port of its own; the router keeps the one it was given."""
    settings = replace(ONE, port=port, render_replicas=1, generate_replicas=3)
    assert ports_needed(settings) == needed
    ports = Ports.assign(settings, tuple(range(1, needed + 1)))
    assert ports.router == router
    dealt = [*ports.vllm_render, *ports.vllm_engine, *ports.render_service, *ports.generate_service]
    assert [len(ports.vllm_render), len(ports.vllm_engine)] == [1, 3]
    assert len({*dealt, ports.router}) == 9


def test_role_names() -> None:
    """Which roles are vLLM's: they have other stages and another environment."""
    assert [role for role in Role if role.is_vllm] == [Role.VLLM_RENDER, Role.VLLM_ENGINE]
