"""The public names of the package."""

import ast
import inspect

from rendergen import payload


def test_all_is_what_is_exported():
    """Every name the package imports is public, and every public name is there."""
    tree = ast.parse(inspect.getsource(payload))
    imported = [alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(payload.__all__) == sorted(imported)
