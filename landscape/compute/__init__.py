"""The machine: devices, memory, ranks of a process group, reproducible random numbers."""

from landscape.compute.cost import SampleCost, sample_cost, threads_for
from landscape.compute.devices import (
    cpu_threads,
    free_memory,
    memory_size,
    reproducible_arithmetic,
    resolve_device,
    resolve_dtype,
)
from landscape.compute.distributed import apart, joined, rank_and_world, sum_over_ranks
from landscape.compute.memory import keep_freed_memory
from landscape.compute.randomness import global_seed, numpy_generator, torch_generator

__all__ = [
    "SampleCost",
    "apart",
    "cpu_threads",
    "free_memory",
    "global_seed",
    "joined",
    "keep_freed_memory",
    "memory_size",
    "numpy_generator",
    "rank_and_world",
    "reproducible_arithmetic",
    "resolve_device",
    "resolve_dtype",
    "sample_cost",
    "sum_over_ranks",
    "threads_for",
    "torch_generator",
]
