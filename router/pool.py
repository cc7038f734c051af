"""The pods of one role, as the router sees them: which of them can take a request, and how busy they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from rendergen.service.errors import BadRequest, ModelNotFound, ServiceError, Unavailable
from rendergen.service.health import PodWatch
from rendergen.service.pods import PodClient
from rendergen.service.served_models import Models, ServedModel
from router.choice import Candidate, Load, Pick, Score, in_flight, lowest_in_turn
from router.model_families import refuse_media_over_json

# A caller's name for a model is repeated to it up to here.
_SHOWN_CHARACTERS = 256
_SHOWN_MODELS = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request needs of a pod.

    Attributes:
        model: the served name; None (or empty) is the model that the pods take where none is named.
        frames: it must take payloads in frames.
        derenders: a path of the plugin's derender that it must have (``/v1/messages/derender/stream``); empty: none.
        avoid: pods that are not to be taken, whatever else there is; nor is another part of the same process.
    """

    model: str | None = None
    frames: bool = False
    derenders: str = ""
    avoid: frozenset[PodClient] = frozenset()


@dataclass(slots=True)
class _Busy:
    """What one pod is busy with; changed by who takes it.

    Attributes:
        requests: those in flight.
        payload_bytes: of payloads on their way.
        turn: the number of the choice that last took it; 0: never.
    """

    requests: int = 0
    payload_bytes: int = 0
    turn: int = 0


class Taken:
    """A pod that was taken for one request."""

    def __init__(self, pod: PodClient, busy: _Busy) -> None:
        self.pod = pod
        self._busy = busy
        self._carried = 0
        self._is_given_back = False
        busy.requests += 1

    def carry(self, size: int) -> None:
        """So many payload bytes more are on their way to or from the pod, until it is given back."""
        self._carried += size
        self._busy.payload_bytes += size

    def give_back(self) -> None:
        """The pod has done its part; so it is at the latest when the context that took it ends."""
        if not self._is_given_back:
            self._is_given_back = True
            self._busy.requests -= 1
            self._busy.payload_bytes -= self._carried


