import hashlib
import re

import pytest

from rendergen.service.api_keys import ApiKeys, key_line, key_name, new_key
from rendergen.service.watched_file import BadFile

A, B = new_key(), new_key()


def read(*lines: str) -> ApiKeys:
    return ApiKeys.read("\n".join(lines).encode())


def test_a_new_key_has_256_random_bits() -> None:
    """They are URL-safe base64, after a word that says what it is; no two are alike."""
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"rendergen-[A-Za-z0-9_-]{43}", key) for key in keys)


def test_the_line_does_not_hold_the_key() -> None:
    """But its name and its SHA-256."""
    line = key_line("alice", A)
    assert line == f"alice sha256:{hashlib.sha256(A.encode()).hexdigest()}"
    assert A not in line


def test_whose_key_it_is() -> None:
    """Each key of the file has its name; another key, or part of one, has none."""
    keys = read(key_line("alice", A), key_line("bob", B))
    assert (keys.name_of(A), keys.name_of(B)) == ("alice", "bob")
    assert len(keys) == 2
    other = [new_key(), "", A[:-1], A + "x", A.upper(), " " + A, hashlib.sha256(A.encode()).hexdigest(), "\udcff", "é"]
    assert [keys.name_of(key) for key in other] == [None] * len(other)


def test_it_is_looked_up_by_its_hash() -> None:
    """What is compared with what a caller sent is never the key: nothing here holds one."""
    keys = read(key_line("alice", A))
    assert keys.names == {hashlib.sha256(A.encode()).digest(): "alice"}
    assert "alice" not in repr(keys)


@pytest.mark.parametrize(
    "content",
    [
        f"# who may\n\n  \t\n{key_line('alice', A)}\n#{key_line('bob', B)}",
        f"\r\n {key_line('alice', A).replace(' ', '  ')}\t\r\n\r\n",
        key_line("alice", A).replace(
            hashlib.sha256(A.encode()).hexdigest(), hashlib.sha256(A.encode()).hexdigest().upper()
        ),
        f"\ufeff{key_line('alice', A)}",
        f"# für \u2028 x\n{key_line('alice', A)}",
    ],
    ids=["comments and blank lines", "spaces, CRLF", "capital hex", "a BOM", "comments of any letters"],
)
def test_forms_of_the_file(content: str) -> None:
    """What people and editors make of it."""
    keys = ApiKeys.read(content.encode())
    assert keys.name_of(A) == "alice"
    assert len(keys) == 1


def test_comments_in_another_encoding() -> None:
    """They are not read."""
    assert len(ApiKeys.read(b"# f\xfcr\n" + key_line("a", A).encode())) == 1


def test_a_name_may_have_several_keys() -> None:
    """While one is replaced by the other."""
    keys = read(key_line("alice", A), key_line("alice", B))
    assert keys.name_of(A) == keys.name_of(B) == "alice"


SHA = hashlib.sha256(A.encode()).hexdigest()


@pytest.mark.parametrize(
    "line",
    [
        *("alice", f"sha256:{SHA}", f"alice {SHA}", f"alice md5:{SHA}", f"alice sha256:{SHA[:-1]}"),
        *(f"alice sha256:{SHA}0", f"alice sha256:{SHA[:-1]}g", f"alice sha256:{SHA} x", f"alice sha256: {SHA}"),
        *(
            f"alice:sha256:{SHA}",
            f"-a sha256:{SHA}",
            f"a/b sha256:{SHA}",
            f"é sha256:{SHA}",
            f"{'a' * 65} sha256:{SHA}",
        ),
        *(A, f"alice {A}", "alice sha256:" + "\uff10" * 64, f"alice\x00 sha256:{SHA}"),
    ],
)
def test_a_line_that_is_none(line: str) -> None:
    """The message says which, and quotes nothing of it: it may be a key that was put there by mistake."""
    with pytest.raises(BadFile, match=r"^line 3 |^line 3:") as caught:
        read("# x", key_line("bob", B), line)
    assert A not in str(caught.value)
    assert SHA not in str(caught.value)


def test_a_key_twice() -> None:
    """Whose it is would be a guess."""
    with pytest.raises(BadFile, match=r"^line 2 has a key that is there already"):
        read(key_line("alice", A), key_line("bob", A))


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# only this\n"])
def test_no_key_at_all(content: bytes) -> None:
    """A file that was just emptied, to be written, must not lock out everyone."""
    with pytest.raises(BadFile, match="holds no key"):
        ApiKeys.read(content)


@pytest.mark.parametrize("name", ["a", "A-1", "x.y_z", "9", "a" * 64])
def test_names(name: str) -> None:
    """Letters, digits, dots, dashes, underscores."""
    assert key_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "-a", ".a", "_a", "a\n", "é", "a" * 65, "a#", '"'])
def test_what_is_no_name(name: str) -> None:
    """It would break the file's line, or the log's."""
    with pytest.raises(ValueError, match="a key's name"):
        key_name(name)
