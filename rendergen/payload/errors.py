"""What can be wrong with a payload."""


class PayloadError(ValueError):
    """The base of every error this package raises about a document."""


class MalformedJson(PayloadError):
    """The bytes are not the JSON document they should be.

    `offset` is where this was noticed, in bytes from the start of the document.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"malformed JSON at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class TruncatedJson(MalformedJson):
    """The bytes ended before the document did. `offset` is the number of bytes that came."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset, "the document ended too early")


class DuplicateMember(PayloadError):
    """An object has two members of one name; which of them counts would be anyone's guess."""

    def __init__(self, name: str) -> None:
        super().__init__(f"member {name!r} appears twice")
        self.name = name


class NotAnObject(PayloadError):
    """The member `name` must be a JSON object, and is something else."""

    def __init__(self, name: str) -> None:
        super().__init__(f"member {name!r} is not a JSON object")
        self.name = name


class LimitExceeded(PayloadError):
    """The document is larger in some respect than the reader agreed to (see `Limits`).

    `what` says in which respect, `limit` is the most that is allowed, in the unit that `what` names.
    """

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{what}: more than the limit of {limit}")
        self.what = what
        self.limit = limit


class MemberTooLarge(LimitExceeded):
    """The value of the member `name` takes more than `limit` bytes of memory to hold."""

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(f"bytes held of member {name!r}", limit)
        self.name = name


class TooManyMedia(LimitExceeded):
    """A conversation holds more than `limit` media."""

    def __init__(self, limit: int) -> None:
        super().__init__("media in the conversation", limit)


class SeveralPayloads(PayloadError):
    """There are `count` payloads in one answer, where one is taken."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} payloads in one answer, where one is taken")
        self.count = count
