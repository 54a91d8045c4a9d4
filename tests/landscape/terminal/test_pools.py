"""Processes that would start processes while they read their script again end without a word."""

import multiprocessing

import pytest

from landscape.terminal.pools import begin_no_pool_in_a_pool


def test_only_a_process_that_reads_its_script_again_ends(monkeypatch, capsys):
    begin_no_pool_in_a_pool()
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(SystemExit) as ended:
        begin_no_pool_in_a_pool()
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", "")
