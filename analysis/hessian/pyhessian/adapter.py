"""PyHessian's object for a landscape, with the settings it needs; the landscape and torch's state stay as they are."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape import FedscapeError, Landscape
from landscape.compute.devices import memory_ran_out, reproducible_arithmetic
from landscape.compute.randomness import global_seed
from landscape.terminal.progress import Progress


class Adapter:
    """PyHessian's object for a landscape, its products counted, and the settings it needs.

    Attributes:
        hessian: PyHessian's own object.
        source: the module it is defined in.
        products: products it has made.
        quotients: vᵀHv of each product of the present task.
    """

    def __init__(self, landscape: Landscape, progress: bool) -> None:
        self.source: ModuleType = importlib.import_module("pyhessian.hessian")
        self.products, self.quotients = 0, [0.0][:0]
        self._landscape, self._progress, self._bar = landscape, progress, Progress("", enabled=False)
        self._before = 0

    def __enter__(self) -> Adapter:
        landscape = self._landscape
        module = landscape.model()
        _refuse_unused(module, landscape)
        self.hessian = self.source.hessian(
            module, landscape.loss, dataloader=_Loader(landscape), cuda=landscape.device.type == "cuda"
        )
        product = self.hessian.dataloader_hv_product

        def counted(v: list[Tensor]) -> tuple[float, list[Tensor]]:
            quotient, products = product(v)
            self.products += 1
            self.quotients.append(quotient)
            self._bar.update(self.products - self._before)
            return quotient, products

        self.hessian.dataloader_hv_product = counted
        return self

    def __exit__(self, *_: object) -> None:
        del self.hessian

    @contextmanager
    def doing(self, description: str, seed: int, purpose: str) -> Iterator[None]:
        """The settings for one of PyHessian's methods; its failures become one sentence."""
        self.quotients, self._before = [], self.products
        device = self._landscape.device
        place = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with (
            Progress(description, unit="HVPs", enabled=self._progress) as self._bar,
            place,
            global_seed(seed, "pyhessian", purpose),
            reproducible_arithmetic(),
            sdpa_kernel(SDPBackend.MATH),
            torch.enable_grad(),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings("ignore", message="Using backward")  # PyHessian's way, and it frees the graph
            try:
                yield
            except RuntimeError as error:
                if memory_ran_out(error):
                    raise
                reason = str(error).strip().partition("\n")[0]
                raise FedscapeError(
                    f"PyHessian cannot measure this model ({reason}): use the default backend"
                ) from error


class _Loader:
    """A landscape's micro-batches, to iterate over any number of times."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, targets, _ in self._landscape.data.batches(self._landscape.batch_size, self._landscape.dtype):
            yield inputs, targets


def _refuse_unused(module: nn.Module, landscape: Landscape) -> None:
    """PyHessian takes the number 0 for the gradient of a parameter that has none, and crashes on it.

    Raises:
        FedscapeError: there are such parameters.
    """
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    with torch.enable_grad(), reproducible_arithmetic():
        inputs, targets = next(iter(_Loader(landscape)))
        loss = landscape.loss(module(inputs), targets)
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True) if loss.requires_grad else ()
    unused = [name for name, g in zip(named, gradients, strict=True) if g is None] if gradients else list(named)
    if unused:
        more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
        raise FedscapeError(
            f"PyHessian cannot take parameters without gradient ({', '.join(unused[:5])}{more}): "
            "use the default backend, for which their rows are zero, or freeze them (requires_grad_(False))"
        )


class _TorchWithEig:
    """torch as PyHessian's density needs it: with ``torch.eig``, for symmetric matrices."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def eig(matrix: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
        """Eigenvalues [n, 2] (real and imaginary parts) and eigenvectors as columns, as torch < 2 returned them."""
        assert eigenvectors
        values, vectors = torch.linalg.eigh(matrix)
        return torch.stack([values, torch.zeros_like(values)], dim=1), vectors


@contextmanager
def torch_eig(source: ModuleType) -> Iterator[None]:
    """Give PyHessian's module, and no other, a torch that has ``eig``."""
    names = vars(source)
    before, names["torch"] = names["torch"], _TorchWithEig()
    try:
        yield
    finally:
        names["torch"] = before
