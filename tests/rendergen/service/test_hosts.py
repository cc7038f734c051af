import pytest

from rendergen.service.hosts import host_name, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "0:0:0:0:0:0:0:1"])
def test_loopback_addresses(host: str) -> None:
    """All of 127/8 and ::1: only this machine reaches them."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        *("0.0.0.0", "::", "", "10.0.0.1", "192.168.1.2", "169.254.0.1", "fe80::1", "8.8.8.8", "127.1", "0177.0.0.1"),
        *("localhost", "loopback.example", "127.0.0.1.example", " 127.0.0.1", "127.0.0.1:80", "[::1]", "*"),
    ],
)
def test_everything_else_may_be_reached_by_others(host: str) -> None:
    """Wildcards, other addresses, and every name, whatever it resolves to at the time."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("images.example.org", "images.example.org"),
        ("Images.EXAMPLE.org", "images.example.org"),
        ("a", "a"),
        ("my_bucket.s3-1.example", "my_bucket.s3-1.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("192.0.2.7", "192.0.2.7"),
        (".".join(["a" * 63] * 3 + ["a" * 61]), ".".join(["a" * 63] * 3 + ["a" * 61])),
    ],
)
def test_host_names(text: str, name: str) -> None:
    """As they stand in a URL, in lower case."""
    assert host_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a.", ".a", "a..b", "-a.example", "a-.example", "*.example", "a b", "a\n", "a/b", "a:80", "u@a"),
        *("http://a.example", "[::1]", "::1", "bücher.example", "\u212aelvin.example", "a.example\\b", "a,b"),
        *("a" * 64, ".".join(["a" * 63] * 4)),
    ],
)
def test_what_is_no_host_name(text: str) -> None:
    """Schemes, ports, paths, wildcards, users, and what is not ASCII, even where lower case would make it so."""
    with pytest.raises(ValueError, match="is no host name"):
        host_name(text)
