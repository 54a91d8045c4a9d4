"""Several models of one architecture side by side: their outputs and gradients from stacked parameters [S, d]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from landscape.activations import MAN
from landscape.autograd.dense_chain import DenseChain
from landscape.autograd.dropout import Given, OtherDraws, Plan, alike, drawn, plan_of
from landscape.autograd.flat import FlatModule, join
from landscape.autograd.grouped import GroupedConvolutions
from landscape.autograd.memory_format import ChannelsLastFallback, plain_copy, same_outputs
from landscape.batchnorm import BatchStatistics
from landscape.compute.devices import memory_ran_out
from landscape.space import ParameterSpace


class Pass:
    """A forward pass of several models, each with a batch of its own.

    Attributes:
        outputs: logits [S, classes, n]: classes first, as a softmax of few classes is fast.
        penalty: on the activations of each model, [S]; ``None`` unless it was asked for.
    """

    outputs: Tensor
    penalty: Tensor | None

    def gradient(self, slopes: Tensor) -> Tensor:
        """The gradient of each model's loss and penalty by its own parameters, [S, d].

        Args:
            slopes: of the losses by the outputs, [S, classes, n].
        """
        raise NotImplementedError

    def gradient_by(self, tensors: Sequence[Tensor], slopes: Tensor) -> Sequence[Tensor]:
        """The gradients of the losses by tensors that the inputs were computed from, of each tensor's shape.

        Args:
            tensors: which the inputs, given with their graph, depend on.
            slopes: as in :meth:`gradient`, which may be called after it and not before.
        """
        raise NotImplementedError


class StackedModule:
    """S copies of a module, each with parameters and buffers of its own, applied to S batches at once.

    A chain of dense layers is computed by one batched product a layer, a chain of convolutions by one grouped
    convolution a layer; any other module by ``torch.func.vmap``.  On a small network they cost little more than one
    copy alone, whose time is that of Python and of starting kernels.  What dropout draws is given to them.

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
        >>> both.gradient(2 * both.outputs)  # of the squares of the outputs: 2 · 3 (3, 4), 2 · 8 (3, 4)
        tensor([[18., 24.],
                [48., 64.]])
    """

    def __init__(self, flat: FlatModule) -> None:
        # Without the hook that looks at the memory format, which vmap does not know: inputs are contiguous here.
        self._module, self._flat = plain_copy(flat.module).train(), flat
        self.space, self.dtype = flat.space, flat.dtype
        self._chain = DenseChain.of(self._module, self.space)
        self._convolutions = GroupedConvolutions.of(self._module, self.space)
        self._format = ChannelsLastFallback()

    def run(
        self,
        w: Tensor,
        inputs: Tensor,
        buffers: Mapping[str, Tensor] | None = None,
        man: MAN | None = None,
        noise: Sequence[Tensor] = (),
    ) -> Pass:
        """The forward pass of models w [S, d] on their batches.

        Args:
            w: the models' parameters.
            inputs: [S, n, ...]; those with a graph have :meth:`Pass.gradient_by`.
            buffers: each model's own by name, [S, *shape], which the pass may change in place; the module's own unless
                given.
            man: the penalty, if it is wanted.
            noise: what dropout draws (:meth:`plan`), in rows (:func:`~landscape.autograd.dropout.drawn`).

        Raises:
            OtherDraws: noise for other draws than the module's.
        """
        if self._chain is not None and man is None and not inputs.requires_grad:
            return _ChainPass(self._chain, w, inputs, noise)
        if self._convolutions is not None and man is None and inputs.dim() == 5:
            return _GroupedPass(self._convolutions, self.space, w, inputs, noise)
        return _VmapPass(self, w, inputs, buffers or {}, man, noise)

    def plan(self, inputs: Tensor) -> Plan:
        """What a copy draws for dropout on the inputs [n, ...], as the module itself would with their memory format.

        Raises:
            OtherDraws: random numbers that are not dropout's on a CPU.
        """
        # With the module's hook, as it would run alone; the first run is to decide what that decides once.
        hook = self._module.register_forward_pre_hook(self._format)
        try:
            with torch.enable_grad(), BatchStatistics(self._module).untouched():
                plan_of(lambda: self._module(inputs))
                return plan_of(lambda: self._module(inputs))
        finally:
            hook.remove()

    def classes(self, inputs: Tensor) -> int:
        """The number of outputs for a sample of the inputs [n, ...]."""
        devices = [inputs.device] if inputs.device.type == "cuda" else []
        with torch.no_grad(), BatchStatistics(self._module).untouched(), torch.random.fork_rng(devices):
            outputs: Tensor = self._module(inputs.contiguous())  # the module has no hook for its memory format
        return outputs.shape[-1]

    def refusal(self, inputs: Tensor) -> str | None:
        """Why several copies cannot be computed at once, in half a sentence; ``None`` where they can.

        Two copies are tried on the inputs ([n, ...], two samples or more) in training mode, beside the module itself;
        where they draw for dropout, one of them with a sample more, and each with draws of its own.  Both outputs and
        gradients must be the module's.
        """
        before = self._flat.module.training
        with torch.enable_grad(), BatchStatistics(self._flat.module).untouched():
            try:
                given = inputs.clone()  # of data that are not normalised, a batch may be a view
                pairs = self._tried(given)
                if not torch.equal(given.nan_to_num(), inputs.nan_to_num()):
                    return "it changes its inputs in place, which the next pass of a step sees"
            except OtherDraws as error:
                return str(error)
            except Exception as error:  # the user's code runs in it, and vmap has its own kinds of errors
                if memory_ran_out(error):
                    raise
                if "randomness" in str(error):
                    return "a layer of it draws random numbers by itself, as attention with dropout does"
                told = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
                return f"vmap cannot run it ({told})"
            finally:
                self._flat.module.train(before)
        return None if all(same_outputs(*pair) for pair in pairs) else "vmap computes something else"

    def by_sample(self, inputs: Tensor, count: int) -> bool:
        """Whether the outputs for the first ``count`` of the inputs ([n, ...]) are the same without the others.

        Where they are not, as with BatchNorm, or a mean over the samples, a short batch must not be filled up.  Tried
        at the module's parameters, and a little off them with smaller inputs: some may begin at 0 and hide what they
        multiply, and a softmax of large numbers hides the others.  Where it cannot be tried, it is taken not to be so.
        """
        if self._chain is not None or self._convolutions is not None:
            return True
        w = self.space.flatten(dict(self._flat.module.named_parameters()))
        off = torch.randn(w.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        twice = torch.stack([w, w + 0.1 * off.to(w)])
        try:
            plans = [self.plan(each) for each in (inputs[:count], inputs)]
            if not alike(plans, [count, len(inputs)]):
                return False
            # Nothing is dropped: what is would hide its part.
            kept = [[torch.ones(2, *draw.shape, dtype=draw.dtype) for draw in plan] for plan in plans]
            both = torch.stack([inputs, 0.1 * inputs if inputs.is_floating_point() else inputs])
            alone = self.run(twice, both[:, :count], noise=kept[0]).outputs
            whole = self.run(twice, both, noise=kept[1]).outputs[..., :count]
        except Exception as error:  # the user's code runs in it; what it raises for such a batch is told where it comes
            if memory_ran_out(error):
                raise
            return False
        difference = (whole - alone).abs().max()
        return bool(difference <= torch.finfo(alone.dtype).eps ** 0.5 * alone.abs().max())

    def _tried(self, inputs: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Outputs and gradients of the module alone, and of one of two copies at once, for both copies."""
        w, statistics = self.space.flatten(dict(self._flat.module.named_parameters())), BatchStatistics(self._module)
        buffers = {name: torch.stack([b, b]) for name, b in statistics.named(statistics.read()).items()}
        twice = torch.stack([w, w])
        if not self.plan(inputs):
            found = self.run(twice, torch.stack([inputs, inputs]), buffers)
            return self._beside(found, [(self._flat.module.train()(inputs), len(inputs))] * 2)
        longer = torch.cat([inputs, inputs[:1]])
        batches, counts = [inputs, longer], [len(inputs), len(longer)]
        plans = [self.plan(batch) for batch in batches]
        apart = len(statistics) or not alike(plans, counts) or not self.by_sample(longer, len(inputs))
        if apart:  # those of the same size are computed together then
            batches, counts, plans = [longer, longer], counts[1:] * 2, plans[1:] * 2
        noise = drawn(plans, [torch.Generator().manual_seed(seed) for seed in range(2)])
        given = torch.stack([longer, longer])
        found, alone = self.run(twice, given, buffers, noise=noise), []
        with torch.random.fork_rng([]):
            for seed, (batch, count) in enumerate(zip(batches, counts, strict=True)):
                torch.default_generator.manual_seed(seed)
                alone.append((self._flat.module.train()(batch), count))
        return self._beside(found, alone)

    def _beside(self, found: Pass, alone: Sequence[tuple[Tensor, int]]) -> list[tuple[Tensor, Tensor]]:
        """Outputs of the module alone for batches of so many samples, and those of the copies; and their gradients."""
        slopes = torch.zeros_like(found.outputs)
        pairs = [(outputs, found.outputs[row].mT[:count]) for row, (outputs, count) in enumerate(alone)]
        if any(one.shape != other.shape for one, other in pairs):
            return pairs
        for row, (outputs, count) in enumerate(alone):
            # Other slopes for each sample and class: of equal ones, a softmax would make 0.
            numbers = torch.arange(1.0, outputs.numel() + 1, dtype=outputs.dtype, device=outputs.device)
            slopes[row, :, :count] = numbers.sin().view_as(outputs).mT
        gradients = found.gradient(slopes)
        for row, (outputs, count) in enumerate(alone):
            alone_by = self._flat.gradients(outputs, slopes[row, :, :count].mT, keep=True)
            pairs.append((join(alone_by), gradients[row]))
        return pairs


