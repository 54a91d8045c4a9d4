"""One run on many ranks: the first rank is the server and writes, the others share the clients' local work with it."""

from trainers.ranks.executor import RankedExecutor, dealt_by_owner, dealt_by_size
from trainers.ranks.launching import launch, obey_launcher, to_launch
from trainers.ranks.session import Ranks, joined_ranks
from trainers.ranks.store import RankedStore
from trainers.ranks.worker import finish, require_groups, serve

__all__ = [
    "RankedExecutor",
    "RankedStore",
    "Ranks",
    "dealt_by_owner",
    "dealt_by_size",
    "finish",
    "joined_ranks",
    "launch",
    "obey_launcher",
    "require_groups",
    "serve",
    "to_launch",
]
