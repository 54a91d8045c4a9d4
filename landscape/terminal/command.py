"""Parse command lines with tyro, print errors in one sentence, return exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from landscape.errors import FedscapeError
from landscape.registry import unknown_name
from landscape.storage.schema import printable
from landscape.terminal.guides import GUIDES, Guide, screen_width
from landscape.terminal.program import spoken
from landscape.terminal.stopping import listening, told

# PyTorch and tyro are loaded where they are used: what a command is for can be told without them.

T = TypeVar("T")

EXIT_BAD_INPUT = 2
EXIT_DIVERGED = 3
EXIT_BROKEN_PIPE = 141
"""As a shell reports a program that SIGPIPE ended."""


def _sentence(box: str) -> str:
    """The first paragraph below the title of tyro's error box, as one line.

    The box is drawn with ``│`` and ``─``, or with blanks and ``-`` if stdout is not UTF-8.
    """
    words: list[str] = []
    for line in box.strip("\n").splitlines()[1:]:
        text = line.strip("│ ")
        if text.strip("─-╰╯"):
            words.append(text)
        elif words:
            break
    return _in_plain_words(re.sub(r"\s+", " ", " ".join(words)))


def _in_plain_words(sentence: str) -> str:
    """Tyro's sentence about an option that may have values of several types, without its notation for them; others
    without the full stop."""
    sentence = sentence.rstrip(" .")
    found = re.fullmatch(r"Error parsing (\S+): no type matching (.+) could be instantiated from \[(.*)\]\.?", sentence)
    if found is None:
        return sentence
    option, types, given = found.groups()
    bare = [kind.strip("{}") for kind in types.split("|") if kind != "{None}"]
    wanted = [kind[1:-1] if kind.startswith("[") else kind for kind in bare]
    return f"{option} cannot be {given}: give {' or '.join(wanted)}"


def parse(parser: Callable[[], T], program: str) -> T:
    """Run a tyro parser; its error box becomes a :class:`FedscapeError` of one sentence."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return parser()
    except SystemExit as exit_:
        message = stderr.getvalue()
        if exit_.code in (0, None) or not message:
            sys.stderr.write(message)
            raise
        sentence = _sentence(message) or message.strip()
        # The message of a dataclass that refused its own values (no --option, no POSITIONAL) is complete.
        own = re.sub(r"^Error parsing (?!-|[A-Z]+: )\S+: ", "", sentence)
        raise FedscapeError(own if own != sentence else f"{sentence} (see {program} --help)") from None


def read(
    kind: Callable[..., T],
    program: str,
    arguments: Sequence[str],
    config: Sequence[Any] = (),
    *,
    guide: Guide | None = None,
) -> T:
    """Parse a command's options into a dataclass, or what a function makes of them.

    ``--help`` is short (:func:`landscape.terminal.options.short_help`), ``--help-all`` tyro's; without arguments, where
    some are needed, the guide is on stderr.

    Args:
        kind: the dataclass, or the function.
        program: the command's name, as ``python -m`` has it.
        arguments: what follows it.
        config: of tyro.
        guide: the command's, if not that of :data:`landscape.terminal.guides.GUIDES`.

    Raises:
        FedscapeError: an option is unknown or has a wrong value.
        SystemExit: after help, with 0; with 2 where no arguments are given and some are needed.
    """
    guide = guide or GUIDES[program]
    if not arguments and guide.needs_arguments:
        alone(guide)
    if arguments and arguments[0].replace("_", "-").startswith("--tyro-"):  # completion of `python`, not of ours
        raise FedscapeError(f"there is no option {arguments[0]}: `fedscape completion bash` completes fedscape")
    import tyro

    from landscape.terminal.options import misspelt, options, short_help

    def parsed(words: Sequence[str]) -> T:
        return tyro.cli(kind, prog=spoken(program), args=words, config=tuple(config))

    arguments = _with_limits(arguments)
    if "--help-all" in arguments:
        try:
            parsed(["--help"])
        finally:
            print(_LIMITS)
    if {"-h", "--help"} & set(arguments):
        print(short_help(guide, options(kind, config), guide.common))
        raise SystemExit(0)
    try:
        return parse(lambda: parsed(arguments), program)
    except FedscapeError:
        if (sentence := misspelt(arguments, options(kind, config))) is None:
            raise
    raise FedscapeError(f"{sentence} (see {program} --help)")


