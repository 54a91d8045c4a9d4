"""An iteration that keeps a state is stopped between products and goes on to the same values; one process has it."""

import os
import signal

import pytest

from analysis import extreme_eigenpairs
from landscape import FedscapeError
from landscape.storage.lock import LockedError, sole_writer
from landscape.storage.outputs import Output, check_outputs
from landscape.terminal.stopping import StoppedError, listening
from tests.analysis.hessian.spectrum.spectra import matrix


def stopping_after(products, number):
    """Called after each product: the signal comes while the iteration is at work."""

    def report(done, error):
        if done == products:
            os.kill(os.getpid(), number)

    return report


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_stopped_by_a_signal_it_goes_on_to_the_same_bits(tmp_path, number):
    options = {"k": 3, "tolerance": 1e-8}
    operator, _ = matrix("spread")
    whole = extreme_eigenpairs(operator, **options)
    state = tmp_path / "state.pt"
    with pytest.raises(StoppedError) as stopped, listening():
        extreme_eigenpairs(operator, **options, state=state, report=stopping_after(9, number))
    hint = f"the iteration so far is in {state}: the same command continues"
    assert (str(stopped.value), stopped.value.code) == (f"stopped by {number.name} after 9 products: {hint}", 75)
    check_outputs([Output("--state", state, "state", ("question",), continued=True)])  # known again as ours
    before = operator.products
    again = extreme_eigenpairs(operator, **options, state=state)
    assert (again.values == whole.values).all()
    assert (again.bounds == whole.bounds).all()
    assert operator.products - before == whole.products - 9
    assert list(tmp_path.iterdir()) == []


def test_without_a_state_it_ends_at_once():
    operator, _ = matrix("spread")
    with pytest.raises(StoppedError) as stopped, listening():
        extreme_eigenpairs(operator, 3, report=stopping_after(9, signal.SIGTERM))
    assert (str(stopped.value), stopped.value.code) == ("stopped by SIGTERM", 143)


def test_two_processes_do_not_keep_one_state(tmp_path):
    state = tmp_path / "state.pt"
    with sole_writer(state), pytest.raises(LockedError, match=r"process \d+ on host .* keeps its iteration in"):
        extreme_eigenpairs(matrix("spread")[0], 3, state=state)


def test_a_checkpoint_is_no_state(tmp_path):
    from tests.landscape.checkpoints.checkpoints import checkpoint

    checkpoint().save(tmp_path / "ckpt.pt")
    with pytest.raises(FedscapeError, match="there is a file that is not a file of unfinished work"):
        check_outputs([Output("--state", tmp_path / "ckpt.pt", "state", ("question",), continued=True)], force=True)
