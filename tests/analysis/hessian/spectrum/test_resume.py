"""The file of unfinished eigenvalues: what it holds, when it is written, and that a killed measurement continues."""

import pytest
import torch

from analysis import extreme_eigenpairs
from analysis.hessian.spectrum import resume
from analysis.hessian.spectrum.resume import StateFile
from landscape import FedscapeError
from tests.analysis.hessian.spectrum.spectra import matrix


class _Killed(Exception):
    pass


def _killed_after(products):
    def report(done, error):
        if done == products:
            raise _Killed

    return report


@pytest.mark.parametrize(("name", "stop"), [("spread", 3), ("spread", 15), ("spread", 33), ("multiple", 5)])
@pytest.mark.parametrize("max_basis", [None, 15])
def test_killed_and_resumed_gives_the_same_bits(name, stop, max_basis, tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(resume, "_COST_SHARE", 1e9)
    options = {"which": "both", "k": 2, "tolerance": 1e-8, "max_basis": max_basis, "state": tmp_path / "state.pt"}
    operator, _ = matrix(name)
    whole = extreme_eigenpairs(operator, **{**options, "state": None})
    with pytest.raises(_Killed):
        extreme_eigenpairs(operator, **options, report=_killed_after(max(stop, 4)))
    before = operator.products
    again = extreme_eigenpairs(operator, **options)
    assert operator.products - before == whole.products - max(stop, 4) + 1  # what the kill interrupted is done again
    assert (again.values == whole.values).all()
    assert (again.bounds == whole.bounds).all()
    assert torch.equal(again.vectors, whole.vectors)
    assert (again.products, again.restarts) == (whole.products, whole.restarts)
    assert again.asymmetry == whole.asymmetry
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_another_question_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_KEEP_SECONDS", 0.0)
    operator, _ = matrix("spread")
    path = tmp_path / "state.pt"
    with pytest.raises(_Killed):
        extreme_eigenpairs(operator, 3, state=path, fingerprint="a", report=_killed_after(9))
    for options in ({"k": 4}, {"which": "smallest"}, {"seed": 1}, {"fingerprint": "b"}, {"max_basis": 20}):
        with pytest.raises(FedscapeError, match=f"another question .{next(iter(options))} .*: give another file"):
            extreme_eigenpairs(operator, **{"k": 3, "state": path, "fingerprint": "a", **options})
    with pytest.raises(FedscapeError, match=r"dtype 'torch\.float64', not 'torch\.float32'"):
        extreme_eigenpairs(matrix("spread", torch.float32)[0], 3, state=path, fingerprint="a")
    torch.save({"other": 1}, path)
    with pytest.raises(FedscapeError, match="does not hold unfinished eigenvalues"):
        extreme_eigenpairs(operator, 3, state=path)


def test_the_file_is_no_larger_than_the_basis_and_written_once_a_minute(tmp_path, monkeypatch):
    operator, _ = matrix("spread")
    path = tmp_path / "state.pt"
    with pytest.raises(_Killed):
        extreme_eigenpairs(operator, 3, state=path, report=_killed_after(11))
    assert not path.exists()
    monkeypatch.setattr(resume, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(resume, "_COST_SHARE", 1e9)
    with pytest.raises(_Killed):
        extreme_eigenpairs(operator, 3, state=path, report=_killed_after(11))
    assert path.stat().st_size < 10 * 120 * 8 + 15_000


class TestTheFileAlone:
    def test_it_gives_back_what_was_written_to_the_same_question_only(self, tmp_path):
        path = tmp_path / "state.pt"
        file = StateFile(path, {"k": 3}, ["steps"])
        assert file.read() is None
        file.write({"steps": 7})
        assert StateFile(path, {"k": 3}, ["steps"]).read()["steps"] == 7
        with pytest.raises(FedscapeError, match=r"another question \(k 3, not 4\): give another file"):
            StateFile(path, {"k": 4}, ["steps"]).read()
        with pytest.raises(FedscapeError, match="does not hold unfinished eigenvalues"):
            StateFile(path, {"k": 3}, ["steps", "search"]).read()
        file.remove()
        assert not path.exists()

    def test_it_is_due_once_a_minute_and_while_writing_takes_under_a_twentieth_of_the_time(self, tmp_path, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(resume.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(resume, "save_torch", lambda *_: now.__setitem__(0, now[0] + 10.0))
        file = StateFile(tmp_path / "state.pt", {}, [])
        now[0] = 59.0
        assert not file.due()
        now[0] = 60.0
        assert file.due()
        file.write({})  # takes 10 seconds: 200 must pass
        now[0] += 199.0
        assert not file.due()
        now[0] += 1.0
        assert file.due()

    def test_without_a_path_nothing_is_kept(self, monkeypatch):
        monkeypatch.setattr(resume, "_KEEP_SECONDS", 0.0)
        file = StateFile(None, {}, [])
        assert file.read() is None
        assert not file.due()
        file.remove()
