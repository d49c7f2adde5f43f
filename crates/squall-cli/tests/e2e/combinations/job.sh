#!/bin/sh
# What a job got, in one line: nodes, SLURM_NTASKS, SLURM_TASKS_PER_NODE, SLURM_JOB_CPUS_PER_NODE, GPUs of each node.
gpus=$(scontrol -d show job "$SLURM_JOB_ID" | awk '
    / CPU_IDs=/ {
        match($0, /Nodes=[^ ]*/); names = substr($0, RSTART + 6, RLENGTH - 6)
        has = match($0, /gpu:[a-z0-9:]*[0-9]+\(/) ? substr($0, RSTART, RLENGTH - 1) : "0"
        sub(/.*:/, "", has)
        gsub(/[n\[\]]/, "", names)
        parts = split(names, part, ",")
        for (i = 1; i <= parts; i++) {
            split(part[i], ends, "-")
            for (n = ends[1]; n <= (ends[2] ? ends[2] : ends[1]); n++) list = list "," has
        }
    }
    END { print substr(list, 2) }')
case $gpus in *[1-9]*) ;; *) gpus= ;; esac
answer="nodes=$SLURM_JOB_NUM_NODES ntasks=$SLURM_NTASKS tasks=$SLURM_TASKS_PER_NODE cpus=$SLURM_JOB_CPUS_PER_NODE${gpus:+ gpus=$gpus}"
echo "$answer" >"$ANSWERS/$SLURM_JOB_NAME"
