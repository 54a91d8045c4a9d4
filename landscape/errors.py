"""The exception for errors that the user can correct."""


class FedscapeError(ValueError):
    """Bad input or an unusable environment; one sentence says what is wrong and what would be right.

    Command lines print the sentence and exit with code 2 (see :mod:`landscape.terminal.command`).
    """
