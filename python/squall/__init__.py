"""Submit, watch, wait for and cancel jobs of a Squall cluster.

Each function runs one of the cluster's commands (``squall sbatch``, ``squall squeue`` ...), never a shell. The cluster
is the one that the commands would use, so ``SQUALL_STATE`` in the environment chooses it.

    >>> import squall
    >>> job = squall.submit(wrap="hostname", nodes=2, time=5)
    >>> [done] = squall.wait(job)
    >>> done.state
    'COMPLETED'
"""

from ._client import Change, Job, SquallError, Timeout, cancel, jobs, submit, wait, watch

__all__ = ["Change", "Job", "SquallError", "Timeout", "cancel", "jobs", "submit", "wait", "watch"]
