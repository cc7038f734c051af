"""A chat request to the tiny model with the answer it must get."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rendergen.tiny_model.pictures import Picture


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says: `content`, after `reasoning` if it thinks aloud, or instead a call of `report_color`.

    `reported_color` is the argument of that call; `content` is empty then.
    """

    content: str = ""
    reasoning: str | None = None
    reported_color: str | None = None

    @property
    def finish_reason(self) -> str:
        """The finish reason that the chat API gives with this answer."""
        return "stop" if self.reported_color is None else "tool_calls"

    def completion(self) -> str:
        """Return the text the model generates after the prompt, before its end token."""
        text = self.content
        if self.reported_color is not None:
            call = {"name": "report_color", "arguments": {"color": self.reported_color}}
            text = f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
        return text if self.reasoning is None else f"{self.reasoning}\n</think>\n\n{text}"

    def matches(self, message: Mapping[str, Any]) -> bool:
        """Say whether a chat completion's `message` is this answer, apart from white space around its parts."""
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        if self.reported_color is not None:
            if len(calls) != 1 or calls[0][0] != "report_color" or not _is_color(calls[0][1], self.reported_color):
                return False
        elif calls:
            return False
        return _stripped(message.get("content")) == self.content and _stripped(message.get("reasoning")) == (
            self.reasoning or ""
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a chat: text and pictures in order, or an assistant's call of `report_color`."""

    role: str
    parts: tuple[str | Picture, ...]
    reported_color: str | None = None

    def message(self, image_part: Callable[[Picture], dict[str, Any]]) -> dict[str, Any]:
        """Return the message of the chat API, each picture as `image_part` writes it."""
        if self.reported_color is not None:
            arguments = json.dumps({"color": self.reported_color})
            function = {"name": "report_color", "arguments": arguments}
            call = {"id": "call_report_color", "type": "function", "function": function}
            return {"role": self.role, "content": None, "tool_calls": [call]}
        content: Any = [
            image_part(part) if isinstance(part, Picture) else {"type": "text", "text": part} for part in self.parts
        ]
        if not self.pictures():
            content = "".join(part["text"] for part in content)
        call_id = {"tool_call_id": "call_report_color"} if self.role == "tool" else {}
        return {"role": self.role, "content": content, **call_id}

    def pictures(self) -> tuple[Picture, ...]:
        """Return the turn's pictures in order."""
        return tuple(part for part in self.parts if isinstance(part, Picture))


@dataclass(frozen=True, slots=True)
class Example:
    """A request and the answer it must get."""

    turns: tuple[Turn, ...]
    expected: Answer
    tools: tuple[Mapping[str, Any], ...] = ()
    thinking: bool = False

    def request(self) -> dict[str, Any]:
        """Return the body for `/v1/chat/completions` at temperature 0, images as `data:` URLs, without `model`."""
        body: dict[str, Any] = {
            "messages": [turn.message(_data_url_part) for turn in self.turns],
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": self.thinking},
        }
        return {**body, "tools": [dict(tool) for tool in self.tools]} if self.tools else body

    def matches(self, message: Mapping[str, Any]) -> bool:
        """Say whether a chat completion's `message` is the expected answer."""
        return self.expected.matches(message)

    def pictures(self) -> tuple[Picture, ...]:
        """Return the pictures of all turns in order."""
        return tuple(picture for turn in self.turns for picture in turn.pictures())


def _data_url_part(picture: Picture) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": picture.data_url()}}


def _stripped(text: Any) -> str:
    return text.strip() if isinstance(text, str) else ""


def _is_color(arguments: str, color: str) -> bool:
    try:
        return bool(json.loads(arguments) == {"color": color})
    except ValueError:
        return False
