"""The payload that a render pod makes and a generate pod takes: looked at and edited as it is, never decoded."""

from rendergen.payload.capture import MemberCapture
from rendergen.payload.document import Document
from rendergen.payload.errors import (
    DuplicateMember,
    LimitExceeded,
    MalformedJson,
    MemberTooLarge,
    NotAnObject,
    PayloadError,
    SeveralPayloads,
    TooManyMedia,
    TruncatedJson,
)
from rendergen.payload.frame_prompt import Placeholder, PromptOutline, TokenIds, read_prompt
from rendergen.payload.frame_splice import FrameSplicer
from rendergen.payload.frames import (
    MalformedFrames,
)
from rendergen.payload.limits import DEFAULT_LIMITS, Limits
from rendergen.payload.media import MAX_MEDIA, MediaScanner, Medium, surely_has_no_media
from rendergen.payload.members import Piece, index_members, set_members, split_list
from rendergen.payload.sampling_params import SamplingParamsEdit, merge_sampling_params
from rendergen.payload.scanner import Event, MemberScanner, ObjectEnded, Span, ValueEnded, ValueStarted
from rendergen.payload.splice import SamplingParamsSplicer, splice_sampling_params

__all__ = [
    "DEFAULT_LIMITS",
    "MAX_MEDIA",
    "Document",
    "DuplicateMember",
    "Event",
    "FrameSplicer",
    "LimitExceeded",
    "Limits",
    "MalformedFrames",
    "MalformedJson",
    "MediaScanner",
    "Medium",
    "MemberCapture",
    "MemberScanner",
    "MemberTooLarge",
    "NotAnObject",
    "ObjectEnded",
    "PayloadError",
    "Piece",
    "Placeholder",
    "PromptOutline",
    "SamplingParamsEdit",
    "SamplingParamsSplicer",
    "SeveralPayloads",
    "Span",
    "TokenIds",
    "TooManyMedia",
    "TruncatedJson",
    "ValueEnded",
    "ValueStarted",
    "index_members",
    "merge_sampling_params",
    "read_prompt",
    "set_members",
    "splice_sampling_params",
    "split_list",
    "surely_has_no_media",
]
