"""The entrance to the simulation: it plays a seed in a world, by the world's name."""

import hashlib

from sim.daemon_simulation import DaemonSimulation
from sim.foreign_simulation import ForeignSimulation
from sim.hosts_simulation import HostsSimulation
from sim.session_simulation import SessionSimulation
from sim.simulation import Simulation, run_seed
from sim.succession_simulation import SuccessionSimulation
from sim.worlds import WORLDS, World
from sim.writers import STREAM
from steno_protocol import paths

SIMULATIONS: dict[str, type[Simulation]] = {
    "context": SessionSimulation,
    "files": SessionSimulation,
    "streams": SessionSimulation,
    "successors": SuccessionSimulation,
    "hosts": HostsSimulation,
    "daemon": DaemonSimulation,
    "full": DaemonSimulation,
    "groups": DaemonSimulation,
    "moves": DaemonSimulation,
    "foreign": ForeignSimulation,
    "rough": ForeignSimulation,
}


def play(name: str, seed: int, world: World | None = None) -> Simulation:
    """Play one seed to its end.

    Args:
        name: a world of `WORLDS`.
        seed: decides everything.
        world: replaces the one that the seed decides on.

    Returns:
        The simulation as it ended.

    Raises:
        AssertionError: a promise was broken; the message begins with the seed.
    """
    simulation = SIMULATIONS[name](seed, world or WORLDS[name](seed))
    run_seed(seed, simulation.run, lambda: simulation.now_s)
    return simulation


def trace_of(simulation: Simulation) -> str:
    """A digest of all calls to the disk and of the final files of the writers."""
    files = sorted(simulation.disk.tree().items())
    final = [file for file in files if file[0].endswith((paths.CONTEXT, paths.WIRE, STREAM))]
    trace = simulation.disk.calls, final
    return hashlib.sha256(repr(trace).encode()).hexdigest()
