"""Sends mutated payloads to an engine, and keeps count."""

from __future__ import annotations

import asyncio
import copy
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import aiohttp
from tokenizers import Tokenizer

from rendergen.launcher import Stack
from rendergen.tiny_model import TINY_MODEL_PATH
from rendergen.tiny_model.abilities import ONE_WORD_QUESTIONS, TWO_IMAGES_QUESTIONS
from rendergen.tiny_model.pictures import Picture
from tests.e2e.calls import GENERATE, RENDER, Reply, chat, image_part, ok
from tests.e2e.fuzz.drafts import FRAMES_TYPE, JSON_TYPE, Draft, as_frames, as_json, draft_of
from tests.e2e.fuzz.mangling import MANGLINGS
from tests.e2e.fuzz.mutations import MUTATIONS, PIXELS, Source
from tests.e2e.fuzz.outcomes import Expect, Verdict, verdict

SIDES = (128, 96)
"""Width and height of all pictures, in pixels: one size, so that one can take another's place."""

COLORS = ("red", "green", "blue")
ENCODINGS: dict[str, tuple[str, Callable[[Draft], bytes]]] = {
    "json": (JSON_TYPE, as_json),
    "frames": (FRAMES_TYPE, as_frames),
}
MAX_TOKENS = 8
TWICE_SHARE, STREAM_SHARE = 0.1, 0.2
GOOD_EVERY = 50
"""So many payloads after which a good one is sent among them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One mutated payload.

    Attributes:
        number: which of its run's it is; with the seed, all that is needed to make it again.
        kind: what was done.
        encoding: a key of `ENCODINGS`.
        content_type: as it is sent.
        body: the bytes.
        expect: what may come of it.
        question: what it asks.
        colors: what its pictures show, in the order in which the prompt has them; None: there is no telling.
    """

    number: int
    kind: str
    encoding: str
    content_type: str
    body: bytes
    expect: Expect
    question: str
    colors: tuple[str, ...] | None


@dataclass(slots=True)
class Report:
    """What came of a run."""

    seed: int
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[tuple[Case, str]] = field(default_factory=list)
    engine_changed: str | None = None

    def add(self, case: Case, found: Verdict) -> None:
        self.counts.setdefault(f"{case.kind} ({case.encoding})", Counter())[found.label] += 1
        if found.fault is not None:
            self.faults.append((case, found.fault))

    def total(self) -> int:
        return sum(sum(counter.values()) for counter in self.counts.values())

    def table(self) -> str:
        """A line for each kind, with how often each status came."""
        labels = sorted({label for counter in self.counts.values() for label in counter})
        width = max(map(len, self.counts), default=0)
        lines = [f"{'':{width}} " + " ".join(f"{label:>6}" for label in labels)]
        for kind, counter in sorted(self.counts.items()):
            lines.append(
                f"{kind:{width}} " + " ".join(f"{counter[label] or '':>{max(6, len(label))}}" for label in labels)
            )
        total = sum(self.counts.values(), Counter[str]())
        lines.append(f"{'all':{width}} " + " ".join(f"{total[label]:>{max(6, len(label))}}" for label in labels))
        return "\n".join([*lines, f"seed {self.seed}, {self.total()} payloads"])

    def complaints(self, directory: Path | None = None) -> list[str]:
        """What went wrong, each with how to see it again. Bodies are written to ``directory``."""
        said = []
        for case, fault in self.faults:
            line = f"payload {case.number} of seed {self.seed}, {case.kind} as {case.encoding}: {fault}"
            if directory is not None:
                path = directory / f"{self.seed}-{case.number}.{case.encoding}"
                path.write_bytes(case.body)
                line += f" (body: {path})"
            said.append(line)
        return [*said, self.engine_changed] if self.engine_changed else said


