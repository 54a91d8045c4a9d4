"""Parts on the command line: what is taken, what is refused and why."""

import json
from dataclasses import dataclass, fields
from typing import Literal

import pytest

from landscape import FedscapeError
from landscape.terminal.command import run
from trainers import (
    ALGORITHMS,
    ASAM,
    GSAM,
    LESAM,
    MAN,
    SAM,
    SOL,
    SWA,
    Adagrad,
    Adam,
    Affine,
    ClientPrivacy,
    Extrapolation,
    FedASAM,
    FedGSAM,
    FedSAM,
    Linear,
    LocalAdamW,
    LocalMomentum,
    Momentum,
    Nesterov,
    Normalised,
    Parts,
    Relaxed,
    Yogi,
)
from trainers.__main__ import main, read
from trainers.flags import FLAGS, Flag


def parts(line):
    return read(line.split()).parts


def test_no_flags_are_no_parts():
    for name in ALGORITHMS:
        assert parts(name) == Parts()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--ascent sam", Parts(ascent=FedSAM().ascent)),
        ("--ascent asam", Parts(ascent=FedASAM().ascent)),
        ("--ascent gsam", Parts(ascent=FedGSAM().ascent)),
        ("--ascent lesam --rho 0.3", Parts(ascent=LESAM(0.3))),
        ("--ascent sol --rho 0.3", Parts(ascent=SOL(0.3))),
        (
            "--ascent sol --sol-temperature 2 --sol-strength adaptive",
            Parts(ascent=SOL(temperature=2.0, strength="adaptive")),
        ),
        ("--dp 0.5", Parts(dp=ClientPrivacy(0.5))),
        ("--dp 0", Parts(dp=ClientPrivacy(0.0))),
        ("--dp 0.5 --dp-clip 3 --dp-delta 0.01", Parts(dp=ClientPrivacy(0.5, 3.0, 0.01))),
        ("--ascent sam --rho 0.3", Parts(ascent=SAM(0.3))),
        ("--ascent asam --rho 0.3 --eta 0.4", Parts(ascent=ASAM(0.3, 0.4))),
        ("--ascent gsam --rho 0.3 --gsam-alpha 0.4", Parts(ascent=GSAM(0.3, 0.4))),
        ("--man 0.15", Parts(man=MAN(0.15))),
        ("--man 0.15 --man-variant half --man-layers 1 3*", Parts(man=MAN(0.15, ("1", "3*"), half=True))),
        ("--swa", Parts(swa=SWA())),
        ("--swa --swa-start 0.5 --swa-cycle 3 --swa-lr 0.01", Parts(swa=SWA(0.5, 3, 0.01))),
        ("--mixup", Parts(mixup=True)),
        ("--cutout", Parts(cutout=16)),
        ("--cutout --cutout-size 4", Parts(cutout=4)),
        ("--server-optimizer momentum", Parts(server_optimizer=Momentum())),
        ("--server-optimizer momentum --server-beta 0.5", Parts(server_optimizer=Momentum(0.5))),
        ("--server-optimizer adam", Parts(server_optimizer=Adam())),
        (
            "--server-optimizer yogi --server-beta1 0.1 --server-beta2 0.2 --server-tau 0.3 --server-optimizer-lr 0.4",
            Parts(server_optimizer=Yogi(0.1, 0.2, 0.3, 0.4)),
        ),
        ("--server-optimizer adagrad --server-tau 0.3", Parts(server_optimizer=Adagrad(tau=0.3))),
        ("--server-optimizer nesterov --server-beta 0.5", Parts(server_optimizer=Nesterov(0.5))),
        (
            "--server-optimizer extrapolation --server-eps 0.1 --server-eps-decay 0.9",
            Parts(server_optimizer=Extrapolation(0.1, 0.9)),
        ),
        ("--server-optimizer normalised", Parts(server_optimizer=Normalised())),
        ("--server-optimizer normalised --server-beta 0.5", Parts(server_optimizer=Normalised(0.5))),
        ("--local-schedule linear", Parts(local_schedule=Linear())),
        ("--local-schedule linear --local-schedule-end 0.5", Parts(local_schedule=Linear(0.5))),
        ("--start relaxed", Parts(start=Relaxed())),
        ("--start relaxed --start-beta 0.5 --start-average models", Parts(start=Relaxed(0.5, "models"))),
        ("--adversary affine", Parts(adversary=Affine())),
        (
            "--adversary affine --adversary-lam 0.3 --adversary-lr 0.4 --adversary-structure channel",
            Parts(adversary=Affine(0.3, 0.4, "channel")),
        ),
        ("--local-optimizer sgd", Parts()),
        ("--local-optimizer momentum", Parts(local_optimizer=LocalMomentum())),
        (
            "--local-optimizer momentum --local-momentum 0.5 --local-nesterov --local-state kept",
            Parts(local_optimizer=LocalMomentum(0.5, True, "kept")),
        ),
        (
            "--local-optimizer adamw --local-beta1 0.1 --local-beta2 0.2 --local-eps 0.3 --local-state kept",
            Parts(local_optimizer=LocalAdamW(0.1, 0.2, 0.3, "kept")),
        ),
    ],
)
def test_flags_are_the_fields_of_the_parts(line, expected):
    assert parts(f"scaffold {line}") == expected


