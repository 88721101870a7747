"""The one exception that stands for "the input is at fault, not the program"."""


class InputError(ValueError):
    """Bad input: a file, a line, a flag or a value that the user can put right.

    The message is one line, names what is wrong and what would be valid. The
    programs under `launch/` print it without a traceback and exit with status 1.
    """
