"""Uses a client that openapi-python-client made from /openapi.json: generated.py PORT TOKEN FOLDER. FOLDER/client has it.

A job is submitted, read, changed and cancelled by each version. Then each generated function that only reads is called.
"""

import importlib
import inspect
import pkgutil
import sys

port, token, folder = sys.argv[1:]
sys.path.insert(0, f"{folder}/client")
from slurm_rest_api_client import AuthenticatedClient, api, models  # noqa: E402

client = AuthenticatedClient(
    base_url=f"http://127.0.0.1:{port}", token=token, prefix="", auth_header_name="X-SLURM-USER-TOKEN",
    raise_on_unexpected_status=True,
)
modules = {}
for group in ["slurm", "slurmdb", "util"]:
    package = importlib.import_module(f"slurm_rest_api_client.api.{group}")
    for found in pkgutil.iter_modules(package.__path__):
        modules[found.name] = importlib.import_module(f"{package.__name__}.{found.name}")
versions = sorted({name.split("_")[1] for name in modules if "_v0" in name})
assert versions, modules.keys()


def call(name, *args, **more):
    answer = modules[name].sync(*args, client=client, **more)
    assert not answer.errors, (name, answer.errors)
    return answer


for version in versions:
    request = getattr(models, f"V{version[1:]}JobSubmitReq").from_dict({
        "script": "#!/bin/sh\nsleep 300\n",
        "job": {"name": version, "current_working_directory": folder, "environment": ["PATH=/usr/bin:/bin"],
                "standard_output": "/dev/null", "standard_error": "/dev/null", "hold": True},
    })
    job = str(call(f"slurm_{version}_post_job_submit", body=request).job_id)
    shown = call(f"slurm_{version}_get_job", job).jobs[0]
    assert (shown.name, shown.job_state) == (version, ["PENDING"]), shown
    change = getattr(models, f"V{version[1:]}JobDescMsg").from_dict({"name": "renamed"})
    call(f"slurm_{version}_post_job", job, body=change)
    assert call(f"slurm_{version}_get_job", job).jobs[0].name == "renamed"
    if version >= "v0044":
        hosts = getattr(models, f"V{version[1:]}OpenapiHostlistReqResp").from_dict({"hostlist": "n[1-2]"})
        assert call(f"util_{version}_post_hostnames", body=hosts).hostnames == ["n1", "n2"]
        record = getattr(models, f"V{version[1:]}JobModify").from_dict({"comment": {"job": "seen"}})
        call(f"slurmdb_{version}_post_job", job, body=record)
    if version >= "v0045":
        partition = {"name": version, "nodes": {"configured": "n1"}, "flags": ["LLN"]}
        partitions = getattr(models, f"V{version[1:]}OpenapiPartitionsModReq").from_dict({"partitions": [partition]})
        call(f"slurm_{version}_post_partitions", body=partitions)
        assert call(f"slurm_{version}_get_partition", version).partitions[0].flags == ["LLN"]
        call(f"slurm_{version}_delete_partition", version)
        jobs = getattr(models, f"V{version[1:]}OpenapiJobsRequeueQuery").from_dict({"jobs": [job]})
        assert call(f"slurm_{version}_post_jobs_requeue", body=jobs).status[0]
    call(f"slurm_{version}_delete_job", job)
    assert call(f"slurm_{version}_get_job", job).jobs[0].job_state == ["CANCELLED"]

values = {"job_id": job, "node_name": "n1", "partition_name": "debug", "reservation_name": "r", "qos": "normal",
          "name": "root", "account_name": "root", "cluster_name": "squall", "id": "1", "wckey": "w"}
called = 0
for name, module in modules.items():
    if "_get_" in name and not name.endswith(("wckey", "get_reconfigure", "get_job_requeue", "get_resources")):
        wanted = [p.name for p in inspect.signature(module.sync).parameters.values()
                  if p.default is p.empty and p.name != "client"]
        answer = module.sync(**{p: values[p.rstrip("_")] for p in wanted}, client=client)
        assert not answer.errors or name.endswith("get_reservation"), (name, answer.errors)
        called += 1
print(len(versions), called)
