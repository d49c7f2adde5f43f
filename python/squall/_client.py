"""The functions of the package, over the commands with ``--json``, ``--parsable`` and formats of our own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

#: How callers name a job: ``7``, ``"7"``, or ``"7_2"`` for a task of an array.
JobId = Union[int, str]

#: Value of an option of sbatch: ``True`` for one without value, a list for one with commas.
Option = Union[str, int, float, bool, None, Sequence[Union[str, int]]]

#: States from which a job does not come back.
ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT".split()
)

#: What squeue says of a job that is no longer, or never was, in the controller's memory.
_UNKNOWN = "Invalid job id specified"


class SquallError(Exception):
    """A command failed."""

    def __init__(self, command: Sequence[str], exit_code: int, message: str) -> None:
        super().__init__(message or f"{' '.join(command[:2])}: exit code {exit_code}")
        #: The command with its arguments.
        self.command = list(command)
        #: Its exit code, as the same command of Slurm has it.
        self.exit_code = exit_code
        #: What it wrote to standard error.
        self.message = message


class Timeout(SquallError):
    """Jobs had not ended in time. They go on."""


@dataclass(frozen=True)
class Job:
    """A job, or one task of an array, as the cluster knew it when it was asked."""

    #: The id as commands print it: ``7``, or ``7_2`` for a task of an array.
    id: str
    name: str
    user: str
    account: str
    partition: str
    #: As ``PENDING``, ``RUNNING``, ``COMPLETED``.
    state: str
    #: Why it is pending, or why it ended; ``None`` in Slurm's sense is an empty text.
    reason: str
    #: Exit code of the script; 0 until it has ended.
    exit_code: int
    #: Signal that ended the script; 0: none.
    signal: int
    #: Host list of the allocated nodes, as ``n[1-2]``; empty until it has started.
    nodes: str
    #: Allocated CPUs, or the requested ones until it has started.
    cpus: int
    #: Working directory.
    directory: str
    submitted: Optional[datetime]
    started: Optional[datetime]
    ended: Optional[datetime]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, however it did."""
        return self.state in ENDED

    @property
    def ok(self) -> bool:
        """Whether the job has ended as it should."""
        return self.state == "COMPLETED"


@dataclass(frozen=True)
class Change:
    """A job has another state than when it was last looked at."""

    #: The id as commands print it.
    id: str
    #: The state before; ``None`` when the job is seen first.
    before: Optional[str]
    #: The state now.
    state: str


def submit(
    script: Union[str, "os.PathLike[str]", None] = None,
    *arguments: str,
    wrap: Optional[str] = None,
    text: Optional[str] = None,
    directory: Union[str, "os.PathLike[str]", None] = None,
    environment: Optional[Mapping[str, str]] = None,
    **options: Option,
) -> int:
    """Submits a batch job and returns its id; the id of an array is that of all its tasks.

    The job is one of: the file ``script`` with ``arguments``, the content ``text`` of a script, or the shell command
    ``wrap``. ``directory`` is where the job starts; ``environment`` has variables beside this process's own. All other
    keywords are options of sbatch, with ``_`` for ``-``: ``submit("job.sh", nodes=2, time="1:00:00",
    job_name="a", requeue=True, constraint=["a", "b"])``.

    Raises SquallError if sbatch refuses the job.
    """
    if sum(source is not None for source in (script, wrap, text)) != 1:
        raise TypeError("give one of: a script, text=, wrap=")
    command = ["sbatch", "--parsable"]
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(option)
        elif isinstance(value, (list, tuple)):
            command.append(f"{option}={','.join(map(str, value))}")
        elif value is not None and value is not False:
            command.append(f"{option}={value}")
    if directory is not None:
        command.append(f"--chdir={os.fspath(directory)}")
    if wrap is not None:
        command.append(f"--wrap={wrap}")
    elif script is not None:
        command += ["--", os.fspath(script), *arguments]
    output = _run(command, text or "", environment)
    # With several clusters it is ID;CLUSTER.
    return int(output.strip().split(";")[0])


def cancel(*ids: JobId, signal: Optional[str] = None) -> None:
    """Cancels jobs, or sends them a signal (as ``"USR1"``). Jobs that have ended are passed over."""
    if ids:
        _run(["scancel", *([f"--signal={signal}"] if signal else []), *map(str, ids)])


