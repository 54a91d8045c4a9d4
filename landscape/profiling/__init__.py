"""Where the time of a round, a product or a point of a surface goes."""

from landscape.profiling.peak import Peak, measured_peak
from landscape.profiling.profile import PROFILE, TRACE, Profile, profile_outputs
from landscape.profiling.profiler import Profiler, profiled, told

__all__ = ["PROFILE", "TRACE", "Peak", "Profile", "Profiler", "measured_peak", "profile_outputs", "profiled", "told"]
