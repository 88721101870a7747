"""The exception for faulty input, as opposed to faults of the program."""


class InputError(ValueError):
    """Bad input that the user can correct: a file, a line, a flag or a value.

    The message is one line that says what is wrong and what would be valid. Programs print it and exit with status 1.
    """
