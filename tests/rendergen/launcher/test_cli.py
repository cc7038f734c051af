from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rendergen import __version__
from rendergen.cli import settings_from
from rendergen.launcher.settings import LaunchSettings
from rendergen.service.api_keys import ApiKeys


def test_no_flags_are_the_defaults() -> None:
    """`rendergen up` is the stack that LaunchSettings describes: no default is written twice."""
    assert settings_from(["up"]) == LaunchSettings()


@pytest.mark.parametrize(
    ("flags", "settings"),
    [
        (["--model", "org/m", "--served-model-name", "m"], LaunchSettings(model="org/m", served_model_name="m")),
        (["--port", "0", "--host", "0.0.0.0"], LaunchSettings(port=0, host="0.0.0.0")),
        (
            ["--generate-replicas", "3", "--render-replicas", "2"],
            LaunchSettings(generate_replicas=3, render_replicas=2),
        ),
        (
            ["--tool-call-parser", "", "--reasoning-parser", "x"],
            LaunchSettings(tool_call_parser="", reasoning_parser="x"),
        ),
        (
            ["--allow-media-domain", "a.example", "--allow-media-domain", "b.example"],
            LaunchSettings(allowed_media_domains=("a.example", "b.example")),
        ),
        (["--api-keys-file", "/k"], LaunchSettings(api_keys_file=Path("/k"))),
        (["--host", "::", "--no-auth"], LaunchSettings(host="::", no_auth=True)),
        (["--vllm-args", "--seed 1 --x 'a b'"], LaunchSettings(vllm_args=("--seed", "1", "--x", "a b"))),
        (["--max-model-len", "99", "--", "--seed", "1"], LaunchSettings(max_model_len=99, vllm_args=("--seed", "1"))),
        (["--no-memory-check", "--kv-cache-gib", "4"], LaunchSettings(check_memory=False, kv_cache_gib=4)),
        (["--log-dir", "/x", "--start-timeout", "9"], LaunchSettings(log_dir=Path("/x"), start_timeout_s=9.0)),
    ],
)
def test_flags(flags: list[str], settings: LaunchSettings) -> None:
    """Each flag sets its field; what follows `--` goes to vLLM."""
    assert settings_from(["up", *flags]) == settings


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["down"], ["up", "--port", "70000"], ["up", "--what"], ["up", "--vllm-args", '"x']),
        *(["keys"], ["keys", "old"], ["keys", "new"], ["keys", "new", "a b"], ["keys", "new", "a", "b"]),
    ],
)
def test_mistakes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that is not understood ends with exit code 2 and the usage."""
    with pytest.raises(SystemExit) as ended:
        settings_from(arguments)
    assert ended.value.code == 2
    assert "usage: rendergen" in capsys.readouterr().err


async def run(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rendergen", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_command_itself() -> None:
    """`python -m rendergen` is the command."""
    assert await run("--version") == (0, f"rendergen {__version__}\n", "")


async def test_a_failed_check_is_one_line(tmp_path: Path) -> None:
    """A model that does not exist: one line, exit code 1, at once."""
    code, _, err = await run("up", "--port", "0", "--model", str(tmp_path / "nothing"))
    assert code == 1
    assert err.splitlines() == [
        f"rendergen: model {tmp_path}/nothing does not exist; "
        "give --model a directory or a name on the Hugging Face hub"
    ]


async def test_a_host_that_others_can_reach_needs_keys() -> None:
    """It is told before anything is started: one line, exit code 1."""
    code, _, err = await run("up", "--port", "0", "--host", "0.0.0.0")
    assert code == 1
    [line] = err.splitlines()
    assert line.startswith("rendergen: others than this machine may reach --host 0.0.0.0; give --api-keys-file")


async def test_a_new_key() -> None:
    """The key and its line for the file, which takes it; a new one each time."""
    made = []
    for _ in range(2):
        code, out, err = await run("keys", "new", "alice")
        assert (code, err) == (0, "")
        heading, key, blank, other_heading, line = out.splitlines()
        assert (heading, blank) == ("The key, shown this once:", "")
        assert other_heading == "The line for the file of --api-keys-file:"
        assert ApiKeys.read(line.encode()).name_of(key) == "alice"
        made.append(key)
    assert made[0] != made[1]
