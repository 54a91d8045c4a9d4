"""Fingerprints of tensors."""

import torch

from landscape.storage.digests import tensor_digest


def test_equal_tensors_have_equal_fingerprints_however_they_lie_in_memory():
    a = torch.arange(6.0).view(2, 3)
    assert tensor_digest(a) == tensor_digest(a.t().contiguous().t()) == tensor_digest(a.clone().requires_grad_())


def test_values_shapes_types_places_and_absence_tell_tensors_apart():
    a = torch.arange(6.0)
    changed = a.clone()
    changed[5] += 1e-6 * changed[5]
    kinds = [(a,), (changed,), (a.view(2, 3),), (a.double(),), (a.int(),), (a, None), (None, a), (a[:3], a[3:]), ()]
    assert len({tensor_digest(*kind) for kind in kinds}) == len(kinds)