def jobs(*ids: JobId, user: Optional[str] = None, history: bool = False) -> List[Job]:
    """Returns jobs: those with these ids, or all.

    Without ids they are those pending and running; with ``history`` also those that have ended (of this day, and only
    the caller's unless ``user`` is given). Given ids are found whether they have ended or not; each task of an array is
    a job. Raises SquallError if there is no job with a given id.
    """
    of_user = [f"--user={user}"] if user else []
    if not ids:
        found = _sacct(*of_user) if history else _squeue(*of_user)
        return sorted(found, key=_order)
    try:
        found = _squeue("--states=all", "--jobs", _list(ids), *of_user)
    except SquallError as error:
        if _UNKNOWN not in error.message:
            raise
        found = []
    missing = [name for name in map(str, ids) if not any(_is_of(job.id, name) for job in found)]
    if missing:
        # They ended so long ago that the controller has forgotten them.
        found += _sacct("--jobs", _list(missing), *of_user)
    for name in missing:
        if not any(_is_of(job.id, name) for job in found):
            raise SquallError(["squall", "squeue", "--jobs", name], 1, f"{name}: {_UNKNOWN}")
    return sorted(found, key=_order)


def wait(*ids: JobId, timeout: Optional[float] = None, interval: float = 1.0) -> List[Job]:
    """Waits until all of these jobs have ended, and returns them; of an array all tasks.

    One ``squeue`` asks for all jobs, each ``interval`` seconds. Raises Timeout after ``timeout`` seconds (``None``:
    never), and SquallError if there is no such job.
    """
    until = None if timeout is None else time.monotonic() + timeout
    if not ids:
        return []
    _check(ids)
    while _states(ids):
        _pause(interval, until, ids)
    return jobs(*ids)


def watch(*ids: JobId, timeout: Optional[float] = None, interval: float = 1.0) -> Iterator[Change]:
    """Yields the changes of state of jobs, beginning with the state that each has; ends when all have ended.

    Without ids all jobs of the cluster are watched, without end. A state that lasts less than ``interval`` seconds may
    be missed, but not the last one. Raises Timeout after ``timeout`` seconds, and SquallError if there is no such job.
    """
    until = None if timeout is None else time.monotonic() + timeout
    if ids:
        _check(ids)
    known: Dict[str, str] = {}
    while True:
        now = _states(ids, all_states=True)
        gone = [name for name, state in known.items() if name not in now and state not in ENDED]
        if gone:
            # They have ended, and the controller has forgotten them since.
            now.update({job.id: job.state for job in jobs(*gone)})
        for name, state in now.items():
            before = known.get(name)
            if before != state:
                known[name] = state
                yield Change(name, before, state)
        if ids and all(state in ENDED for state in known.values()):
            return
        _pause(interval, until, ids)


def _states(ids: Sequence[JobId], all_states: bool = False) -> Dict[str, str]:
    """Returns the states of jobs by id. Without ``all_states`` only of those that have not ended."""
    command = ["squeue", "--noheader", "--array", "--format=%i|%T"]
    command += ["--states=all"] if all_states else []
    command += ["--jobs", _list(ids)] if ids else []
    try:
        lines = _run(command).splitlines()
    except SquallError as error:
        if ids and _UNKNOWN in error.message:
            return {}
        raise
    states: Dict[str, str] = {}
    for line in lines:
        name, _, state = line.strip().partition("|")
        states[name] = state
    return states


def _pause(interval: float, until: Optional[float], ids: Sequence[JobId]) -> None:
    """Waits before the cluster is asked again."""
    left = interval if until is None else until - time.monotonic()
    if left <= 0:
        raise Timeout(["squall", "squeue"], 0, f"jobs have not ended in time: {_list(ids) or 'all'}")
    time.sleep(min(interval, left))


def _list(ids: Sequence[JobId]) -> str:
    return ",".join(map(str, ids))


def _is_of(job: str, name: str) -> bool:
    """Whether a job has that id, or is a task or component of it."""
    return job == name or job.startswith((f"{name}_", f"{name}+"))


