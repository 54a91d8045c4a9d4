"""What every command does, with examples: all that is said of it before PyTorch is loaded.

A guide is shown where a command is given no arguments, and begins its ``--help``.  The commands themselves are in
floors above this one, so that here are their names and words alone; ``tests/test_commands.py`` holds them against the
commands.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from landscape.terminal.program import spoken


@dataclass(frozen=True)
class Guide:
    """What a command does, how it is used, and its commonest options.

    Attributes:
        program: its name, as ``python -m`` has it.
        does: what it does, in a sentence.
        examples: words that follow the program, and what these do.
        common: the options that ``--help`` shows.
        follows: what follows the program.
    """

    program: str
    does: str
    examples: Sequence[tuple[str, str]] = ()
    common: Sequence[str] = ()
    follows: str = "[OPTIONS]"

    @property
    def needs_arguments(self) -> bool:
        """Whether the command does nothing without; else its first example has none."""
        return all(words for words, _ in self.examples)

    def text(self) -> str:
        """Usage, what it does, the examples."""
        lines = [(spoken(f"{self.program} {words}".strip()), what) for words, what in self.examples]
        width = max((len(line) for line, _ in lines), default=0)
        shown = [f"  {line.ljust(width)}    {what}" for line, what in lines]
        if any(len(line) > screen_width() for line in shown):
            shown = [part for line, what in lines for part in (f"  {line}", f"      {what}")]
        usage = spoken(f"usage: {self.program} {self.follows}".strip())
        return "\n".join([usage, "", *textwrap.wrap(self.does, screen_width()), "", *shown])

    def alone(self) -> str:
        """What is shown where no arguments are given."""
        return f"{self.text()}\n\n{spoken(self.program)} --help has more"


def screen_width() -> int:
    """How wide help is: as the terminal, within what is easily read."""
    return max(60, min(100, shutil.get_terminal_size((100, 24)).columns))


_DRAWN = ("--style", "--venue")

_ALL = (
    Guide(
        "python -m trainers",
        "Train a model with a federated algorithm; write checkpoints and metrics to a run directory.",
        (
            ("fedavg --out runs/fedavg", "FedAvg on the embedded digits"),
            ("fedasam --rho 0.7 --eta 0.2 --rounds 200", "FedASAM, into runs/fedasam"),
            ("fedasam --help", "an algorithm's own hyper-parameters and the settings"),
        ),
        (
            "--data", "--model", "--partition", "--clients", "--per-round", "--rounds", "--local-epochs",
            "--batch-size", "--lr", "--seed", "--device", "--protocol", "--out", "--resume", "--ranks", "--config",
        ),
        "ALGORITHM [OPTIONS]",
    ),
    Guide(
        "python -m trainers report",
        "Compare runs in a table: accuracy, rounds and traffic to targets, drift, time.",
        (
            ("runs/fedavg runs/fedasam", "a row a run"),
            ("runs/* --targets 0.8 0.9", "with the first round at 80 and 90 % accuracy"),
            ("runs/* --group --rows algorithm --columns partition", "one number, mean ± deviation over the seeds"),
        ),
        (
            "--targets", "--group", "--rows", "--columns", "--value", "--where", "--wide", "--csv", "--json", "--latex",
            "--markdown",
        ),
        "RUN [RUN ...] [OPTIONS]",
    ),
    Guide(
        "python -m trainers list",
        "List the algorithms: what each keeps, sends and combines with, and its paper.",
        (("", "all of them"),),
        (),
        "",
    ),
    Guide(
        "python -m trainers partition",
        "Show how partitions divide a data set over clients, without training.",
        (
            ("", "Dirichlet 0.1 on the embedded digits"),
            ("--partition dirichlet:0.1 iid --clients 50", "two partitions side by side"),
            ("--partition pathological:2 --out partition.png", "with a picture"),
        ),
        ("--partition", "--data", "--data-dir", "--clients", "--seed", "--out", "--json"),
    ),
    Guide(
        "python -m analysis.hessian",
        "The Hessian of the loss at a checkpoint: largest eigenvalues, λ1/λ5, trace, spectral density.",
        (
            ("runs/fedasam", "a run's last checkpoint, on the screen"),
            ("runs/fedasam --top 20 --density --out hessian", "with picture and numbers in hessian/"),
            ("runs/fedavg runs/fedasam --csv table.csv", "several, in one table"),
        ),
        (
            "--top", "--density", "--no-trace", "--layers", "--per-client", "--rounds", "--samples", "--split",
            "--data-dir", "--device", "--seed", "--verify", "--json", "--csv", "--out",
        ),
        "CKPT [CKPT ...] [OPTIONS]",
    ),
    Guide(
        "python -m analysis.surface",
        "The loss and the accuracy in a plane, or along a line, through checkpoints; measured, kept and drawn.",
        (
            ("runs/fedasam --plot surface.png", "a random plane, 51² points"),
            ("runs/fedavg runs/fedasam --plane line --test --plot line.png", "between two models"),
            ("runs/fedasam --plane pca --out pca.h5 --html pca.html", "the run's path, as a page to turn"),
        ),
        (
            "--plane", "--points", "--test", "--lambda-max", "--samples", "--data-dir", "--model", "--data",
            "--device", "--workers", "--seed", "--out", "--plot", "--html", "--json",
        ),
        "CKPT [CKPT ...] [OPTIONS]",
    ),
    Guide(
        "python -m analysis.alignment",
        "Clients' losses beside the federation's: gradients, ascent steps, eigenspaces of the Hessians, local models.",
        (
            ("runs/fedavg runs/fedsam --out alignment", "two runs' last models, side by side"),
            ("runs/fedsam --rounds --clients all --out alignment", "every round that was kept, all clients"),
            ("runs/fedsam --parts gradients perturbations used --rho 0.1 --out alignment", "without the Hessians"),
        ),
        (
            "--out", "--rounds", "--clients", "--parts", "--top", "--rho", "--ascent", "--weights", "--samples",
            "--data-dir", "--device", "--seed",
        ),
        "RUN [RUN ...] --out DIR [OPTIONS]",
    ),
    Guide(
        "python -m analysis.corruptions",
        "Loss and accuracy on corrupted test images (CIFAR-10-C, CIFAR-100-C, or generated), by severity.",
        (
            ("runs/fedavg runs/fedasam --data-dir data --out corrupted", "on the files of CIFAR-10-C"),
            ("runs/fedavg --generate --out generated", "on any images, corrupted here"),
            ("runs/fedavg --generate --corruptions fog --out fog", "one corruption"),
        ),
        (
            "--out", "--corruptions", "--severities", "--generate", "--samples", "--data-dir", "--model", "--data",
            "--device", "--seed",
        ),
        "CKPT [CKPT ...] --out DIR [OPTIONS]",
    ),
    Guide(
        "python -m landscape.data",
        "The data sets: what there is, downloading, checking.",
        (
            ("list", "every data set in a line"),
            ("fetch cifar10 --data-dir data", "download and check against the published checksum"),
            ("verify cifar10 --data-dir data", "check what is there"),
        ),
        (),
        "COMMAND",
    ),
    Guide("python -m landscape.data list", "List the data sets, a line each.", (("", "all of them"),), (), ""),
    Guide(
        "python -m landscape.data fetch",
        "Download a data set, check it against its published checksum, unpack it.",
        (
            ("cifar10 --data-dir data", "into data/cifar-10-batches-py"),
            ("emnist --data-dir data", "into data/EMNIST"),
            ("landmarks --data-dir data", "the tables; says where the images are"),
        ),
        ("--data-dir",),
        "NAME --data-dir DIR",
    ),
    Guide(
        "python -m landscape.data verify",
        "Compare a data set's files with their published checksums; exit code 2 where one differs.",
        (
            ("cifar10 --data-dir data", "those in data/cifar-10-batches-py"),
            ("mnist --data-dir data", "those in data/MNIST"),
            ("tiny_imagenet --data-dir data", "those in data/tiny-imagenet-200"),
        ),
        ("--data-dir",),
        "NAME --data-dir DIR",
    ),
    Guide(
        "python -m figures",
        "Make the figures and tables of the papers, and compare checkpoints.",
        (
            ("list", "what there is, its state and its cost"),
            ("make flat-minima/F1", "one figure, at the smoke scale: minutes"),
            ("compare runs/fedavg runs/fedasam", "two runs on one sheet"),
        ),
        (),
        "COMMAND",
    ),
    Guide(
        "python -m figures list",
        "List figures and tables: what each shows, what it needs, how far it is, what it costs.",
        (
            ("", "all of them, at the smoke scale"),
            ("flat-minima man/F4", "those of a paper, and two of another"),
            ("--scale small --out elsewhere", "on real CIFAR-10; the state of those kept in elsewhere/"),
        ),
        ("--scale", "--data", "--model", "--seeds", "--rounds", "--out"),
        "[ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures make",
        "Make figures and tables of the papers; what is there is kept, what was interrupted goes on.",
        (
            ("flat-minima/F1", "one, at the smoke scale: minutes on the embedded digits"),
            ("flat-minima man/F4 --scale small --data-dir data --jobs 2", "on real CIFAR-10: hours"),
            ("all --dry-run", "what would be made, and what it costs"),
        ),
        (
            "--scale", "--data", "--model", "--seeds", "--rounds", "--choose", "--out", "--device", "--data-dir",
            "--jobs", "--dry-run", *_DRAWN,
        ),
        "ID [ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures numbers",
        "Give what figures and tables of the papers show as numbers: netCDF, JSON or CSV.",
        (
            ("fedsmoo/F3", "CSV on the screen: a line a number, with its coordinates"),
            ("fedsmoo/F3 --to F3.nc", "netCDF with coordinates and units, which xarray opens"),
            ("man --to man.json --jobs 2", "all of a paper; what is missing is made"),
        ),
        (
            "--to", "--scale", "--data", "--model", "--seeds", "--rounds", "--choose", "--out", "--device",
            "--data-dir", "--jobs",
        ),
        "ID [ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures gallery",
        "Figures and tables on one page, gallery.html; those that are not there are made.",
        (
            ("", "all of them, in paper-figures/gallery.html: a quarter of an hour of one core"),
            ("flat-minima/F1 man", "one of a paper, and those of another"),
            ("--scale small", "those on real CIFAR-10"),
        ),
        ("--scale", "--data", "--model", "--seeds", "--rounds", "--out", *_DRAWN),
        "[ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures status",
        "Tell how far figures and tables are, and what failed and why.",
        (
            ("", "all of them"),
            ("flat-minima", "those of one paper"),
            ("--scale small", "those on real CIFAR-10"),
        ),
        ("--scale", "--data", "--model", "--seeds", "--rounds", "--out"),
        "[ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures show",
        "Tell all of figures and tables: what they show, what is chosen, the paper's numbers.",
        (
            ("flat-minima/F1", "one of them"),
            ("man", "those of one paper"),
            ("man/F4 --scale small", "on real CIFAR-10"),
        ),
        ("--scale", "--data", "--model", "--seeds", "--rounds", "--out"),
        "ID [ID ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures sweep",
        "Train the runs of a grid: every combination of options in a TOML file; finished ones are kept.",
        (
            ("grid.toml --dry-run", "the runs, how far each is, and the hours that are left"),
            ("grid.toml --jobs 4", "four at a time, in sweep/store"),
            ("grid.toml --ray local --out ablation", "as tasks of Ray on this machine, in ablation/store"),
        ),
        ("--out", "--dry-run", "--device", "--data-dir", "--jobs", "--ray", "--gpus"),
        "GRID.toml [OPTIONS]",
    ),
    Guide(
        "python -m figures curves",
        "Draw test accuracy and loss of runs over the rounds: a line with a band for each group of seeds.",
        (
            ("sweep/grid.json", "the runs of a grid, in curves.png"),
            ("runs/* --band range --out curves.pdf", "any runs, bands from the smallest to the largest"),
            ("sweep/grid.json --where partition=iid --csv iid.csv", "some of them, and the numbers"),
        ),
        ("--where", "--band", "--out", "--csv", *_DRAWN),
        "RUN [RUN ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures compare",
        "Compare two to seven checkpoints on one sheet: training, eigenvalues, densities, loss surfaces.",
        (
            ("runs/fedavg runs/fedasam", "the sheet and the table, in compare/"),
            ("runs/fedavg runs/fedasam runs/scaffold --out three", "in three/"),
            ("runs/fedavg runs/fedasam --points 11 --samples 500", "quickly, on 500 samples"),
        ),
        (
            "--out", "--top", "--points", "--span", "--samples", "--split", "--data-dir", "--device", "--seed",
            "--quiet", *_DRAWN,
        ),
        "CKPT [CKPT ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures report",
        "Write one page of models to pass around: verdict, what to trust, spectra, surfaces, clients.",
        (
            ("runs/*", "all runs, in report.html; those that differ in their seed alone are a group"),
            ("runs/* --without surfaces clients --samples 500", "quickly, on 500 samples"),
            ("runs/* --alignment alignment", "with what 'fedscape alignment runs/* --out alignment' measured"),
        ),
        (
            "--out", "--top", "--points", "--without", "--curvature-map", "--alignment", "--samples", "--split",
            "--data-dir", "--device", "--seed", "--quiet", "--force",
        ),
        "CKPT [CKPT ...] [OPTIONS]",
    ),
    Guide(
        "python -m figures contact-sheet",
        "Draw images of a data set with their classes, to see whether it is what it should be.",
        (
            ("digits", "into contact-sheet.png"),
            ("cifar10 --data-dir data --images 64", "more of them"),
            ("mine.npz --split test --out test.png", "your own test data"),
        ),
        ("--data-dir", "--split", "--images", "--out", *_DRAWN),
        "DATA [OPTIONS]",
    ),
    Guide(
        "python -m figures demo",
        "Train FedAvg and FedASAM on the embedded digits, measure both, draw the comparison (a minute or two).",
        (
            ("", "into demo/"),
            ("--out elsewhere", "into elsewhere/"),
            ("--quiet", "without progress bars"),
        ),
        ("--out", "--quiet"),
    ),
)  # fmt: skip

GUIDES = {guide.program: guide for guide in _ALL}
"""By the name of the program."""
