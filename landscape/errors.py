"""The one exception that is meant for the user's eyes."""


class FedscapeError(ValueError):
    """Bad input or a hostile environment, told in one sentence: what is wrong and what would be right.

    Command lines print the sentence and exit with code 2 (see :mod:`landscape.terminal.command`).
    """
