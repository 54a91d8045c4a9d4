"""The requeue script of ``docs``, with stand-ins for ``srun`` and ``scontrol``, requeues after 75 and nothing else."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import REPOSITORY
from tests.processes import free_port
from trainers.runs import read_runs

SCRIPT = REPOSITORY / "docs" / "slurm-requeue.sh"
PATIENCE = 300.0

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture
def cluster(tmp_path):
    """An environment with an ``srun`` that starts the command and an ``scontrol`` that writes down what it is told."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, line in (("srun", 'exec "$@"'), ("scontrol", f'echo "$@" >> "{tmp_path}/told"')):
        (tools / name).write_text(f"#!/bin/bash\n{line}\n")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SLURM_JOB_ID": "4242", "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def told(tmp_path):
    return (tmp_path / "told").read_text() if (tmp_path / "told").exists() else ""


@pytest.mark.parametrize(("code", "asked"), [(0, ""), (2, ""), (3, ""), (75, "requeue 4242\n"), (143, ""), (137, "")])
def test_only_work_that_goes_on_is_requeued(cluster, tmp_path, code, asked):
    ended = subprocess.run(
        ["bash", SCRIPT, "bash", "-c", f"exit {code}"], env=cluster, capture_output=True, check=False
    )
    assert (ended.returncode, told(tmp_path)) == (code, asked)


def start(cluster, out, rounds):
    words = ["-m", "trainers", "fedavg", "--clients", "4", "--per-round", "2", "--device", "cpu", "--quiet", "--resume"]
    line = ["bash", SCRIPT, sys.executable, *words, "--rounds", str(rounds), "--out", str(out)]
    return subprocess.Popen(
        line, env=cluster, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_training_that_the_scheduler_stops_is_requeued_and_goes_on(cluster, tmp_path, number):
    """The signal goes to all processes of the job, as SLURM sends it: the script must survive it to requeue."""
    out = tmp_path / "run"
    with start(cluster, out, 100_000) as job:
        begin = time.monotonic()
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_bytes():
            assert job.poll() is None and time.monotonic() - begin < PATIENCE  # noqa: PT018
            time.sleep(0.01)
        os.killpg(job.pid, number)
        said = job.communicate(timeout=PATIENCE)[1]
    assert job.returncode == 75
    assert said.startswith(f"stopped by {number.name} after round ")
    assert told(tmp_path) == "requeue 4242\n"
    rounds = read_runs([out])[0].rounds
    with start(cluster, out, rounds + 1) as job:  # as the requeued job does
        job.communicate(timeout=PATIENCE)
    assert (job.returncode, read_runs([out])[0].rounds) == (0, rounds + 1)
    assert told(tmp_path) == "requeue 4242\n"


RANK = REPOSITORY / "docs" / "slurm-rank.sh"
TWO_TASKS = """#!/bin/bash
# As srun --ntasks=2: the tasks' numbers, and the largest of their exit codes.
trap 'true' TERM USR1
for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NTASKS=2 "$@" & tasks[task]=$!; done
worst=0
for task in 0 1; do
    wait "${tasks[task]}"; code=$?
    while [ "$code" -gt 128 ] && kill -0 "${tasks[task]}" 2>/dev/null; do wait "${tasks[task]}"; code=$?; done
    [ "$code" -gt "$worst" ] && worst=$code
done
exit "$worst"
"""


@pytest.mark.slow
def test_the_ranks_of_a_job_are_requeued_together_and_go_on(cluster, tmp_path):
    (tmp_path / "tools" / "srun").write_text(TWO_TASKS)
    cluster |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    out = tmp_path / "run"

    def job(rounds):
        words = ["-m", "trainers", "scaffold", "--clients", "4", "--per-round", "2", "--device", "cpu", "--resume"]
        words += ["--quiet", "--rounds", str(rounds), "--out", str(out)]
        return subprocess.Popen(
            ["bash", SCRIPT, "bash", RANK, sys.executable, *words],
            env=cluster, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    with job(100_000) as first:
        begin = time.monotonic()
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_bytes():
            assert first.poll() is None and time.monotonic() - begin < PATIENCE  # noqa: PT018
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGUSR1)
        said = first.communicate(timeout=PATIENCE)[1]
    assert (first.returncode, told(tmp_path)) == (75, "requeue 4242\n")
    assert said.startswith("stopped by SIGUSR1 after round ")
    assert said.count("\n") == 1
    rounds = read_runs([out])[0].rounds
    with job(rounds + 1) as second:
        second.communicate(timeout=PATIENCE)
    assert (second.returncode, read_runs([out])[0].rounds) == (0, rounds + 1)
