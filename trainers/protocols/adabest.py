"""AdaBest's code: fedsim (Varno et al.)."""

from trainers.protocols.protocol import Protocol, lines

_CLI, _LEARN = "fedsim_cli/fed_learn.py", "fedsim/distributed/centralized/training"

ADABEST = Protocol(
    "adabest",
    "https://github.com/varnio/fedsim",
    "5e2eba6",
    lines(
        clients=(500, f"{_CLI}:58"),
        per_round=(5, f"{_CLI}:73"),
        sampling=("exact", f"{_CLI}:65"),
        rounds=(100, f"{_CLI}:34"),
        local_epochs=(5, f"{_CLI}:99"),
        batch_size=(32, f"{_CLI}:114"),
        lr=(0.1, f"{_CLI}:137"),
        weight_decay=(0.001, f"{_CLI}:137"),
        clip=(1000.0, "fedsim/local/training/step_closures.py:16"),
        clip_at=("direction", "fedsim/local/training/step_closures.py:61-64"),
        clip_eps=(1e-6, "fedsim/local/training/step_closures.py:64"),
        eval_every=(1, f"{_CLI}:194-207"),
    ),
    {
        "adabest": lines(
            mu=(0.1, f"{_LEARN}/adabest.py:63"),
            beta=(0.85, f"{_LEARN}/adabest.py:64"),
            variant=("official", f"{_LEARN}/adabest.py:104, 111-144, 169"),
            weighting=("uniform", f"{_LEARN}/adabest.py:158"),
        ),
        "fedavg": lines(weighting=("samples", f"{_LEARN}/fedavg.py:189; utils.py:42-43")),
        "fedprox": lines(
            proximal=("half", f"{_LEARN}/fedprox.py:91"), weighting=("samples", f"{_LEARN}/utils.py:42-43")
        ),
        "feddyn": lines(
            alpha=(0.1, f"{_LEARN}/feddyn.py:61"),
            proximal=("half", f"{_LEARN}/feddyn.py:114"),
            sizes=("relative", f"{_LEARN}/feddyn.py:110"),
            weighting=("uniform", f"{_LEARN}/feddyn.py:159"),
        ),
    },
    left=(
        "AdaBest's mean batch size is that of all messages so far, those of the round's earlier clients among them; "
        "ours is of the rounds before, which is the same where clients' batches are equal",
        "batches are drawn with replacement, all of full size (training/fedavg.py); ours are shuffled passes",
    ),
)