class _ChainPass(Pass):
    def __init__(self, chain: DenseChain, w: Tensor, inputs: Tensor, noise: Sequence[Tensor]) -> None:
        self._chain, self.penalty = chain, None
        self.outputs, self._run = chain.forward(w, inputs, noise)

    def gradient(self, slopes: Tensor) -> Tensor:
        return self._chain.slopes(self._run, slopes)


class _GraphPass(Pass):
    """A pass whose gradient is autograd's.

    Args:
        parameters: of each model, by tensor: leaves.
        outputs: [S, classes, n].
        penalty: [S], or none.
    """

    def __init__(self, parameters: list[Tensor], outputs: Tensor, penalty: Tensor | None) -> None:
        self._parameters, self._found = parameters, [outputs] if penalty is None else [outputs, penalty]
        self.outputs, self.penalty = outputs.detach(), None if penalty is None else penalty.detach()

    def gradient(self, slopes: Tensor) -> Tensor:
        weights = [slopes, *(torch.ones_like(penalty) for penalty in self._found[1:])]
        live = [k for k, value in enumerate(self._found) if value.requires_grad]
        found = torch.autograd.grad(
            [self._found[k] for k in live], self._parameters, [weights[k] for k in live], allow_unused=True
        )
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(self._parameters, found, strict=True)]
        return torch.cat([part.reshape(len(part), -1) for part in parts], dim=1)

    def gradient_by(self, tensors: Sequence[Tensor], slopes: Tensor) -> Sequence[Tensor]:
        return torch.autograd.grad(self._found[0], tensors, slopes, retain_graph=True)


