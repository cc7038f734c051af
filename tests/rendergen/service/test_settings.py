import subprocess
import sys

import pytest

from render_service.settings import RenderServiceSettings
from rendergen.service.settings import ServiceSettings
from router.settings import RouterSettings

PODS = ["--render-pods", "http://r:1", "--generate-pods", "http://g:1"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in RouterSettings.model_fields:
        monkeypatch.delenv(RouterSettings.environment_name(field), raising=False)


def mistakes(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        RouterSettings.read(argv)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_flags_set_everything() -> None:
    """Every setting has a flag: its name with dashes."""
    settings = RouterSettings.read([*PODS, "--port", "8080", "--max-body-bytes", "7", "--log-level", "debug"])
    assert (settings.port, settings.max_body_bytes, settings.log_level) == (8080, 7, "debug")
    assert settings.render_pods == ("http://r:1",)
    assert settings.generate_pods == ("http://g:1",)


def test_the_environment_sets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names have the service's prefix and a double underscore."""
    monkeypatch.setenv("RENDERGEN_ROUTER__RENDER_PODS", "http://r:1, http://r:2,")
    monkeypatch.setenv("RENDERGEN_ROUTER__GENERATE_PODS", "http://g:1")
    monkeypatch.setenv("RENDERGEN_ROUTER__PROBE_INTERVAL_S", "0.5")
    settings = RouterSettings.read([])
    assert settings.render_pods == ("http://r:1", "http://r:2")
    assert settings.probe_interval_s == 0.5


def test_a_flag_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is nearer to the process wins: flags, environment, defaults."""
    monkeypatch.setenv("RENDERGEN_ROUTER__PORT", "1")
    monkeypatch.setenv("RENDERGEN_ROUTER__RENDER_PODS", "http://env:1")
    settings = RouterSettings.read([*PODS, "--port", "2"])
    assert settings.port == 2
    assert settings.render_pods == ("http://r:1",)


def test_what_kubernetes_sets_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service named rendergen-router gives every pod RENDERGEN_ROUTER_PORT=tcp://…; it is not ours."""
    monkeypatch.setenv("RENDERGEN_ROUTER_PORT", "tcp://10.0.0.1:8000")
    monkeypatch.setenv("RENDERGEN_ROUTER_SERVICE_HOST", "10.0.0.1")
    assert RouterSettings.read(PODS).port == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["--render-pods", "http://r:1,http://r:2/"],
        ["--render-pods", "http://r:1", "--render-pods", "http://r:2"],
        ["--render-pods", " http://r:1 ,, http://r:2 ,"],
        ["--render-pods=http://r:1", "--render-pods=http://r:2//"],
    ],
)
def test_lists_take_commas_and_repeated_flags(flags: list[str]) -> None:
    """Either, or both; empty entries, spaces and a slash at the end do not count."""
    assert RouterSettings.read([*flags, *PODS[2:]]).render_pods == ("http://r:1", "http://r:2")


def test_pods_may_be_all_addresses_of_a_name() -> None:
    """Beside others that are kept as they are; services, which have one vLLM each, take no such name."""
    entries = "dns+http://pods.ns.svc:8000/,http://r:1, dns+http://[fd00::1]:2"
    settings = RouterSettings.read(["--render-pods", entries, *PODS[2:]])
    assert settings.render_pods == ("dns+http://pods.ns.svc:8000", "http://r:1", "dns+http://[fd00::1]:2")
    with pytest.raises(SystemExit):
        RenderServiceSettings.read(["--vllm-url", "dns+http://pods:8000"])


def test_names_of_models_are_a_list() -> None:
    """None, unless they are set."""
    assert RouterSettings.read(PODS).json_unsafe_models == ()
    assert RouterSettings.read([*PODS, "--json-unsafe-models", "a, b/c"]).json_unsafe_models == ("a", "b/c")


