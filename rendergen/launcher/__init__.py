"""Starts the whole stack on this machine: vLLM's render server and engine, the services before them, the router."""

from rendergen.launcher.display import Display, NoDisplay, PlainDisplay, display_for
from rendergen.launcher.errors import ChildDiedError, LaunchError, StartTimeoutError
from rendergen.launcher.settings import LaunchSettings
from rendergen.launcher.stack import Stack

__all__ = [
    "ChildDiedError",
    "Display",
    "LaunchError",
    "LaunchSettings",
    "NoDisplay",
    "PlainDisplay",
    "Stack",
    "StartTimeoutError",
    "display_for",
]
