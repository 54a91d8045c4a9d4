"""What other ranks' clients send comes to the first rank's device, whatever host memory it travelled through."""

import torch

from trainers.ranks.executor import _counted_rows, _told
from trainers.ranks.messages import Message, packed, unpacked


def sent(message: Message) -> Message:
    """The message as another rank receives it: views of bytes in host memory."""
    return unpacked(packed(message))


def test_answers_before_the_local_work_lie_where_the_model_does():
    w = torch.zeros(2, device="meta")
    told = _told(sent(Message("told", {"client": 3}, {"full": torch.tensor([1.0, 2.0])})), w)
    assert (told.client, told.upload["full"].device) == (3, w.device)


def test_results_lie_where_the_model_does():
    w, rows = torch.zeros(2, device="meta"), torch.tensor([[1.0, 2.0]])
    facts = {"clients": [4], "seen": [5], "steps": [1], "gradients": [1], "derived": {"delta": "change"}}
    tensors = {"models": rows, "losses": torch.ones(1), "upload c": rows}
    count, found = _counted_rows(sent(Message("result", {**facts, "names": ["delta", "c"]}, tensors)), w)
    placed = [found.models, found.losses, *found.uploads.values()]
    assert (count, {tensor.device for tensor in placed}) == (1, {w.device})
