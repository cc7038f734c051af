from pathlib import Path

import pytest

from router.settings import RouterSettings

PODS = ["--render-pods", "http://r:1", "--generate-pods", "http://g:1"]
EVERYWHERE = ["0.0.0.0", "::", "10.1.2.3", "router.example", "localhost", ""]


def told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines that end the process, with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        RouterSettings.read([*PODS, *argv])
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("host", EVERYWHERE)
def test_off_loopback_there_must_be_keys_or_none_on_purpose(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says both ways out; and each of them is one."""
    [line] = told(["--host", host], capsys)
    assert line.startswith("router: --api-keys-file: ")
    assert "--no-auth" in line
    assert RouterSettings.read([*PODS, "--host", host, "--no-auth"]).no_auth
    assert RouterSettings.read([*PODS, "--host", host, "--api-keys-file", "f"]).api_keys_file == Path("f")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.9.9.9"])
@pytest.mark.parametrize("flags", [[], ["--no-auth"], ["--api-keys-file", "f"]])
def test_on_loopback_there_may_be_keys(host: str, flags: list[str]) -> None:
    """Or not."""
    assert RouterSettings.read([*PODS, "--host", host, *flags]).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_keys_and_no_keys(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Are a mistake: which was meant?"""
    [line] = told(["--host", host, "--no-auth", "--api-keys-file", "f"], capsys)
    assert line.startswith("router: --api-keys-file: ")
    assert "--no-auth" in line


def test_the_environment_counts_as_well(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For the host, and for both ways out."""
    monkeypatch.setenv("RENDERGEN_ROUTER__HOST", "0.0.0.0")
    assert len(told([], capsys)) == 1
    monkeypatch.setenv("RENDERGEN_ROUTER__NO_AUTH", "false")
    assert len(told([], capsys)) == 1
    monkeypatch.setenv("RENDERGEN_ROUTER__NO_AUTH", "true")
    assert RouterSettings.read(PODS).no_auth
    monkeypatch.delenv("RENDERGEN_ROUTER__NO_AUTH")
    monkeypatch.setenv("RENDERGEN_ROUTER__API_KEYS_FILE", "f")
    assert RouterSettings.read(PODS).api_keys_file == Path("f")


def test_each_mistake_has_its_own_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is none is not told as a contradiction."""
    monkeypatch.setenv("RENDERGEN_ROUTER__NO_AUTH", "maybe")
    [line] = told(["--host", "0.0.0.0"], capsys)
    assert line.startswith("router: --no-auth: ")


@pytest.mark.parametrize(
    ("flags", "domains"),
    [
        ([], ()),
        (["--allowed-media-domains", "a.example, B.Example,"], ("a.example", "b.example")),
        (["--allowed-media-domains", "a", "--allowed-media-domains", "b"], ("a", "b")),
    ],
)
def test_media_domains(flags: list[str], domains: tuple[str, ...]) -> None:
    """In lower case, as hosts of URLs are compared."""
    assert RouterSettings.read([*PODS, *flags]).allowed_media_domains == domains


@pytest.mark.parametrize("domain", ["*.example", "http://a", "a:80", "a/b"])
def test_what_is_no_domain(domain: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Is a mistake: it would allow nothing."""
    [line] = told(["--allowed-media-domains", f"a,{domain}"], capsys)
    assert line.startswith("router: --allowed-media-domains: ")
    assert domain in line


@pytest.mark.parametrize("name", ["raw_render", "raw_generate"])
def test_switches(name: str) -> None:
    """On, until switched off."""
    flag = name.replace("_", "-")
    assert getattr(RouterSettings.read(PODS), name)
    assert getattr(RouterSettings.read([*PODS, f"--{flag}"]), name)
    assert not getattr(RouterSettings.read([*PODS, f"--no-{flag}"]), name)


def test_an_interval_is_more_than_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A comment after no time at all would be nothing but comments."""
    assert RouterSettings.read(PODS).keepalive_interval_s == 15.0
    [line] = told(["--keepalive-interval-s", "0"], capsys)
    assert line.startswith("router: --keepalive-interval-s: ")