_LIMITS = """every command also takes
  --max-bytes N  files that are read may have N bytes, and take as much memory, beyond what strangers' may:
                 the same as the environment variable FEDSCAPE_MAX_BYTES"""


def _with_limits(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--max-bytes N``, which holds for this process and those that it starts.

    Raises:
        FedscapeError: it has no number.
    """
    from landscape.storage.limits import VARIABLE, number_of_bytes

    left, words = [], iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("--max-bytes", "--max_bytes"):
            left.append(word)
            continue
        os.environ[VARIABLE] = str(number_of_bytes(value if equals else next(words, ""), "--max-bytes"))
    return left


def chosen(program: str, commands: Mapping[str, str], arguments: Sequence[str], kind: str = "command") -> str:
    """The one of several commands that the first argument names.

    Args:
        program: what they are commands of, as ``python -m`` has it.
        commands: what each does, by name.
        arguments: what follows the program.
        kind: what they are.

    Raises:
        FedscapeError: there is no such command.
        SystemExit: after help, with 0; with 2 without arguments.
    """
    if not arguments:
        alone(GUIDES[program])
    name = arguments[0]
    if name in ("-h", "--help", "--help-all"):
        column = max(map(len, commands)) + 4
        lines = [
            f"  {each}".ljust(column)
            + (does if name == "--help-all" else textwrap.shorten(does, screen_width() - column, placeholder=" …"))
            for each, does in commands.items()
        ]
        rest = f"{program} {kind.upper()} --help has more"
        print(spoken("\n".join([GUIDES[program].text(), "", f"{kind}s:", *lines, "", rest])))
        raise SystemExit(0)
    if name.startswith("-"):
        raise FedscapeError(f"give {program} the {kind} before its options, not {name} (see {program} --help)")
    if name not in commands:
        raise unknown_name(kind, name, list(commands))
    return name


def alone(guide: Guide) -> NoReturn:
    """Say on stderr what a command does that was given no arguments.

    Raises:
        SystemExit: with 2, as nothing was done.
    """
    print(guide.alone(), file=sys.stderr)
    raise SystemExit(EXIT_BAD_INPUT)


def run(main: Callable[[], Any]) -> int:
    """Run a command and return its exit code: 2, and one sentence on stderr, for an error of input or environment.

    SIGTERM and SIGUSR1 stop it as Ctrl-C does, with the codes of :mod:`landscape.terminal.stopping`.

    Under ``torchrun`` a sentence that all ranks have in common is printed once
    (:func:`landscape.compute.distributed.report_failure`).
    """
    try:
        with listening():
            return main() or 0
    except FedscapeError as error:
        _report("\n".join(printable(line, 10_000) for line in str(error).split("\n")), error)
        return EXIT_BAD_INPUT
    except RuntimeError as error:
        if "torch" not in sys.modules:
            raise
        from landscape.compute.devices import memory_ran_out

        if not memory_ran_out(error):
            raise
        _report(f"out of device memory, give a smaller --batch-size or --device cpu ({error})", error)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # Whoever read our output has ended, such as ``| head``; what is left in the buffer must not be written later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt as stopped:
        return told(stopped)


def _report(message: str, error: Exception) -> None:
    """Print an error, once for all ranks; where no rank can have begun, as nothing is loaded, at once."""
    distributed = sys.modules.get("landscape.compute.distributed")
    if distributed is None:
        print(f"error: {spoken(message)}", file=sys.stderr)
    else:
        consequence = isinstance(error, distributed.RanksLostError)
        distributed.report_failure(spoken(message), consequence=consequence)
