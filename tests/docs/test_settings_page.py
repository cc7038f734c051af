import subprocess
import sys
from pathlib import Path

import pytest

from generate_service.settings import GenerateServiceSettings
from render_service.settings import RenderServiceSettings
from rendergen.service.settings import ServiceSettings
from rendergen.vllm_plugin.settings import PluginSettings
from router.settings import RouterSettings

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "settings.md"
SERVICES = (RouterSettings, RenderServiceSettings, GenerateServiceSettings)


def rows(service: type[ServiceSettings]) -> dict[str, list[str]]:
    """The cells of the page's table for that service, by flag."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.split(f"## `python -m {service.model_config.get('cli_prog_name')}`")[1].split("\n## ")[0]
    lines = [line.strip("|\n ").split(" | ") for line in section.splitlines() if line.startswith("| `--")]
    return {cells[0].strip("`"): cells for cells in lines}


def test_the_page_is_what_the_script_writes() -> None:
    """`scripts/settings_doc.py --check` says so: whoever changes a setting writes the page anew."""
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.settings_doc", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=50
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_the_page_has_every_setting_of_a_service(service: type[ServiceSettings]) -> None:
    """Its flag, its variable, its default and what it is."""
    found = rows(service)
    assert found.keys() == {f"--{name.replace('_', '-')}" for name in service.model_fields}
    for name, field in service.model_fields.items():
        flag, variable, default, description = found[f"--{name.replace('_', '-')}"]
        assert flag == f"`--{name.replace('_', '-')}`"
        assert variable == f"`{service.environment_name(name)}`"
        shown = "none" if field.default in (None, ()) else f"`{field.default}`"
        assert default == ("required" if field.is_required() else shown)
        assert description == field.description


@pytest.mark.parametrize("service", SERVICES)
def test_the_variables_of_the_page_are_read(service: type[ServiceSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sets what the page says it sets."""
    values = {"host": "::1", "log_level": "error"}
    for name, field in service.model_fields.items():
        variable = rows(service)[f"--{name.replace('_', '-')}"][1].strip("`")
        other = "False" if field.annotation is bool else "7"
        values.setdefault(name, "http://pod:1" if field.is_required() else other)
        monkeypatch.setenv(variable, values[name])
    settings = service.read([])
    for name, value in values.items():
        read = getattr(settings, name)
        assert str(read[0] if isinstance(read, tuple) else read) in (value, f"{value}.0")


@pytest.mark.parametrize("service", SERVICES)
def test_names_end_in_their_unit(service: type[ServiceSettings]) -> None:
    """A number without a unit in its name is a port or a count."""
    numbers = [name for name, field in service.model_fields.items() if field.annotation in (int, float)]
    assert all(name in ("port", "probe_failures", "max_prompts") or name.endswith(("_s", "_bytes")) for name in numbers)


def test_the_page_has_every_setting_of_the_plugin() -> None:
    """Its variable, its default and what it is."""
    section = PAGE.read_text(encoding="utf-8").split("## The plugin in vLLM")[1]
    lines = [line.strip("|\n ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert [cells[0].strip("`") for cells in lines] == [
        PluginSettings.environment_name(name) for name in PluginSettings.model_fields
    ]
    assert [cells[2] for cells in lines] == [field.description for field in PluginSettings.model_fields.values()]


def test_a_misspelt_variable_of_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is named: a key that is not read would leave payloads unsigned."""
    monkeypatch.setenv("RENDERGEN_PLUGIN__SIGNING_KEY", "x" * 32)
    with pytest.raises(ValueError, match="RENDERGEN_PLUGIN__SIGNING_KEY:"):
        PluginSettings.read()
