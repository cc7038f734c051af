"""One request on its way: what it has left, and which pods have failed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from rendergen.service import deadline, request_id
from rendergen.service.deadline import Deadline
from rendergen.service.errors import PodFailed, PodRefusal, ServiceError
from rendergen.service.pods import PodClient
from router.api_request import ApiRequest
from router.metrics import Stages

# With these a pod speaks of the request that it was sent by us (method, pauses), not of the caller's.
_OF_OURS = frozenset({405, 408})

T = TypeVar("T")


@dataclass(slots=True)
class Course:
    """A request and what has become of it so far.

    Attributes:
        request: the caller's.
        deadline: until when the caller waits.
        stages: its clock.
        created: when it came, in Unix seconds.
        failures: what went wrong on which pod.
    """

    request: ApiRequest
    deadline: Deadline
    stages: Stages
    created: int
    failures: dict[PodClient, ServiceError] = field(default_factory=dict)

    @property
    def failed(self) -> frozenset[PodClient]:
        """The pods that are not to be asked again."""
        return frozenset(self.failures)

    def tries(self) -> int:
        """How often the step was tried that was tried most often."""
        return max(Counter(pod.pod.role for pod in self.failures).values(), default=0)

    @property
    def answer_id(self) -> str:
        """The answer's ``id``, of our own form: the API's prefix and the request's id."""
        return f"{self.request.api.id_prefix}{request_id.current.get()}"

    def headers(self, budget_s: float) -> dict[str, str]:
        """The headers of one step's request to a pod.

        Each has an id of its own on vLLM: aborting an id there aborts every request that shares it.
        """
        return {**self.request.headers, request_id.HEADER: request_id.derived(), **deadline.left(budget_s)}

    @contextmanager
    def on(self, pod: PodClient) -> Iterator[None]:
        """What fails within is ``pod``'s doing, unless it was another's already, or is the caller's."""
        try:
            yield
        except ServiceError as error:
            self._blame(pod, error)
            raise

    async def from_pod(self, pod: PodClient, pieces: AsyncIterator[T]) -> AsyncIterator[T]:
        """``pieces`` that come from ``pod``, read by whoever sends them on to another."""
        with self.on(pod):
            async for piece in pieces:
                yield piece

    def _blame(self, pod: PodClient, error: ServiceError) -> None:
        if error.status >= 500 and all(error is not known for known in self.failures.values()):
            self.failures[pod] = error


@contextmanager
def of_ours() -> Iterator[None]:
    """A pod that speaks of how we asked it, and not of what the caller asked, has failed."""
    try:
        yield
    except PodRefusal as error:
        if error.status not in _OF_OURS:
            raise
        raise PodFailed("A pod did not take what it was sent for this request.") from error
