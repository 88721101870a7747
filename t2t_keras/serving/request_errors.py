"""The exception with which the server refuses a request, shared by REST and gRPC."""

import enum

import tensorflow as tf


class Code(enum.Enum):
    """Canonical error codes, with the same names and numbers as in gRPC and TensorFlow."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# Of a message, which may quote what a client sent. gRPC sends messages of up to 8 KiB, a character as up to 12 bytes.
_MOST_CHARACTERS = 600


class ServingError(Exception):
    """A request that is answered with an error.

    Args:
        code: the kind of error, which each front end maps to its status.
        message: what is wrong and what would be right, for the client; a very long one is cut.
    """

    def __init__(self, code: Code, message: str) -> None:
        if len(message) > _MOST_CHARACTERS:
            message = f"{message[:_MOST_CHARACTERS]}..."
        super().__init__(message)
        self.code = code
        self.message = message


class TooLarge(ServingError):
    """A request above the size limit; the message states its size and the limit."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.RESOURCE_EXHAUSTED, message)


class Busy(ServingError):
    """A request that the server has no room for at the moment.

    Args:
        message: what there is no room for.
        retry_seconds: after how many seconds there may be room.
    """

    def __init__(self, message: str, retry_seconds: int = 1) -> None:
        super().__init__(Code.UNAVAILABLE, message)
        self.retry_seconds = retry_seconds


def invalid(message: str) -> ServingError:
    """Returns the error of a request that is itself wrong."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def serving_error(error: BaseException) -> ServingError:
    """Converts any exception to one that can be sent to a client."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        # The text around it names nodes of the graph, which mean nothing to a client.
        message = (error.message or "").split("\n\t [[")[0].split("<stack traces unavailable>")[-1].strip()
        return ServingError(Code(error.error_code), message or type(error).__name__)
    return ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
