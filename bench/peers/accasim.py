#!/usr/bin/env python3
"""AccaSim (PyPI, 1.1.3) on a workload trace: accasim.py TRACE.swf[.gz] PROCESSORS [FIFO|EBF]

Prints one line of JSON with `jobs_per_s`, for `squall bench replay TRACE --peer "python3 bench/peers/accasim.py"`.
The machine is one node of that many cores; jobs that never ran, held nothing or are too large are left out first, as
squall does. Needs `pip install accasim`; on Python 3.10 and later its imports of old names are made to work.
"""

import collections
import collections.abc
import gzip
import json
import os
import sys
import tempfile
import time

# This file has the name of the package, and its folder is searched first.
sys.path.pop(0)

for name in ("Mapping", "MutableMapping", "Sequence", "Iterable", "Hashable", "Callable"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402


def canonical(path, processors, out):
    """Writes the trace with requested processors and times filled in; returns how many jobs it has."""
    jobs = []
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", errors="replace") as lines:
        for line in lines:
            if line.startswith(";") or not line.strip():
                continue
            fields = line.split()[:18]
            run, allocated, asked, limit = (int(float(fields[at])) for at in (3, 4, 7, 8))
            procs = asked if asked > 0 else allocated
            if procs <= 0 or run <= 0 or procs > processors:
                continue
            fields[4] = fields[7] = str(procs)
            fields[8] = str(max(limit, run))
            fields[6] = fields[9] = "-1"
            jobs.append((int(fields[1]), int(fields[0]), fields))
    jobs.sort(key=lambda job: job[:2])
    with open(out, "w") as file:
        for _, _, fields in jobs:
            file.write(" ".join(fields) + "\n")
    return len(jobs)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    path, processors = sys.argv[1], int(sys.argv[2])
    policy = sys.argv[3] if len(sys.argv) > 3 else "FIFO"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder) if os.path.isabs(path) else None
        trace, machine = os.path.join(folder, "trace.swf"), os.path.join(folder, "machine.config")
        jobs = canonical(path, processors, trace)
        with open(machine, "w") as file:
            json.dump({"groups": {"g0": {"core": processors}}, "resources": {"g0": 1}, "equivalence": {"processor": {"core": 1}}}, file)
        scheduler = {"FIFO": FirstInFirstOut, "EBF": EASYBackfilling}[policy](FirstFit())
        simulator = Simulator(
            trace, machine, scheduler, RESULTS_FOLDER_NAME="results", RESULTS_FOLDER_PATH=folder,
            statistics_output=False, pprint_output=False, scheduling_output=False, benchmark_output=False,
        )
        sys.stdout.flush()
        begin = time.time()
        simulator.start_simulation()
        took = time.time() - begin
    print(json.dumps({"peer": f"AccaSim {policy}", "jobs": jobs, "wall_s": round(took, 2), "jobs_per_s": round(jobs / took, 1)}))


main()
