"""What about this machine could disturb a measurement, in sentences with a remedy."""

from __future__ import annotations

from ftax.machines.environment import Environment


def find_concerns(environment: Environment) -> list[str]:
    """Concerns about the host; an empty list on a quiet, bare machine."""
    host = environment.host
    concerns = []
    if host.virtualised:
        name = host.hypervisor or "an unknown hypervisor"
        concerns.append(
            f"this is a virtual machine ({name}): floors are higher than on bare metal, and others "
            "may take CPU time (steal is recorded with each round)"
        )
    if host.governor and set(host.governor.split("+")) - {"performance"}:
        concerns.append(
            f"the frequency governor is {host.governor}: `cpupower frequency-set -g performance` "
            "makes latencies steadier"
        )
    if host.smt:
        concerns.append(
            "cores run two threads each: pin to one thread a core with --cpus for steadier numbers"
        )
    load = environment.condition.load_average[0]
    if load > 0.5 * host.usable_cpus:
        concerns.append(
            f"the load average is {load:.1f} on {host.usable_cpus} CPUs: something else is running"
        )
    if environment.settings.num_threads > host.usable_cpus:
        concerns.append(
            f"torch uses {environment.settings.num_threads} threads on {host.usable_cpus} usable "
            "CPUs: set OMP_NUM_THREADS or --threads"
        )
    return concerns
