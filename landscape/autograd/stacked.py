"""Several models of one architecture side by side: their outputs and gradients from stacked parameters [S, d]."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call, vmap

from landscape.activations import MAN
from landscape.autograd.dense_chain import DenseChain
from landscape.autograd.flat import FlatModule
from landscape.autograd.memory_format import plain_copy, same_outputs
from landscape.batchnorm import BatchStatistics


class Pass:
    """A forward pass of several models, each with a batch of its own.

    Attributes:
        outputs: [S, n, ...]; what is computed from them can be differentiated.
        penalty: on the activations of each model, [S]; ``None`` unless it was asked for.
    """

    outputs: Tensor
    penalty: Tensor | None

    def gradient(self, scalars: Tensor) -> Tensor:
        """The gradient of each model's scalar ([S], of the outputs and the penalty) by its own parameters, [S, d]."""
        raise NotImplementedError


class StackedModule:
    """S copies of a module, each with parameters and buffers of its own, applied to S batches at once.

    A chain of dense layers is computed by one batched product a layer; any other module by ``torch.func.vmap``.  On a
    small network both cost little more than one copy alone, whose time is that of Python and of starting kernels.

    Args:
        flat: the module; it is not changed.

    Example:
        >>> import torch
        >>> from landscape.autograd.flat import FlatModule
        >>> from landscape.autograd.stacked import StackedModule
        >>> flat = FlatModule(torch.nn.Linear(2, 1, bias=False), torch.device("cpu"), torch.float32)
        >>> inputs = torch.tensor([[[3.0, 4.0]], [[3.0, 4.0]]])
        >>> both = StackedModule(flat).run(torch.tensor([[1.0, 0.0], [0.0, 2.0]]), inputs)
        >>> both.outputs.flatten().tolist()  # x₁ of the first, 2 x₂ of the second
        [3.0, 8.0]
        >>> both.gradient(both.outputs.square().sum(dim=(1, 2)))  # 2 · 3 (3, 4), 2 · 8 (3, 4)
        tensor([[18., 24.],
                [48., 64.]])
    """

    def __init__(self, flat: FlatModule) -> None:
        # Without the hook that looks at the memory format, which vmap does not know: inputs are contiguous here.
        self._module, self._whole = plain_copy(flat.module).train(), flat.module
        self.space, self.dtype = flat.space, flat.dtype
        self._chain = DenseChain.of(self._module, self.space)

    def run(
        self, w: Tensor, inputs: Tensor, buffers: Mapping[str, Tensor] | None = None, man: MAN | None = None
    ) -> Pass:
        """The forward pass of models w [S, d] on their batches.

        Args:
            w: the models' parameters.
            inputs: [S, n, ...].
            buffers: each model's own by name, [S, *shape], which the pass may change in place; the module's own unless
                given.
            man: the penalty, if it is wanted.
        """
        if self._chain is not None and man is None:
            return _ChainPass(self._chain, w, inputs)
        return _VmapPass(self, w, inputs, buffers or {}, man)

    def refusal(self, inputs: Tensor) -> str | None:
        """Why several copies cannot be computed at once, in half a sentence; ``None`` where they can.

        Two copies are tried on the inputs ([n, ...], two samples or more) in training mode, beside the module itself.
        """
        statistics = BatchStatistics(self._module)
        buffers = {name: torch.stack([b, b]) for name, b in statistics.named(statistics.read()).items()}
        w = self.space.flatten(dict(self._whole.named_parameters()))
        before = self._whole.training
        with torch.no_grad(), BatchStatistics(self._whole).untouched():
            try:
                found = self.run(torch.stack([w, w]), torch.stack([inputs, inputs]), buffers).outputs
                alone = self._whole.train()(inputs)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the user's code runs in it, and vmap has its own kinds of errors
                if "randomness" in str(error):
                    return "it draws random numbers, as dropout does"
                told = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
                return f"vmap cannot run it ({told})"
            finally:
                self._whole.train(before)
        same = same_outputs(alone, found[0]) and same_outputs(alone, found[1])
        return None if same else "vmap computes something else"


class _ChainPass(Pass):
    def __init__(self, chain: DenseChain, w: Tensor, inputs: Tensor) -> None:
        self._chain, self._parameters, self.penalty = chain, chain.parameters(w), None
        with torch.no_grad():
            outputs, self._before = chain.forward(self._parameters, inputs)
        self.outputs = outputs.requires_grad_()

    def gradient(self, scalars: Tensor) -> Tensor:
        (slope,) = torch.autograd.grad(scalars.sum(), self.outputs)
        with torch.no_grad():
            return self._chain.slopes(self._parameters, self._before, slope)


class _VmapPass(Pass):
    def __init__(
        self, stack: StackedModule, w: Tensor, inputs: Tensor, buffers: Mapping[str, Tensor], man: MAN | None
    ) -> None:
        named = stack.space.unflatten(w)
        self._parameters = [part.detach().requires_grad_() for part in named.values()]
        own = {**dict(zip(named, self._parameters, strict=True)), **buffers}
        module = stack._module

        def one(mine: dict[str, Tensor], batch: Tensor) -> tuple[Tensor, ...]:
            if man is None:
                return (functional_call(module, mine, (batch,)),)
            with man.watching(module) as penalty:
                found = functional_call(module, mine, (batch,))
            return found, penalty()

        outputs, *penalty = vmap(one)(own, inputs.contiguous())
        self.outputs, self.penalty = outputs, penalty[0] if penalty else None

    def gradient(self, scalars: Tensor) -> Tensor:
        found = torch.autograd.grad(scalars.sum(), self._parameters, allow_unused=True)
        slopes = [torch.zeros_like(p) if g is None else g for p, g in zip(self._parameters, found, strict=True)]
        return torch.cat([slope.reshape(len(slope), -1) for slope in slopes], dim=1)
