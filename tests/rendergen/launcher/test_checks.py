from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from rendergen.launcher.checks import (
    GIB,
    check_auth,
    check_media_domains,
    check_memory,
    check_model,
    check_port,
    check_replicas,
    memory_needed_gib,
)
from rendergen.launcher.errors import LaunchError
from rendergen.launcher.machine import Device
from rendergen.launcher.settings import LaunchSettings
from rendergen.service.api_keys import key_line, new_key


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    return tmp_path


def test_a_model_that_is_one(model: Path) -> None:
    """A directory with a configuration and weights passes."""
    check_model(LaunchSettings(model=str(model)))


@pytest.mark.parametrize(
    ("missing", "words"),
    [("", "does not exist"), ("config.json", "no config.json"), ("model.safetensors", "no weights")],
)
def test_a_model_that_is_none(model: Path, missing: str, words: str) -> None:
    """The line names the directory and what it lacks."""
    path = model / missing if missing else model / "nowhere"
    if missing:
        path.unlink()
        path = model
    with pytest.raises(LaunchError, match=words) as caught:
        check_model(LaunchSettings(model=str(path)))
    assert str(path) in str(caught.value)


def test_a_hub_model_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hub off, a name that is not in the local cache cannot be loaded; with it on, vLLM may download it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(LaunchError, match="not in the local Hugging Face cache"):
        check_model(LaunchSettings(model="no-such-org/no-such-model"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    check_model(LaunchSettings(model="no-such-org/no-such-model"))


def test_a_name_that_is_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is neither a directory nor a possible name is said to be neither."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(LaunchError, match="neither a directory nor a name"):
        check_model(LaunchSettings(model="a/b/c"))


def test_a_taken_port() -> None:
    """The line says which port, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"port {port} on 127.0.0.1 is taken; .*--port"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_an_address_of_another_machine() -> None:
    """An address that is not this machine's is another fault than a port that is taken."""
    with pytest.raises(LaunchError, match=r"cannot listen on 192\.0\.2\.1:0"):
        check_port("192.0.2.1", 0)


@pytest.mark.parametrize("count", [{"render_replicas": 0}, {"generate_replicas": -1}])
def test_no_replicas(count: dict[str, int]) -> None:
    """A stack needs a pod of each kind."""
    with pytest.raises(LaunchError, match="must be 1 or more"):
        check_replicas(replace(LaunchSettings(), **count))


def test_too_little_memory(model: Path) -> None:
    """The line gives the estimate, what there is, and three ways out."""
    settings = LaunchSettings(model=str(model))
    with pytest.raises(
        LaunchError, match=r"about 4\.5 GiB of memory are needed and 3\.0 GiB are available; .*replicas"
    ):
        check_memory(settings, Device.CPU, 3 * GIB)
    check_memory(settings, Device.CPU, 5 * GIB)


def test_memory_that_is_not_checked(model: Path) -> None:
    """Where the amount is not known, or the check is off, nothing is refused."""
    settings = LaunchSettings(model=str(model))
    check_memory(settings, Device.CPU, None)
    check_memory(replace(settings, check_memory=False), Device.CPU, 0)


def test_what_the_estimate_counts(model: Path) -> None:
    """Weights and KV cache per engine on the CPU, not where they lie on a GPU."""
    (model / "model.safetensors").write_bytes(b"")
    one = LaunchSettings(model=str(model))
    base = memory_needed_gib(one, Device.CPU)
    assert memory_needed_gib(replace(one, kv_cache_gib=5), Device.CPU) == pytest.approx(base + 4)
    assert memory_needed_gib(replace(one, kv_cache_gib=5), Device.GPU) == memory_needed_gib(one, Device.GPU)
    two = memory_needed_gib(replace(one, generate_replicas=2, kv_cache_gib=5), Device.CPU)
    assert two - memory_needed_gib(replace(one, kv_cache_gib=5), Device.CPU) == pytest.approx(7.5)
    with (model / "model.safetensors").open("r+b") as sparse:
        sparse.truncate(2 * GIB)
    assert memory_needed_gib(one, Device.CPU) == pytest.approx(base + 2)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "router.example", "localhost"])
def test_off_loopback_without_keys(host: str, tmp_path: Path) -> None:
    """The line says both ways out, and each is one."""
    with pytest.raises(LaunchError, match=r"--api-keys-file FILE .* --no-auth") as caught:
        check_auth(LaunchSettings(host=host))
    assert host in str(caught.value)
    keys = tmp_path / "keys"
    keys.write_text(key_line("alice", new_key()))
    check_auth(LaunchSettings(host=host, api_keys_file=keys))
    check_auth(LaunchSettings(host=host, no_auth=True))


def test_on_loopback_without_keys() -> None:
    """Nobody else reaches it."""
    check_auth(LaunchSettings())
    check_auth(LaunchSettings(host="::1", no_auth=True))


def test_keys_and_no_keys(tmp_path: Path) -> None:
    """Which was meant?"""
    with pytest.raises(LaunchError, match="contradict each other"):
        check_auth(LaunchSettings(api_keys_file=tmp_path / "keys", no_auth=True))


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("a b", "line 1 is not"), ("", "no key")])
def test_a_file_of_keys_that_is_none(content: str | None, words: str, tmp_path: Path) -> None:
    """It is told before anything is started."""
    if content is not None:
        (tmp_path / "keys").write_text(content)
    with pytest.raises(LaunchError, match=rf"^--api-keys-file: .*{words}"):
        check_auth(LaunchSettings(api_keys_file=tmp_path / "keys"))


def test_media_domains() -> None:
    """Host names, in any letters; whatever else would be allowed in vain."""
    check_media_domains(LaunchSettings(allowed_media_domains=("a.example", "B.Example")))
    with pytest.raises(LaunchError, match=r"^--allow-media-domain: 'http://b' is no host name"):
        check_media_domains(LaunchSettings(allowed_media_domains=("a.example", "http://b")))
