"""The command ``fedscape`` and the ``python -m`` forms: what they say of themselves, and what they take."""

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import analysis.alignment.__main__
import analysis.corruptions.__main__
import analysis.hessian.__main__
import analysis.surface.__main__
import figures.__main__
import landscape.data.__main__
import trainers.__main__
from fedscape import command_line
from landscape import FedscapeError, Landscape
from landscape.checkpoints import open_checkpoint
from landscape.terminal import program as program_
from landscape.terminal.command import read
from landscape.terminal.guides import GUIDES
from landscape.terminal.options import misspelt, options
from landscape.terminal.program import COMMANDS
from landscape.version import __version__
from tests.conftest import REPOSITORY
from tests.trainers.usual import usual
from trainers import ALGORITHMS, FedAvg, Settings, train

MAINS = (
    trainers.__main__, analysis.hessian.__main__, analysis.surface.__main__, analysis.corruptions.__main__,
    analysis.alignment.__main__,
    figures.__main__, landscape.data.__main__,
)  # fmt: skip
KINDS = {program: kind for main in MAINS for program, kind in main.kinds().items()}
NAMES = {program: {name for option in options(*kind) for name in option.names} for program, kind in KINDS.items()}


def of_an_algorithm(program: str) -> bool:
    """Whether it is a training with another algorithm than the fast test takes."""
    name = program.removeprefix("python -m trainers ")
    return name in ALGORITHMS and name not in ("fedavg", "fedsmoo", "fedsol")


@pytest.fixture(autouse=True)
def _as_python_m():
    yield
    program_.started_as_fedscape(False)


