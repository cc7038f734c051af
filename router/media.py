"""The media in a request: counted, and refused where they would have to be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rendergen.payload import Medium, Span
from rendergen.service.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Media:
    """What media a conversation has.

    Attributes:
        inline: how many are in the request itself: ``data:`` URLs, base64.
        remote: how many are to be fetched, from hosts that are allowed.
        spans: where the string of each is in the body, between its quotes, in order.
    """

    inline: int = 0
    remote: int = 0
    spans: tuple[Span, ...] = ()


def admitted(found: Sequence[Medium], allowed_domains: Sequence[str], param: str) -> Media:
    """The media ``found`` in the member ``param``.

    Args:
        allowed_domains: host names, in lower case. vLLM compares them as exactly (``--allowed-media-domains``).

    Raises:
        BadRequest: one is neither in the request nor at one of those hosts.
    """
    remote = [medium for medium in found if not medium.inline]
    if remote and not {medium.host for medium in remote}.issubset(allowed_domains):
        raise BadRequest(
            f"This server does not fetch images, audio or video from a URL given in `{param}`: "
            "send it within the request, as a data: URL.",
            param=param,
        )
    return Media(len(found) - len(remote), len(remote), tuple(medium.span for medium in found))
