"""The exception with which the server refuses a request, shared by REST and gRPC."""

import tensorflow as tf
from grpc import StatusCode as Code  # TensorFlow's error codes have the same names and numbers

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
        code = next(code for code in Code if code.value[0] == error.error_code)
        return ServingError(code, message or type(error).__name__)
    internal = ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
    internal.__cause__ = error  # for the log
    return internal