def said(capsys, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``fedscape WORDS``."""
    try:
        code = command_line([str(word) for word in words])
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("program", usual(KINDS, among=[program for program in KINDS if not of_an_algorithm(program)]))
def test_help_all_has_every_option_and_help_only_options_that_there_are(program, capsys):
    kind, config = KINDS[program]
    for word, every in (("--help-all", True), ("--help", False)):
        with pytest.raises(SystemExit) as end:
            _read(program, [word])
        assert end.value.code == 0
        told = set(re.findall(r"(?<![\w`-])(?:--[a-z][\w-]*|-[a-z]\b)", _without_examples(capsys.readouterr().out)))
        if every:
            assert told >= NAMES[program], NAMES[program] - told
        else:
            shown = GUIDES.get(program, GUIDES["python -m trainers"]).common
            assert set(shown) <= NAMES[program]
            assert set(shown) <= told | {"--no-trace"}
            assert len(set(shown)) <= 16
    assert len(options(kind, config)) <= len(NAMES[program])


def _without_examples(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not re.match(r"  (fedscape|python) ", line))


def _read(program: str, words: list[str]) -> object:
    module, *command = program.removeprefix("python -m ").split()
    if module == "trainers" and command[0] in trainers.ALGORITHMS:
        return trainers.__main__.read([*command, *words])
    return read(KINDS[program][0], program, words, KINDS[program][1])


def test_every_command_has_a_guide_and_no_guide_lacks_its_command():
    groups = {"python -m trainers", "python -m figures", "python -m landscape.data"}
    algorithms = {f"python -m trainers {name}" for name in trainers.ALGORITHMS}
    assert set(GUIDES) == (set(KINDS) - algorithms) | groups
    assert {f"python -m {words}" for words in COMMANDS.values()} <= set(GUIDES)


@pytest.mark.parametrize("guide", GUIDES.values(), ids=lambda guide: guide.program)
def test_the_examples_of_a_guide_are_commands(guide):
    assert len(guide.examples) == 3 or not guide.common
    for words, what in guide.examples:
        assert what
        line = shlex.split(f"{guide.program} {words}".removeprefix("python -m "))
        program = max((p for p in KINDS if f"python -m {' '.join(line)} ".startswith(f"{p} ")), key=len)
        rest = line[len(program.split()) - 2 :]
        if "--help" not in rest:
            assert _read(program, rest) is not None


@pytest.mark.parametrize(
    "name", [name for name, words in COMMANDS.items() if GUIDES[f"python -m {words}"].needs_arguments]
)
def test_without_arguments_a_command_says_what_it_does_with_three_examples_and_exits_with_two(name, capsys):
    code, out, err = said(capsys, name)
    assert code == 2
    assert out == ""
    assert err.startswith(f"usage: fedscape {name} ")
    assert len(re.findall(rf"^  fedscape {name if name not in ('figures', 'data') else ''}", err, re.M)) == 3
    assert "python -m" not in err
    assert len(err.splitlines()) <= 14


def test_fedscape_alone_tells_every_command_and_exits_with_two(capsys):
    code, out, err = said(capsys)
    assert (code, out) == (2, "")
    assert (0, err, "") == said(capsys, "--help")
    assert all(re.search(rf"^  {name} ", err, re.M) for name in COMMANDS)
    assert said(capsys, "--version") == (0, f"fedscape {__version__}\n", "")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("hesian", "unknown command 'hesian': did you mean 'hessian'?"),
        ("hessian a.pt --topk 3", "there is no option --topk: did you mean --top? (see fedscape hessian --help)"),
        ("hessian a.pt --hutchinson", "there is no option --hutchinson: did you mean --trace-probes?"),
        (
            "train fedavg --learning-rate 1",
            "there is no option --learning-rate: did you mean --lr? (see fedscape train",
        ),
        ("train fedavg --learning_rate=1", "there is no option --learning_rate: did you mean --lr?"),
        ("train fedavg --epochs 1", "there is no option --epochs: did you mean --local-epochs?"),
        ("train fedavg --model-name lenet_fed", "there is no option --model-name: did you mean --model?"),
        ("train fedavg --dataset cifar10", "there is no option --dataset: did you mean --data?"),
        ("train fedavg --comm-rounds 3", "there is no option --comm-rounds: did you mean --rounds?"),
        ("train fedavg --xyzzy 3", "there is no option --xyzzy (see fedscape train fedavg --help)"),
        ("train fedavgg", "unknown algorithm 'fedavgg': did you mean 'fedavg'?"),
        ("surface a.pt --xnum 3", "there is no option --xnum: did you mean --points?"),
        ("compare a.pt b.pt --point 3", "there is no option --point: did you mean --points?"),
        ("figures mkae", "unknown command 'mkae': did you mean 'make'?"),
        ("data fetch cifar10", "Missing from fedscape data fetch: --data-dir DIR"),
        ("runs --group", "give at least one run directory (see fedscape runs --help)"),
        ("runs none", "there is no run directory none"),
        ("hessian --tyro-print-completion bash", "there is no option --tyro-print-completion: `fedscape completion"),
        ("completion tcsh", "there is no completion for 'tcsh': give bash or zsh"),
    ],
)
def test_a_mistake_is_one_sentence_with_what_was_meant_and_the_name_that_was_typed(line, sentence, capsys):
    code, out, err = said(capsys, *line.split())
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_each_word_of_another_program_has_a_meaning_here():
    from landscape.terminal.options import _MEANT

    every = {name for names in NAMES.values() for name in names}
    assert set(_MEANT) - every <= {"--checkpoints"}
    for ours, others in _MEANT.items():
        for program, names in NAMES.items():
            clash = {f"--{word}" for word in others} & names
            assert not (clash and ours in names and misspelt(list(clash), options(*KINDS[program]))), (ours, program)


def test_as_python_m_the_same_words_name_python_m(capsys):
    with pytest.raises(SystemExit):
        analysis.hessian.__main__.main(["--help"])
    assert capsys.readouterr().out.startswith("usage: python -m analysis.hessian CKPT [CKPT ...] [OPTIONS]\n")
    with pytest.raises(FedscapeError, match=r"did you mean --top\? \(see python -m analysis.hessian --help\)"):
        analysis.hessian.__main__.main(["a.pt", "--topk", "3"])


def _python(code: str, **options: object) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = """
import contextlib, io, sys
from fedscape import command_line
for line in {lines!r}:
    quietly = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quietly[0], quietly[1], contextlib.suppress(SystemExit):
        command_line(line.split())
print(*sys.modules)
"""


def test_what_is_said_of_commands_needs_no_torch():
    lines = [
        "",
        "--help",
        "--version",
        "nothing",
        *(name for name in COMMANDS if name not in ("algorithms", "partition", "demo")),
    ]
    loaded = set(_python(LOADED.format(lines=lines)).split())
    assert "landscape.terminal.guides" in loaded
    assert not loaded & {"torch", "numpy", "tyro", "rich", "analysis.hessian", "trainers.settings"}


def test_help_loads_no_statistics_no_drawing_and_no_learning_library():
    """Of ``figures`` those commands alone that make the papers' pictures load what draws them."""
    names = [
        "hessian",
        "corruptions",
        "alignment",
        "train fedavg",
        "runs",
        "algorithms",
        "partition",
        "compare",
        "demo",
        "data fetch",
    ]
    lines = [f"{name} {word}" for name in names for word in ("--help", "--help-all")]
    loaded = set(_python(LOADED.format(lines=lines)).split())
    assert {"torch", "tyro", "analysis.hessian.options"} <= loaded
    heavy = {"scipy.stats", "scipy.special", "scipy.linalg", "scipy.sparse", "scipy.interpolate", "scipy.ndimage"}
    assert not loaded & (heavy | {"sklearn", "matplotlib", "h5py", "rich", "PIL", "pyhessian", "pandas"})


EDITABLE = """
import importlib.util, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if path is None:
            return importlib.machinery.PathFinder.find_spec(name, [{home!r}])

sys.path[:] = [entry for entry in sys.path if entry != {home!r}]
sys.meta_path.append(Finder())
from fedscape import command_line
sys.exit(command_line())
"""


@pytest.fixture
def hostile(tmp_path) -> Path:
    """A folder with files that are called like our packages, and an algorithm of one's own."""
    for name in ("analysis", "figures", "trainers", "landscape"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom trainers import Algorithm\n\n\n"
        '@dataclass(frozen=True)\nclass Mine(Algorithm):\n    """Plain steps."""\n\n'
        '    twist: float = 1.0\n    """a twist"""\n'
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("form", ["script", "module", "editable"])
def test_own_files_called_like_our_packages_do_not_stand_in_for_them(form, hostile, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    script = (
        tmp_path_factory.mktemp("bin") / "fedscape"
    )  # as pip writes it: its own folder is first, not the current one
    script.write_text("import sys\nfrom fedscape import command_line\nsys.exit(command_line())\n")
    if form == "editable":  # a finder that is asked after the path knows where we are, and the path does not
        monkeypatch.delenv("PYTHONPATH")
        script.write_text(EDITABLE.format(home=str(REPOSITORY)))
    start = [sys.executable, *(["-m", "fedscape"] if form == "module" else [script])]
    for words, told in (
        (["hessian", "--help"], "usage: fedscape hessian"),
        (["compare", "--help"], "usage: fedscape compare"),
        (["train", "mine:Mine", "--help"], "--twist"),
    ):
        done = subprocess.run([*start, *words], cwd=hostile, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout


@pytest.fixture(scope="module")
def completion() -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert command_line(["completion", "bash"]) == 0
    return out.getvalue()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("fedscape hess", "hessian"),
        ("fedscape train feda", "fedavg fedavgm fedadam fedadagrad fedasam fedacg"),
        ("fedscape train fedasam --rh", "--rho"),
        ("fedscape hessian runs/a --to", "--top --tolerance"),
        ("fedscape compare a b --poi", "--points"),
        ("fedscape figures make --sca", "--scale"),
        ("fedscape hessian runs/a runs", ""),  # files, which the shell offers
    ],
)
def test_the_shell_completes_commands_and_options_of_fedscape_alone(words, completed, completion):
    assert "python" not in completion
    assert re.findall(r"^complete .*", completion, re.M) == ["complete -o default -F _fedscape fedscape"]
    line = f'COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _fedscape; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{completion}\n{line}"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == completed.split()


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    settings = Settings(rounds=1, clients=4, per_round=4, local_epochs=1, save_clients=True, device="cpu")
    train(FedAvg(), settings, out=out)
    return out


def test_a_run_directory_is_its_checkpoint_in_python(run_directory, tmp_path):
    checkpoint = run_directory / "ckpt.pt"
    assert open_checkpoint(run_directory).path == checkpoint
    assert open_checkpoint(f"{run_directory}@3").client == 3
    same = (Landscape.from_checkpoint(which, samples=50, device="cpu").value() for which in (run_directory, checkpoint))
    assert len(set(same)) == 1
    with pytest.raises(
        FedscapeError, match=r"is a directory without ckpt\.pt: give a checkpoint file, or a run directory"
    ):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "hessian {run} --top 1 --no-trace --samples 50 --json out.json",
        "hessian {run}@2 --top 1 --no-trace --samples 50 --json out.json",
        "hessian {run} --top 1 --no-trace --sharpness 0.1 --layers --per-client --clients 0 --json out.json",
        "hessian {run} --top 1 --no-trace --rounds --samples 50 --json out.json",
        "hessian {run} --top 1 --no-trace --samples 50 --compare-pyhessian --json out.json",
        "surface {run} --points 3 --samples 50 --json out.json",
        "surface {run} {run}@1 --plane line --points 3 --samples 50 --json out.json",
        "surface {run} {run}@1 {run}@2 --plane three --points 3 --samples 50 --json out.json",
        "alignment {run} --parts gradients --out out",
        "corruptions {run} --generate --corruptions fog --severities 1 --samples 50 --out out",
        "compare {run} {run}@1 --top 1 --points 3 --samples 50 --probes 2 --steps 5 --out out",
        "report {run} {run}@1 --top 1 --without surfaces clients --samples 50 --probes 2 --steps 5 --out out.html",
        "runs {run} --json out.json",
    ],
)
def test_every_command_takes_a_run_directory_for_its_checkpoint(line, run_directory, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = sorted(run_directory.rglob("*"))
    words = line.format(run=run_directory).split()
    code, _, err = said(capsys, *words, *(["--device", "cpu", "--quiet"] if words[0] != "runs" else []))
    assert code == 0, err
    assert (tmp_path / words[-1]).exists()
    assert sorted(run_directory.rglob("*")) == before  # nothing is written there


@pytest.mark.parametrize("command", ["hessian", "surface", "corruptions --generate --out out", "compare none"])
def test_a_folder_without_a_checkpoint_is_refused_in_a_sentence(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none").mkdir()
    name, *rest = command.split()
    code, _, err = said(capsys, name, "none", *rest)
    assert code == 2
    assert err == "error: none is a directory without ckpt.pt: give a checkpoint file, or a run directory\n"


def test_a_surface_never_replaces_the_run_that_it_is_of(run_directory, capsys):
    code, _, err = said(capsys, "surface", run_directory, "--out", run_directory / "ckpt.pt", "--fresh")
    assert code == 2
    assert "was a name forgotten? it ends in .pt" in err


def test_a_limit_of_files_that_are_read_is_raised_by_an_option_of_every_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDSCAPE_MAX_BYTES", "0")  # so that what the command sets is undone
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"padding": "x" * 2000}))
    monkeypatch.setattr("landscape.storage.limits.JSON", 1000)
    monkeypatch.setattr("landscape.storage.reading.read_text.__kwdefaults__", {"limit": 1000})
    code, _, err = said(capsys, "hessian", file, "--replot")
    size = file.stat().st_size
    assert (code, f"raise the limit with --max-bytes {size}" in err) == (2, True)
    for option in (["--max-bytes", "5000"], ["--max-bytes=5000"]):
        monkeypatch.setenv("FEDSCAPE_MAX_BYTES", "0")
        code, _, err = said(capsys, "hessian", file, "--replot", *option)
        assert (code, "holds no Hessian report" in err) == (2, True), err
    code, _, err = said(capsys, "hessian", file, "--replot", "--max-bytes", "many")
    assert (code, err) == (2, "error: --max-bytes is 'many': give a number of bytes\n")
    assert "--max-bytes N" in said(capsys, "hessian", "--help-all")[1]