class _GroupedPass(_GraphPass):
    def __init__(
        self, chain: GroupedConvolutions, space: ParameterSpace, w: Tensor, inputs: Tensor, noise: Sequence[Tensor]
    ) -> None:
        parameters = [part.detach().requires_grad_() for part in space.unflatten(w).values()]
        with torch.enable_grad():
            super().__init__(parameters, chain.forward(parameters, inputs, noise), None)


class _VmapPass(_GraphPass):
    def __init__(
        self,
        stack: StackedModule,
        w: Tensor,
        inputs: Tensor,
        buffers: Mapping[str, Tensor],
        man: MAN | None,
        noise: Sequence[Tensor],
    ) -> None:
        named = stack.space.unflatten(w)
        parameters = [part.detach().requires_grad_() for part in named.values()]
        own = {**dict(zip(named, parameters, strict=True)), **buffers}
        module = stack._module

        def one(mine: dict[str, Tensor], batch: Tensor) -> tuple[Tensor, ...]:
            if man is None:
                return (functional_call(module, mine, (batch,)),)
            with man.watching(module) as penalty:
                found = functional_call(module, mine, (batch,))
            return found, penalty()

        def dropping(mine: dict[str, Tensor], batch: Tensor, own: list[Tensor]) -> tuple[Tensor, ...]:
            with Given(own) as given:
                found = one(mine, batch)
            given.require_all_taken()
            return found

        with torch.enable_grad(), _Embeddings():
            x = inputs.contiguous()
            outputs, *penalty = vmap(dropping)(own, x, list(noise)) if noise else vmap(one)(own, x)
            super().__init__(parameters, outputs.mT, penalty[0] if penalty else None)


class _Embeddings(TorchFunctionMode):
    """Inside, embeddings have no slopes by the vector of their padding, under ``vmap`` too.

    PyTorch's own, mapped by ``vmap``, leave them out for the first model alone.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_embedded if func is F.embedding else func)(*args, **(kwargs or {}))


def _embedded(input: Tensor, weight: Tensor, padding_idx: int | None = None, *others: Any, **named: Any) -> Tensor:
    found: Tensor = F.embedding(input, weight, None, *others, **named)
    if padding_idx is None:
        return found
    padding = (input == padding_idx % len(weight))[..., None]
    return torch.where(padding, found.detach(), found)