class Fuzz:
    """Good payloads of an engine's own, the right answers to them, and the means to make bad ones."""

    def __init__(self, drafts: Sequence[Draft], answers: dict[tuple[str, tuple[str, ...]], str]) -> None:
        self._source = Source(drafts)
        self._answers = answers
        tokenizer = Tokenizer.from_file(str(TINY_MODEL_PATH / "tokenizer.json"))
        self._decode: Callable[[list[int]], str] = tokenizer.decode

    @classmethod
    async def of(cls, client: aiohttp.ClientSession, stack: Stack) -> Fuzz:
        """Render some pictures and ask the engine about them, while all is still well."""
        fuzz = cls([], {})
        drafts = []
        for colors in (*product(COLORS), *product(COLORS, COLORS)):
            question = (ONE_WORD_QUESTIONS if len(colors) == 1 else TWO_IMAGES_QUESTIONS)[0]
            parts = [image_part(Picture(color, _pure(color), *SIDES).encode()) for color in colors]
            request = chat(*parts, question, max_tokens=MAX_TOKENS)
            payload = await ok(client, stack.vllm_render_urls[0] + RENDER, request)
            drafts.append(draft_of(payload, question, list(colors)))
            generated = await ok(client, stack.vllm_engine_urls[0] + GENERATE, payload)
            fuzz._answers[question, colors] = fuzz._decode(generated["choices"][0]["token_ids"])
        for (_, colors), answer in fuzz._answers.items():
            assert all(color in answer.lower() for color in colors), f"{colors} are {answer!r} to the engine"
        fuzz._source = Source(drafts)
        return fuzz

    def case(self, seed: int, number: int, only: Sequence[str] = ()) -> Case:
        """Make the payload of that number: kinds take turns, so that a short run has each of them as well.

        Args:
            seed: of the run.
            number: of the payload.
            only: kinds to take; none: all.
        """
        rng = random.Random(f"{seed} {number}")
        kinds = [kind for kind in (*MUTATIONS, *MANGLINGS) if not only or kind in only]
        kind = kinds[number // len(ENCODINGS) % len(kinds)]
        encoding = list(ENCODINGS)[number % len(ENCODINGS)]
        content_type, encode = ENCODINGS[encoding]
        original = rng.choice(self._source.drafts)
        draft = copy.deepcopy(original)
        if draft.signature is None:
            _make_fresh(draft, rng)
        if rng.random() < STREAM_SHARE:
            draft.request["stream"] = True
        if kind in MANGLINGS:
            body, content_type, expect = MANGLINGS[kind](rng, encode(draft), content_type)
            return Case(number, kind, encoding, content_type, body, expect, draft.question, draft.colors)
        expect = MUTATIONS[kind](rng, draft, self._source)
        colors = draft.colors if expect is Expect.RIGHT else None
        if rng.random() < TWICE_SHARE:
            expect = self._again(rng, draft, expect)
            kind = "two at once"
        # NaN is unlike itself: parts that hold it may be told apart by text alone.
        if original.signature is not None and repr(draft.signed_parts()) != repr(original.signed_parts()):
            expect = Expect.REFUSED
        return Case(number, kind, encoding, content_type, encode(draft), expect, draft.question, colors)

    def _again(self, rng: random.Random, draft: Draft, expect: Expect) -> Expect:
        """One more mutation on top, if it finds what it wants to change."""
        try:
            MUTATIONS[rng.choice(list(MUTATIONS))](rng, draft, self._source)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return expect
        return Expect.ANY

    def good(self) -> Case:
        """Red, as it was rendered."""
        draft = copy.deepcopy(self._source.drafts[0])
        return Case(-1, "good", "frames", FRAMES_TYPE, as_frames(draft), Expect.RIGHT, draft.question, draft.colors)

    async def send(self, client: aiohttp.ClientSession, url: str, case: Case) -> Verdict:
        """Send one, and judge what comes."""
        try:
            headers = {"Content-Type": case.content_type}
            async with client.post(url + GENERATE, data=case.body, headers=headers) as answer:
                reply = Reply(answer.status, answer.headers, await answer.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            return Verdict("none", f"no answer: {error!r}")
        right = None if case.colors is None else self._answers.get((case.question, case.colors))
        found = verdict(reply, case.expect, right, self._decode)
        if case.kind == "good" and found.label != "200":
            return Verdict(found.label, f"a good payload was refused: {reply.text()[:300]}")
        return found

    async def run(
        self,
        client: aiohttp.ClientSession,
        stack: Stack,
        seed: int,
        count: int,
        *,
        first: int = 0,
        only: Sequence[str] = (),
        at_once: int = 4,
        progress: Callable[[Report], None] = lambda report: None,
    ) -> Report:
        """Send ``count`` payloads, some at a time, so that the engine batches bad ones with others; then a good one.

        Args:
            client: the caller.
            stack: whose engine they go to.
            seed: from which they are made.
            count: how many.
            first: number of the first.
            only: kinds to take; none: all.
            at_once: how many are in flight.
            progress: called after each.
        """
        url = stack.vllm_engine_urls[0]
        report = Report(seed)
        before = engine_processes(stack)
        numbers: Iterator[int] = iter(range(first, first + count))

        async def send_some() -> None:
            for number in numbers:
                if report.engine_changed:
                    return
                case = self.case(seed, number, only)
                found = await self.send(client, url, case)
                report.add(case, found)
                if found.label == "none":
                    self._compare(report, before, engine_processes(stack), number + 1)
                if number % GOOD_EVERY == 0:
                    good = self.good()
                    report.add(good, await self.send(client, url, good))
                    self._compare(report, before, engine_processes(stack), number)
                progress(report)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(send_some())
        good = self.good()
        report.add(good, await self.send(client, url, good))
        self._compare(report, before, engine_processes(stack), first + count)
        return report

    @staticmethod
    def _compare(report: Report, before: dict[int, str], now: dict[int, str], number: int) -> None:
        if before != now and not report.engine_changed:
            report.engine_changed = (
                f"the engine's processes changed before payload {number} of seed {report.seed}: {before}, now {now}"
            )


def _make_fresh(draft: Draft, rng: random.Random) -> None:
    """Change pixels by one step of 255, a few of them: the same to the eye, but nothing that any cache holds yet.

    An item that the engine has seen is not looked at again, whatever else is wrong with it.
    """
    for picture in draft.pictures:
        tensor = picture.fields[PIXELS].data
        start = bytes(value ^ (bits & 1) for value, bits in zip(tensor.data[:64], rng.randbytes(64), strict=True))
        tensor.data = start + tensor.data[64:]


def _pure(color: str) -> tuple[int, int, int]:
    return {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255)}[color]


def engine_processes(stack: Stack) -> dict[int, str]:
    """The engine's processes, all of those that the launcher started for it and theirs: pid and command."""
    group = stack.process("vllm-engine-0").pid
    found: dict[int, str] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            if int(rest[2]) == group:
                found[int(entry)] = name
    return found


def kinds() -> list[str]:
    """All kinds there are."""
    return [*MUTATIONS, *MANGLINGS]