@pytest.mark.parametrize("name", ["fedsam", "fedasam", "fedgsam", "mofedsam", "fedgamma", "fedspeed", "fedlesam"])
def test_a_flag_that_an_algorithm_has_too_is_the_algorithms(name):
    command = read([name, "--rho", "0.123"])
    assert command.algorithm.rho == 0.123
    assert command.parts == Parts()


def test_the_line_of_the_issue(tmp_path):
    line = "scaffold --ascent asam --rho 0.7 --eta 0.2 --man 0.15 --swa --mixup --swa-cycle 2 --rounds 8 --quiet --out"
    assert run(lambda: main([*line.split(), str(tmp_path)])) == 0
    assert json.loads((tmp_path / "config.json").read_text())["parts"] == {
        "ascent": {"name": "asam", "rho": 0.7, "eta": 0.2},
        "man": {"name": "man", "zeta": 0.15, "layers": ["*"], "half": False, "variance": []},
        "swa": {"name": "swa", "start": 0.75, "cycle": 2, "lr": 0.0001, "variant": "paper"},
        "mixup": True,
    }
    assert (tmp_path / "swa.pt").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fedavg --rho 0.7", "--rho is an option of --ascent: give that too"),
        ("fedavg --swa-cycle 5", "--swa-cycle is an option of --swa: give that too"),
        ("fedavg --man-layers x", "--man-layers is an option of --man ZETA: give that too"),
        ("fedavg --man-variant half", "--man-variant is an option of --man ZETA: give that too"),
        ("fedavg --cutout-size 4", "--cutout-size is an option of --cutout: give that too"),
        ("fedavg --server-beta 0.5", "--server-beta is an option of --server-optimizer: give that too"),
        ("fedavg --ascent sam --eta 0.2", "--eta is no option of --ascent sam"),
        ("fedavg --ascent asam --gsam-alpha 0.2", "--gsam-alpha is no option of --ascent asam"),
        ("fedavg --server-optimizer adam --server-beta 0.5", "--server-beta is no option of --server-optimizer adam"),
        ("fedavg --ascent sgd", "invalid choice 'sgd'"),
        ("fedavg --ascent sam --rho -1", "SAM needs a radius ρ of 0 or more, not rho=-1.0"),
        ("fedavg --ascent asam --eta nan", "ASAM needs ρ and η of 0 or more"),
        ("fedavg --ascent gsam --gsam-alpha -1", "GSAM needs ρ and α of 0 or more"),
        ("fedavg --man -1", "MAN's ζ is -1.0: it must be 0 or more"),
        ("fedavg --cutout --cutout-size 0", "--cutout-size is 0: give at least 1"),
        ("fedlesam --alpha 0.1", "FedLESAM on fedavg has no alpha: leave out --alpha, or give --base feddyn"),
        (
            "fedlesam --base feddyn --server-lr 0.5",
            "FedLESAM on feddyn has no server_lr: leave out --server-lr, or give --base fedavg or scaffold",
        ),
        ("fedavg --dp-clip 0.1", "--dp-clip is an option of --dp NOISE: give that too"),
        ("fedavg --dp -1", "ClientPrivacy needs a finite noise σ of 0 or more"),
        ("fedavg --ascent sam --sol-temperature 2", "--sol-temperature is no option of --ascent sam"),
        ("fedavg --ascent sam --sol-strength adaptive", "--sol-strength is no option of --ascent sam"),
        ("fedavg --ascent sol --sol-temperature 0", "SOL needs a radius ρ of 0 or more, T above 0"),
        ("fedavg --adversary-lr 0.1", "--adversary-lr is an option of --adversary: give that too"),
        ("fedavg --adversary affine --adversary-lr -1", "Affine needs λ and η₂ of 0 or more"),
        ("fedsam --rho -1", "FedSAM: SAM needs a radius ρ of 0 or more, not rho=-1.0"),
        ("mofedsam --beta 0", "MoFedSAM: FedCM needs α above 0 and at most 1, not alpha=0.0"),
        ("fedavg --swa --swa-start 1", "SWA needs a start from 0 to below 1"),
        ("fedavg --local-state kept", "--local-state is an option of --local-optimizer: give that too"),
        ("fedavg --local-optimizer sgd --local-momentum 0.9", "--local-momentum is no option of --local-optimizer sgd"),
        ("fedavg --local-optimizer adamw --local-nesterov", "--local-nesterov is no option of --local-optimizer adamw"),
        ("fedavg --local-optimizer momentum --local-momentum 1", "LocalMomentum needs β from 0 to below 1"),
        ("fedavg --local-optimizer momentum --local-momentum 0 --local-nesterov", "LocalMomentum needs β above 0 for"),
        ("fedavg --local-optimizer adamw --local-eps 0", "LocalAdamW needs ε above 0"),
        ("fedavg --server-optimizer adam --server-tau 0", "Adam needs τ and a rate η_g above 0"),
        ("fedavg --server-optimizer nesterov --server-beta 1", "Nesterov needs β from 0 to below 1"),
        ("fedavg --server-optimizer extrapolation --server-eps -1", "Extrapolation needs ε of 0 or more"),
        ("fedavg --server-optimizer extrapolation --server-eps-decay 2", "needs a decay of ε above 0 and at most 1"),
        ("fedavg --server-optimizer normalised --server-beta -1", "Normalised needs β from 0 to below 1"),
        ("fedavg --server-eps 1", "--server-eps is an option of --server-optimizer: give that too"),
        ("fedavg --local-schedule linear --local-schedule-end -1", "Linear needs an end ρ of 0 or more"),
        ("fedavg --start-beta 1", "--start-beta is an option of --start: give that too"),
        ("fedavg --start relaxed --start-beta -1", "Relaxed needs β of 0 or more"),
        ("fedinit --beta -1", "FedInit: Relaxed needs β of 0 or more"),
    ],
)
def test_options_without_their_part_and_numbers_without_sense_are_refused(line, sentence):
    with pytest.raises(FedscapeError) as error:
        read(line.split())
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("fedsam --ascent asam --rho 0.7 --eta 0.2", "FedSAM has its own ascent (SAM): two make no sense"),
        ("fedasam --ascent sam", "FedASAM has its own ascent (ASAM): two make no sense"),
        ("fedgamma --ascent sam", "FedGAMMA has its own ascent (SAM)"),
        ("fedsmoo --ascent sam --rho 0.1", "FedSMOO cannot be combined with --ascent: FedSMOO perturbs its own way"),
        ("fedlesam --ascent sam", "FedLESAM has its own ascent (LESAM): two make no sense"),
        ("fedcm --dp 1", "FedCM cannot be combined with --dp: Δ is divided by the mean number of local steps"),
        ("fedavgm --server-optimizer adam", "FedAvgM has its own server optimizer (Momentum)"),
        ("fedrobust --adversary affine", "FedRobust has its own adversary (Affine): two make no sense, leave out"),
        ("fedlesam --base feddyn --server-optimizer adam", "FedLESAM cannot be combined with --server-optimizer: its"),
        ("feddyn --server-optimizer momentum", "FedDyn cannot be combined with --server-optimizer: its server step"),
        ("centralised --server-optimizer adam", "Centralised cannot be combined with --server-optimizer: with one"),
        ("fednova --local-optimizer adamw", "FedNova with Normalised on the server cannot be combined with this --loc"),
        ("fednova --local-optimizer momentum --local-state kept", "a_i counts the gradients in d_i, a sum of this"),
        ("fedinit --start relaxed", "FedInit has its own start (Relaxed): two make no sense, leave out --start"),
        ("fedswa --local-schedule linear", "FedSWA has its own local schedule (Linear): two make no sense, leave out"),
        ("fedavg --man 0.1 --model tests.trainers.user_code:tiny", "the model has no activation that MAN could"),
        ("fedavg --man 0.1 --man-layers nothing", "no layer with an activation matches 'nothing': there are 1, 3"),
        ("fedavg --swa --rounds 5", "so SWA would average nothing"),
        ("fedavg --cutout", "a cutout square of 16 pixels would hide whole images of 8 × 8"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_the_reason(line, sentence, tmp_path, capsys):
    assert run(lambda: main([*line.split(), "--quiet", "--out", str(tmp_path / "run")])) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class Ball:
    radius: float = 0.5
    """radius of the ball"""
    norm: Literal["l2", "max"] = "l2"
    """norm of the space"""


@dataclass(frozen=True)
class Box(Ball):
    radius: float = 2.0
    corners: int = 4
    """number of corners"""


def shown(flag):
    """What ``--help`` shows of each argument: (metavar, help, words for the default)."""
    return {
        name: (told.metavar, told.help, told.help_behavior_hint)
        for name, annotated, _ in flag.arguments()
        for told in annotated.__metadata__
    }


def test_a_new_part_is_its_class_in_the_table():
    flag = Flag("noise", {"ball": Ball, "box": Box}, "where noise comes from", prefix="noise_", renamed={"norm": "p"})
    assert shown(flag) == {
        "noise": ("{ball,box}", "where noise comes from", "(default: none)"),
        "noise_radius": ("FLOAT", "radius of the ball", "(default: ball 0.5, box 2)"),
        "p": (None, "norm of the space", None),
        "noise_corners": ("INT", "number of corners", "(default: box 4)"),
    }
    assert flag.part({"noise": None, "p": "l2"}) is None
    assert flag.part({"noise": "box", "noise_radius": 1.0, "p": "max"}) == Box(1.0, "max")
    with pytest.raises(FedscapeError, match="--noise-corners is no option of --noise ball"):
        flag.part({"noise": "ball", "noise_corners": 4})


def test_every_field_of_every_part_has_a_flag():
    for flag in FLAGS:
        assert flag.name in Parts.__dataclass_fields__
        of_parts = {each.name for kind in flag.kinds.values() for each in fields(kind)}
        assert set(flag.options().values()) | {flag.number} - {""} == of_parts
    assert {flag.name for flag in FLAGS} == set(Parts.__dataclass_fields__)
