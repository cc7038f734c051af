"""What becomes of sampling params."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendergen.payload import (
    DuplicateMember,
    MalformedJson,
    NotAnObject,
    SamplingParamsEdit,
    index_members,
    merge_sampling_params,
)
from tests.rendergen.payload.documents import documents, names, repeatable, scalars

NOTHING = SamplingParamsEdit()
DEFAULT = SamplingParamsEdit(default_max_tokens=16)
SEED = SamplingParamsEdit({"seed": b"7"})
SEED_AND_DEFAULT = SamplingParamsEdit({"seed": b"7"}, default_max_tokens=16)
OVERRIDE = SamplingParamsEdit({"max_tokens": b"3"}, default_max_tokens=16)
REPLACE = SamplingParamsEdit({"seed": b"7"}, "replace")
REPLACE_AND_DEFAULT = SamplingParamsEdit({"seed": b"7"}, "replace", 16)


@pytest.mark.parametrize(
    ("rendered", "edit", "expected"),
    [
        # Nothing to change.
        (b'{"top_p": 0.10, "n":1 }', NOTHING, b'{"top_p": 0.10, "n":1 }'),
        (b"{}", NOTHING, b"{}"),
        (b"null", NOTHING, b"null"),
        (None, NOTHING, b"{}"),
        (b'{"max_tokens": 5}', DEFAULT, b'{"max_tokens": 5}'),
        # The default is for those that lack the member: an explicit null is a choice, and means no bound.
        (b'{"max_tokens":null}', DEFAULT, b'{"max_tokens":null}'),
        (b'{"max_token\\u0073":5}', DEFAULT, b'{"max_token\\u0073":5}'),
        (b'{"extra_args":{"max_tokens":5}}', DEFAULT, b'{"extra_args":{"max_tokens":5},"max_tokens":16}'),
        (b"{}", DEFAULT, b'{"max_tokens":16}'),
        (b"null", DEFAULT, b'{"max_tokens":16}'),
        (b" null ", DEFAULT, b'{"max_tokens":16}'),
        (None, DEFAULT, b'{"max_tokens":16}'),
        # Overrides.
        (b'{"seed":1,"n":1}', SEED, b'{"seed":7,"n":1}'),
        (b'{"n":1}', SEED, b'{"n":1,"seed":7}'),
        (b'{"n":1}', SEED_AND_DEFAULT, b'{"n":1,"seed":7,"max_tokens":16}'),
        (b'{"n":1,"max_tokens":5}', SEED_AND_DEFAULT, b'{"n":1,"max_tokens":5,"seed":7}'),
        (b'{"max_tokens":5}', OVERRIDE, b'{"max_tokens":3}'),
        (b"{}", OVERRIDE, b'{"max_tokens":3}'),
        (None, SEED, b'{"seed":7}'),
        # Replacing forgets what was rendered, its max_tokens too, but leaves no params without one.
        (b'{"n":1,"max_tokens":5}', REPLACE, b'{"seed":7}'),
        (b'{"n":1,"max_tokens":5}', REPLACE_AND_DEFAULT, b'{"seed":7,"max_tokens":16}'),
        (b"null", REPLACE, b'{"seed":7}'),
        (None, REPLACE_AND_DEFAULT, b'{"seed":7,"max_tokens":16}'),
        (b'{"n":1}', SamplingParamsEdit({}, "replace"), b"{}"),
        # A zero default is a default.
        (b"{}", SamplingParamsEdit(default_max_tokens=0), b'{"max_tokens":0}'),
        # Nothing is re-encoded.
        (b'{"a":1.0,"b":1E5,"c":"\\u00e9"}', SEED, b'{"a":1.0,"b":1E5,"c":"\\u00e9","seed":7}'),
    ],
)
def test_merge(rendered, edit, expected):
    """Overrides are set, a missing max_tokens made explicit, and all else keeps its bytes."""
    assert merge_sampling_params(rendered, edit) == expected


@pytest.mark.parametrize("edit", [NOTHING, DEFAULT])
def test_unchanged_is_the_same_object(edit):
    """Where nothing is to be changed, nothing is copied."""
    rendered = b'{"max_tokens":5}'
    assert merge_sampling_params(rendered, edit) is rendered


@pytest.mark.parametrize("edit", [NOTHING, SEED, REPLACE])
@pytest.mark.parametrize("rendered", [b"[]", b'"{}"', b"1", b"true", b"nul", b"", b"nullnull"])
def test_not_an_object(rendered, edit):
    """Sampling params that are something else are refused, whatever the edit."""
    with pytest.raises(NotAnObject, match="sampling_params"):
        merge_sampling_params(rendered, edit)


@pytest.mark.parametrize("edit", [NOTHING, SEED, REPLACE])
@pytest.mark.parametrize(
    ("rendered", "error"),
    [
        (b'{"a"}', MalformedJson),
        (b'{"a":1', MalformedJson),
        (b"{}{}", MalformedJson),
        (b'{"seed":1,"seed":2}', DuplicateMember),
    ],
)
def test_malformed(rendered, error, edit):
    """Malformed sampling params are refused, even where they are replaced."""
    with pytest.raises(error):
        merge_sampling_params(rendered, edit)


def test_override_must_be_a_value():
    """An override that is more or less than one value is refused when the edit is made."""
    for value in (b"", b'1,"n":2', b"[", b"x"):
        with pytest.raises(MalformedJson):
            SamplingParamsEdit({"seed": value})


@pytest.mark.parametrize(
    ("edit", "empty"),
    [(NOTHING, True), (DEFAULT, False), (SEED, False), (REPLACE, False), (SamplingParamsEdit({}, "replace"), False)],
)
def test_is_empty(edit, empty):
    """Only an edit that changes no payload is empty."""
    assert edit.is_empty() is empty


overrides = st.dictionaries(names, scalars.map(json.dumps).map(str.encode), max_size=4)


@repeatable
@given(documents, overrides, st.none() | st.integers(0, 100))
def test_merge_agrees_with_json(rendered, changes, default):
    """The result means the rendered params updated; what was not overridden keeps its bytes."""
    result = merge_sampling_params(rendered, SamplingParamsEdit(changes, default_max_tokens=default))
    expected = json.loads(rendered) | {name: json.loads(value) for name, value in changes.items()}
    if default is not None:
        expected.setdefault("max_tokens", default)
    assert repr(json.loads(result)) == repr(expected)
    before, after = index_members(rendered), index_members(result)
    for name in before.keys() - changes.keys():
        assert (
            rendered[slice(before[name].start, before[name].end)] == result[slice(after[name].start, after[name].end)]
        )
