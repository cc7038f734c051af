"""A JSON body as vLLM's request, parsed off the event loop, with the errors that FastAPI would give."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

from fastapi import HTTPException
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

# Below this, parsing takes less time than handing it to a thread is worth.
SMALL_BYTES = 32 * 1024


async def parsed(body: bytes | memoryview, model: type[M]) -> tuple[M, dict[str, Any]]:
    """The request that ``body`` holds, and its members as they came.

    Raises:
        RequestValidationError: it holds none.
        HTTPException: it is none that Python reads.
    """
    if len(body) <= SMALL_BYTES:
        return _parse(body, model)
    return await asyncio.to_thread(_parse, body, model)


def _parse(body: bytes | memoryview, model: type[M]) -> tuple[M, dict[str, Any]]:
    try:
        members = json.loads(bytes(body))
    except json.JSONDecodeError as error:
        what = {"type": "json_invalid", "loc": ("body", error.pos), "msg": "JSON decode error", "input": {}}
        raise RequestValidationError([{**what, "ctx": {"error": error.msg}}], body=error.doc) from error
    except (ValueError, RecursionError) as error:  # no UTF-8, thousands of digits, brackets without end
        raise HTTPException(400, "There was an error parsing the body") from error
    return validated(members, model), members if isinstance(members, dict) else {}


def validated(members: Any, model: type[M]) -> M:
    """``members`` as a request.

    Raises:
        RequestValidationError: they are none.
    """
    if members is None:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}])
    try:
        return model.model_validate(members, from_attributes=True)
    except ValidationError as error:
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)], body=members
        ) from error