def _program() -> str:
    """Returns the program: that of PATH, else the one that was installed with this module."""
    beside = os.path.join(os.path.dirname(sys.executable), "squall")
    return "squall" if shutil.which("squall") or not os.path.exists(beside) else beside


def _run(arguments: Sequence[str], text: str = "", environment: Optional[Mapping[str, str]] = None) -> str:
    """Runs a command and returns its standard output."""
    command = [_program(), *arguments]
    variables = None if environment is None else {**os.environ, **environment}
    try:
        done = subprocess.run(command, input=text, env=variables, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SquallError(command, 127, "squall is not in PATH") from None
    if done.returncode != 0:
        raise SquallError(command, done.returncode, done.stderr.strip())
    return done.stdout


def _squeue(*arguments: str) -> List[Job]:
    """Returns the jobs that the controller has in memory."""
    return [_of_squeue(row) for row in json.loads(_run(["squeue", "--json", "--array", *arguments]))["jobs"]]


def _sacct(*arguments: str) -> List[Job]:
    """Returns the jobs of the accounting."""
    return [_of_sacct(row) for row in json.loads(_run(["sacct", "--json", *arguments]))["jobs"]]


def _number(value: Any) -> int:
    """Reads a number, which may be one of Slurm's ``{"set": ..., "infinite": ..., "number": ...}``."""
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") else 0
    return int(value or 0)


def _time(value: Any) -> Optional[datetime]:
    """Reads seconds since 1970. None: that has not happened."""
    seconds = _number(value)
    return datetime.fromtimestamp(seconds, timezone.utc) if seconds else None


def _of_squeue(row: Mapping[str, Any]) -> Job:
    """Reads a job as ``squeue --json`` shows it."""
    return Job(
        id=_name(row["job_id"], row["array_job_id"], row["array_task_id"], row["het_job_id"], row["het_job_offset"]),
        name=row["name"],
        user=row["user_name"],
        account=row["account"],
        partition=row["partition"],
        state=row["job_state"][0],
        reason=_reason(row["state_reason"]),
        exit_code=_number(row["exit_code"]["return_code"]),
        signal=_number(row["exit_code"]["signal"]["id"]),
        nodes=row["nodes"],
        cpus=_number(row["cpus"]),
        directory=row["current_working_directory"],
        submitted=_time(row["submit_time"]),
        started=_time(row["start_time"]),
        ended=_time(row["end_time"]),
    )


def _of_sacct(row: Mapping[str, Any]) -> Job:
    """Reads a job as ``sacct --json`` shows it."""
    array, het, times = row["array"], row["het"], row["time"]
    allocated = [_number(tres["count"]) for tres in row["tres"]["allocated"] if tres["type"] == "cpu"]
    return Job(
        id=_name(row["job_id"], array["job_id"], array["task_id"], het["job_id"], het["job_offset"]),
        name=row["name"],
        user=row["user"],
        account=row["account"],
        partition=row["partition"],
        state=row["state"]["current"][0],
        reason=_reason(row["state"]["reason"]),
        exit_code=_number(row["exit_code"]["return_code"]),
        signal=_number(row["exit_code"]["signal"]["id"]),
        nodes="" if row["nodes"] == "None assigned" else row["nodes"],
        cpus=allocated[0] if allocated else _number(row["required"]["CPUs"]),
        directory=row["working_directory"],
        submitted=_time(times["submission"]),
        started=_time(times["start"]),
        ended=_time(times["end"]),
    )


def _name(job: int, array: Any, task: Any, het: Any, offset: Any) -> str:
    """Returns the id of a job as commands print it."""
    if _number(array) and task["set"]:
        return f"{_number(array)}_{_number(task)}"
    return f"{_number(het)}+{_number(offset)}" if _number(het) else str(job)


def _reason(word: str) -> str:
    """Returns a reason; the word for none is an empty text."""
    return "" if word == "None" else word


def _order(job: Job) -> List[int]:
    """Sorts jobs by id, and those of an array by task."""
    return [int(number) for number in re.findall(r"\d+", job.id)]


def _check(ids: Sequence[JobId]) -> None:
    """Raises SquallError if there is no job with one of these ids."""
    known = _states(ids, all_states=True)
    missing = [name for name in map(str, ids) if not any(_is_of(job, name) for job in known)]
    if missing:
        jobs(*missing)
