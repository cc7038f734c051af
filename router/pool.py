"""The pods of one role, as the router sees them."""

from __future__ import annotations

from collections.abc import Sequence

from rendergen.service.errors import Unavailable
from rendergen.service.health import PodWatch
from rendergen.service.pods import PodClient
from router.choice import Pick


class Pool:
    """Some pods of which any can serve a request.

    Args:
        role: ``render pod`` or ``generate pod``: their name in messages to callers.
        pods: all of them, ready or not.
        watch: knows which are ready.
        pick: takes one of the ready ones.
    """

    def __init__(self, role: str, pods: Sequence[PodClient], watch: PodWatch, pick: Pick) -> None:
        self._role = role
        self.pods = tuple(pods)
        self._watch = watch
        self._pick = pick

    def choose(self, *, frames: bool = False) -> PodClient:
        """The pod for the next request.

        Args:
            frames: it must take payloads in frames.

        Raises:
            Unavailable: none is ready, or none that does.
        """
        ready = self.ready()
        if not frames:
            return self._pick(ready)
        speaking = [pod for pod in ready if self.speaks_frames(pod)]
        if not speaking:
            raise Unavailable(
                f"No {self._role} that takes payloads in frames is ready. Send JSON, or try again shortly."
            )
        return self._pick(speaking)

    def speaks_frames(self, pod: PodClient) -> bool:
        """Whether the pod takes and gives payloads in frames."""
        return self._watch.capabilities(pod).speaks_frames

    def ready(self) -> list[PodClient]:
        """The pods that can serve now: at least one.

        Raises:
            Unavailable: there is none.
        """
        ready = [pod for pod in self.pods if self._watch.is_ready(pod)]
        if not ready:
            raise Unavailable(f"No {self._role} is ready. Try again shortly.")
        return ready

    def any_ready(self) -> bool:
        """Whether :meth:`choose` would find one."""
        return self._watch.any_ready(self.pods)
