"""Each command as ``python -m`` starts it: bad input is one sentence and exit code 2, without a traceback."""

import pytest

from tests.processes import python, run_process

STARTED = """
import runpy, sys, warnings
warnings.simplefilter("ignore")  # that modules are loaded already
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("module", "words", "sentence"),
    [
        ("trainers", ["fedavg", "--model", "nothing", "--quiet"], "unknown model 'nothing'"),
        ("analysis.hessian", ["none.pt"], "there is no file none.pt"),
        ("analysis.corruptions", ["none.pt", "--generate", "--out", "out"], "there is no file none.pt"),
        ("figures", ["compare", "none.pt", "none.pt"], "there is no file none.pt"),
        ("landscape.data", ["verify", "cifar10"], "Missing from python -m landscape.data verify: --data-dir DIR"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_two(module, words, sentence, tmp_path):
    out = ["--out", tmp_path / "run"] if module in ("trainers", "figures") else []
    status, printed = run_process(python, STARTED, module, *words, *out)
    assert status == 2
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1
    assert sentence in printed
