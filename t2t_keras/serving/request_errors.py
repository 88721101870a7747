"""The one exception with which the server refuses a request, whichever way it came."""

import enum

import tensorflow as tf


class Code(enum.Enum):
    """Why a request failed: the canonical codes, of which gRPC's and TensorFlow's names and numbers are the same."""

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


class ServingError(Exception):
    """A request that gets an error for its answer.

    Args:
        code: what kind of error; each front end knows its own number for it.
        message: what is wrong and what would be right, for whoever sent the request.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class TooLarge(ServingError):
    """A message above the limit.

    Args:
        message: how large it is, and the limit.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Code.RESOURCE_EXHAUSTED, message)


def invalid(message: str) -> ServingError:
    """The error of a request that is wrong in itself."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def serving_error(error: BaseException) -> ServingError:
    """Any error as one that can be sent to a client."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        # What stands around it names nodes of the graph, which say nothing to a client.
        message = (error.message or "").split("\n\t [[")[0].split("<stack traces unavailable>")[-1].strip()
        return ServingError(Code(error.error_code), message or type(error).__name__)
    return ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