class Pool:
    """Some pods, which come and go, of which one is taken for each request.

    Args:
        role: ``render pod`` or ``generate pod``: their name in messages to callers.
        pods: gives all of them, ready or not, as they are now.
        watch: knows which are ready, what they can do, and which models they serve.
        json_unsafe: names of models whose media may not travel as JSON, beside the families that are known for it.
        score: what speaks against a pod with some load.
        pick: takes one of the candidates.
    """

    def __init__(
        self,
        role: str,
        pods: Callable[[], Sequence[PodClient]],
        watch: PodWatch,
        *,
        json_unsafe: Collection[str] = (),
        score: Score = in_flight,
        pick: Pick = lowest_in_turn,
    ) -> None:
        self._role = role
        self._pods = pods
        self._watch = watch
        self._json_unsafe = frozenset(json_unsafe)
        self._score = score
        self._pick = pick
        self._turn = 0
        # Weak: that of a pod which is gone lasts as long as the requests that are still in flight on it.
        self._busy: WeakKeyDictionary[PodClient, _Busy] = WeakKeyDictionary()

    @property
    def pods(self) -> Sequence[PodClient]:
        """All of them, ready or not."""
        return self._pods()

    @contextmanager
    def take(self, wanted: Wanted = Wanted()) -> Iterator[Taken]:
        """Take a pod for one request, which is in flight on it for as long as the context lasts.

        Raises:
            ServiceError: there is none; see :meth:`ready`.
        """
        pod = self._choose(wanted)
        busy = self._busy.setdefault(pod, _Busy())
        self._turn += 1
        busy.turn = self._turn
        taken = Taken(pod, busy)
        try:
            yield taken
        finally:
            taken.give_back()

    def ready(self, wanted: Wanted = Wanted()) -> list[PodClient]:
        """The pods that could be taken now: at least one.

        Raises:
            ModelNotFound: no pod is known to serve the model, ready or not.
            BadRequest: no model is named, and the pods take different ones then.
            Unavailable: no pod is ready, or none that can do what is wanted, or there is none but those to avoid.
        """
        ready = [pod for pod in self._serving(wanted.model) if self._watch.is_ready(pod)]
        if not ready:
            raise Unavailable(f"No {self._role} is ready. Try again shortly.")
        if wanted.frames and not (ready := [pod for pod in ready if self.speaks_frames(pod)]):
            raise Unavailable(
                f"No {self._role} that takes payloads in frames is ready. Send JSON, or try again shortly."
            )
        if wanted.derenders and not (ready := [pod for pod in ready if self.derenders(pod, wanted.derenders)]):
            raise Unavailable(f"No {self._role} whose plugin can make this answer is ready. Try again shortly.")
        avoided = {pod.pod.url for pod in wanted.avoid}
        if avoided and not (ready := [pod for pod in ready if pod.pod.url not in avoided]):
            raise Unavailable(f"No other {self._role} is ready. Try again shortly.")
        return ready

    def can_take(self, wanted: Wanted = Wanted()) -> bool:
        """Whether :meth:`take` would find one."""
        try:
            self.ready(wanted)
        except ServiceError:
            return False
        return True

    def any_ready(self) -> bool:
        """Whether a pod is ready, whatever it serves."""
        return self._watch.any_ready(self.pods)

    def speaks_frames(self, pod: PodClient) -> bool:
        """Whether the pod takes and gives payloads in frames."""
        return self._watch.capabilities(pod).speaks_frames

    def derenders(self, pod: PodClient, path: str) -> bool:
        """Whether the pod's plugin has that derender."""
        return path in self._watch.capabilities(pod).derender_stream

    def failed(self, pod: PodClient) -> None:
        """A request found that the pod refuses connections: it gets no other until a probe has succeeded."""
        self._watch.failed(pod)

    def models(self) -> dict[str, ServedModel]:
        """What the pods that are ready serve, by id; of two with one id, the first."""
        found: dict[str, ServedModel] = {}
        for pod in self.pods:
            if self._watch.is_ready(pod):
                for name, model in (self._watch.models(pod) or {}).items():
                    found.setdefault(name, model)
        return found

    def refuse_unsafe_over_json(self, model: str | None, media: int) -> None:
        """Make sure that a request with so many images, videos and sounds may go as vLLM's JSON.

        Raises:
            BadRequest: its model is of a family whose media that would serve wrongly.
        """
        if media:
            refuse_media_over_json(model, [*self._known().values()], self._json_unsafe)

    def loads(self) -> dict[PodClient, Load]:
        """What each pod is busy with now."""
        return {pod: self._load(pod) for pod in self.pods}

    def _load(self, pod: PodClient) -> Load:
        busy = self._busy.get(pod)
        return Load() if busy is None else Load(busy.requests, busy.payload_bytes)

    def _choose(self, wanted: Wanted) -> PodClient:
        return self._pick([self._candidate(pod) for pod in self.ready(wanted)])

    def _candidate(self, pod: PodClient) -> Candidate[PodClient]:
        busy = self._busy.get(pod)
        return Candidate(pod, self._score(self._load(pod)), 0 if busy is None else busy.turn)

    def _known(self) -> Mapping[PodClient, Models]:
        """What the pods serve that have said so, ready or not."""
        return {pod: models for pod in self.pods if (models := self._watch.models(pod)) is not None}

    def _serving(self, model: str | None) -> Sequence[PodClient]:
        """The pods that serve ``model``, ready or not.

        While no pod has said what it serves, any may: so it is as the router starts, and with pods that never say. As
        soon as one has, the others count for nothing until they have too.
        """
        known = self._known()
        if not known:
            return self.pods
        if not model:
            self._require_one_default(known)
            return list(known)
        serving = [pod for pod, models in known.items() if model in models]
        if serving:
            return serving
        shown = model if len(model) <= _SHOWN_CHARACTERS else model[:_SHOWN_CHARACTERS] + "…"
        if not all(map(self._watch.was_asked_for_models, self.pods)):  # a pod that still starts may be the one
            raise Unavailable(f"No {self._role} that is ready serves the model `{shown}`. Try again shortly.")
        raise ModelNotFound(f"The model `{shown}` does not exist.", param="model")

    @staticmethod
    def _require_one_default(known: Mapping[PodClient, Models]) -> None:
        """vLLM takes the first model that it lists where none is named, and that must be one for all pods."""
        if len({next(iter(models)) for models in known.values()}) > 1:
            names = sorted({name for models in known.values() for name in models})
            shown = ", ".join(f"`{name[:_SHOWN_CHARACTERS]}`" for name in names[:_SHOWN_MODELS])
            more = ", …" if len(names) > _SHOWN_MODELS else ""
            raise BadRequest(f"Several models are served here: name one as `model`: {shown}{more}.", param="model")