ONE_MISTAKE = {
    "out of range": ["--port", "65536"],
    "negative": ["--port", "-1"],
    "zero time": ["--generate-timeout-s", "0"],
    "no number": ["--port", "http"],
    "nan": ["--probe-interval-s", "nan"],
    "infinite": ["--generate-timeout-s", "inf"],
    "minus infinite": ["--drain-timeout-s=-inf"],
    "no such level": ["--log-level", "loud"],
    "no bytes": ["--max-body-bytes", "0"],
    "no scheme": ["--render-pods", "r:1"],
    "other scheme": ["--render-pods", "ftp://r:1"],
    "no host": ["--render-pods", "http://"],
    "a query": ["--render-pods", "http://r:1/?a=b"],
    "port of an address": ["--render-pods", "http://r:99999"],
    "no number for a port": ["--render-pods", "http://r:http"],
    "user and password": ["--render-pods", "http://u:p@r:1"],
    "an empty list": ["--render-pods", ","],
    "a name without a port": ["--render-pods", "dns+http://pods"],
    "a name with a path": ["--render-pods", "dns+http://pods:8000/v1"],
    "a name with port 0": ["--render-pods", "dns+http://pods:0"],
    "no name": ["--render-pods", "dns+http://:8000"],
    "a name over https": ["--render-pods", "dns+https://pods:8000"],
}


@pytest.mark.parametrize("flags", ONE_MISTAKE.values(), ids=ONE_MISTAKE)
def test_a_mistake_is_one_line_that_names_the_flag(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and one line: which flag, and what is wrong with it."""
    [line] = mistakes([*PODS, *flags], capsys) if "pods" not in flags[0] else mistakes([*PODS[2:], *flags], capsys)
    assert line.startswith(f"router: {flags[0].split('=')[0]}: ")


def test_each_mistake_has_its_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All are told at once, the environment's included."""
    monkeypatch.setenv("RENDERGEN_ROUTER__PROT", "8000")
    monkeypatch.setenv("RENDERGEN_ROUTER__DRAIN_DELAY_S", "soon")
    lines = mistakes(["--port", "x"], capsys)
    assert [line.split(":")[1].strip() for line in lines] == [
        "RENDERGEN_ROUTER__PROT is no setting of this service",
        *("--port", "--drain-delay-s", "--render-pods", "--generate-pods"),
    ]


@pytest.mark.parametrize(
    "flags", [["--nope", "1"], ["--porte", "1"], ["stray"], ["--port"], ["--render-pod", "http://a"]]
)
def test_an_unknown_flag_is_a_mistake(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It is told in one line like the others; a flag cut short is unknown too, lest a later flag change its meaning."""
    [line] = mistakes([*PODS, *flags], capsys)
    assert line.startswith("router: ")
    assert flags[0] in line


@pytest.mark.parametrize("name", ["RENDERGEN_ROUTER__RENDER_POD", "RENDERGEN_ROUTER__", "RENDERGEN_ROUTER__PORT_"])
def test_a_misspelt_variable_is_a_mistake(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be a silent default."""
    monkeypatch.setenv(name, "1")
    assert mistakes(PODS, capsys) == [f"router: {name} is no setting of this service"]


def test_settings_do_not_change() -> None:
    """They are read once."""
    settings = RouterSettings.read(PODS)
    with pytest.raises(ValueError, match="frozen"):
        settings.port = 1


@pytest.mark.parametrize("package", ["router", "render_service", "generate_service"])
def test_help_lists_every_flag(package: str) -> None:
    """`--help` prints them with what they are, and ends with 0."""
    module = __import__(f"{package}.settings", fromlist=["settings"])
    [settings] = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings) and value is not ServiceSettings
    ]
    ran = subprocess.run(
        [sys.executable, "-m", package, "--help"], capture_output=True, text=True, timeout=30, check=True
    )
    for field in settings.model_fields:
        assert f"--{field.replace('_', '-')} " in ran.stdout
