"""Write ``docs/settings.md`` from the settings classes, or check that it is up to date.

python scripts/settings_doc.py            write it
python scripts/settings_doc.py --check    exit 1 if it is not what this would write
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from generate_service.settings import GenerateServiceSettings
from render_service.settings import RenderServiceSettings
from rendergen.service.settings import ServiceSettings
from rendergen.vllm_plugin.settings import PluginSettings
from router.settings import RouterSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SERVICES: tuple[type[ServiceSettings], ...] = (RouterSettings, RenderServiceSettings, GenerateServiceSettings)
HEAD = """# Settings

Each service takes its settings from flags, else from environment variables, else from these defaults. A flag's name is
the setting's with dashes (`--max-body-bytes`). Names end in their unit. `python -m router --help` prints the same.

A mistake ends the process with exit code 2 and one line on standard error for each: a value out of range, an unknown
flag, an environment variable that has a service's prefix and is none of its settings.

The double underscore in the variables keeps clear of those that Kubernetes sets in every pod of a namespace
(`RENDERGEN_ROUTER_PORT=tcp://…` for a Service of that name).

This page is written by `python scripts/settings_doc.py`; `make check` compares it with the code.
"""


PLUGIN_HEAD = """
## The plugin in vLLM

It lives in vLLM's process and reads these variables when that starts. A value that is none, or a variable with this
prefix that is no setting, ends vLLM's start.

| environment | default | what it is |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(service) for service in SERVICES) + PLUGIN_HEAD + _plugin_rows()


def _section(service: type[ServiceSettings]) -> str:
    name = service.model_config.get("cli_prog_name")
    own = [field for field in service.model_fields if field not in ServiceSettings.model_fields]
    rows = [_row(service, field) for field in [*own, *ServiceSettings.model_fields]]
    head = f"\n## `python -m {name}`\n\n| flag | environment | default | what it is |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _plugin_rows() -> str:
    rows = [
        f"| `{PluginSettings.environment_name(name)}` | {_default(field)} | {field.description} |"
        for name, field in PluginSettings.model_fields.items()
    ]
    return "\n".join(rows) + "\n"


def _row(service: type[ServiceSettings], name: str) -> str:
    field = service.model_fields[name]
    flag = f"`--{name.replace('_', '-')}`"
    return f"| {flag} | `{service.environment_name(name)}` | {_default(field)} | {field.description} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    shown = "" if isinstance(field.default, SecretStr) else field.default
    return "none" if shown in (None, "", ()) else f"`{shown}`"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/settings.md, or check it.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is out of date")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/settings.md is out of date: run `python scripts/settings_doc.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
