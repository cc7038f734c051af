"""Send one image through vLLM's scale-out endpoints: render, generate, decode, and say what each step gave.

    python scripts/roundtrip.py --base-url http://127.0.0.1:8080

The address is the router's, or that of a single `vllm serve --enable-scale-out`, which has both endpoints. This script
uses these endpoints and nothing of rendergen: what it does can be copied into any client.

Exit code 0 if the expected word is in the answer, else 1.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import io
import json
import mimetypes
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

SIDE = 224
RED = (230, 25, 30)


class RoundTripError(Exception):
    """Why the round trip failed: one line."""


def image_data_url(file: Path | None) -> str:
    """The image to send: a file as it is, or a square of red pixels."""
    if file is not None:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RoundTripError(f"cannot read {file}: {error.strerror}") from None
        kind = mimetypes.guess_type(file.name)[0] or "image/png"
    else:
        try:
            from PIL import Image
        except ImportError:
            raise RoundTripError("Pillow is not installed: pip install pillow, or give --image FILE") from None

        buffer = io.BytesIO()
        Image.new("RGB", (SIDE, SIDE), RED).save(buffer, format="PNG")
        data, kind = buffer.getvalue(), "image/png"
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def call(base_url: str, path: str, body: Any = None, timeout_s: float = 120.0) -> Any:
    """GET, or POST a body as JSON; the answer's JSON."""
    url = base_url.rstrip("/") + path
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise RoundTripError(f"{path} answered {error.code}: {message_of(error.read())}") from None
    except urllib.error.URLError as error:
        raise RoundTripError(f"nothing answers at {base_url}: {error.reason}") from None
    except TimeoutError:
        raise RoundTripError(f"{path} gave no answer within {timeout_s:.0f} s") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise RoundTripError(f"{path} gave no usable answer: {error}") from None


def message_of(body: bytes) -> str:
    """The server's own words, out of OpenAI's error body where it has one."""
    text = body.decode(errors="replace").strip()
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return text[:500] or "(no message)"


def decode(token_ids: list[int], names: list[str]) -> str:
    """The text of these tokens, by the first of the named tokenizers that loads."""
    reasons = []
    for name in names:
        try:
            return load_tokenizer(name).decode(token_ids, skip_special_tokens=True)
        except Exception as error:  # the libraries below raise many kinds, Rust's plain Exception among them
            reasons.append(f"{name} ({str(error).splitlines()[0] if str(error) else type(error).__name__})")
    raise RoundTripError(f"no tokenizer: {'; '.join(reasons)}; give its directory or name with --tokenizer")


def load_tokenizer(name: str) -> Any:
    """From a directory or the hub. Where there is no tokenizer.json transformers makes one, which takes seconds."""
    from tokenizers import Tokenizer

    file = Path(name) / "tokenizer.json"
    if file.exists():
        return Tokenizer.from_file(str(file))
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name)


def show_rendered(rendered: dict[str, Any]) -> None:
    """What the render endpoint gave: everything that a generate pod needs, in place of the image and the text."""
    print(f"  keys       {', '.join(rendered)}")
    print(f"  token ids  {len(rendered['token_ids'])}")
    for modality, items in ((rendered.get("features") or {}).get("kwargs_data") or {}).items():
        for index, item in enumerate(items or []):
            size = len(item) if isinstance(item, str) else 0
            print(f"  {modality:<10} feature {index + 1} of {len(items)}: {type(item).__name__} of {size:,} characters")


def round_trip(args: argparse.Namespace) -> str:
    """Render, generate, decode; the answer's text."""
    models = call(args.base_url, "/v1/models")["data"]
    served = next((model for model in models if args.model in (None, model["id"])), None)
    if served is None:
        raise RoundTripError(f"model {args.model} is not served here; it has {', '.join(m['id'] for m in models)}")
    model = served["id"]
    content = [
        {"type": "image_url", "image_url": {"url": image_data_url(args.image)}},
        {"type": "text", "text": args.prompt},
    ]

    print("POST /v1/chat/completions/render")
    chat = {"model": model, "messages": [{"role": "user", "content": content}]}
    rendered = call(args.base_url, "/v1/chat/completions/render", chat)
    show_rendered(rendered)

    print("POST /inference/v1/generate")
    # All else goes back as it came. The rendered sampling params stay too: they hold the model's own defaults.
    chosen = {"max_tokens": args.max_tokens, "temperature": 0.0}
    rendered["sampling_params"] = {**(rendered.get("sampling_params") or {}), **chosen}
    generated = call(args.base_url, "/inference/v1/generate", rendered)
    choice = generated["choices"][0]
    print(f"  token ids  {choice['token_ids']} ({choice.get('finish_reason')})")

    root = served.get("root") or model
    if args.tokenizer is None and root == model and not is_on_the_hub(model):
        # The router does not tell where a pod has its model.
        text = derendered(args.base_url, chat, rendered, generated).strip()
    else:
        text = decode(choice["token_ids"], [args.tokenizer] if args.tokenizer else [root, model]).strip()
    print(f"answer: {text}")
    return text


def is_on_the_hub(name: str) -> bool:
    """Whether the name looks like one of the Hugging Face hub."""
    return "/" in name


def derendered(base_url: str, chat: dict[str, Any], rendered: dict[str, Any], generated: dict[str, Any]) -> str:
    """The answer's text, by the server that has the tokenizer."""
    print("POST /v1/chat/completions/derender")
    choice = generated["choices"][0]
    if choice.get("finish_reason") == "stop" and len(choice["token_ids"]) > 1:
        choice = {**choice, "token_ids": choice["token_ids"][:-1]}  # vLLM would decode the token that ended it, too
    request = {
        "model": chat["model"],
        "generate_response": {**generated, "choices": [choice]},
        "chat_request": chat,
        "prompt_tokens": len(rendered["token_ids"]),
        "prompt_token_ids": rendered["token_ids"],
    }
    completion = call(base_url, "/v1/chat/completions/derender", request)
    return str(completion["choices"][0]["message"]["content"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:8080", help="the router, or a vLLM with both endpoints")
    parser.add_argument("--model", help="the served model's name (default: the first in /v1/models)")
    parser.add_argument(
        "--tokenizer", help="directory or name of the tokenizer (default: the server's own, or its derender endpoint)"
    )
    parser.add_argument("--image", type=Path, help=f"an image file (default: {SIDE}×{SIDE} red pixels)")
    parser.add_argument("--prompt", default="What color is this image? Answer in one word.")
    parser.add_argument("--expect", default="Red", help="a word that must be in the answer")
    parser.add_argument("--max-tokens", type=int, default=16)
    args = parser.parse_args()
    try:
        text = round_trip(args)
    except RoundTripError as error:
        print(f"roundtrip: {error}", file=sys.stderr)
        return 1
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        print(f"roundtrip: the server's answer is not what these endpoints give: {error!r}", file=sys.stderr)
        return 1
    if not re.search(rf"(?<!\w){re.escape(args.expect)}(?!\w)", text, re.IGNORECASE):
        print(f"roundtrip: expected {args.expect!r} in the answer, got {text!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
