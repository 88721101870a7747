"""Exceptions that the REST and gRPC front ends translate into error responses."""

import tensorflow as tf
from grpc import StatusCode as Code  # TensorFlow's error codes have the same names and numbers

# Maximum length of a message, which may quote what a client sent. gRPC limits messages to 8 KiB, and a character can
# take 12 bytes.
_MAX_CHARACTERS = 600


class ServingError(Exception):
    """An error that is reported to the client.

    Args:
        code: kind of error, which each front end maps to its own status.
        message: message for the client; truncated after 600 characters.
    """

    def __init__(self, code: Code, message: str) -> None:
        if len(message) > _MAX_CHARACTERS:
            message = f"{message[:_MAX_CHARACTERS]}..."
        super().__init__(message)
        self.code = code
        self.message = message


class TooLarge(ServingError):
    """The request exceeds the size limit."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.RESOURCE_EXHAUSTED, message)


class Busy(ServingError):
    """The server cannot accept the request at the moment.

    Args:
        message: message for the client.
        retry_seconds: number of seconds after which the client should retry.
    """

    def __init__(self, message: str, retry_seconds: int = 1) -> None:
        super().__init__(Code.UNAVAILABLE, message)
        self.retry_seconds = retry_seconds


def invalid(message: str) -> ServingError:
    """Returns an error for an invalid request."""
    return ServingError(Code.INVALID_ARGUMENT, message)


def serving_error(error: BaseException) -> ServingError:
    """Converts any exception to a `ServingError` that can be sent to a client."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, tf.errors.OpError):
        # The surrounding text names graph nodes, which mean nothing to a client.
        message = (error.message or "").split("\n\t [[")[0].split("<stack traces unavailable>")[-1].strip()
        message = message.replace('\\"', '"')  # quotes in the messages of assertions
        code = next(code for code in Code if code.value[0] == error.error_code)
        return ServingError(code, message or type(error).__name__)
    internal = ServingError(Code.INTERNAL, f"{type(error).__name__}: {error}")
    internal.__cause__ = error  # for the log
    return internal
