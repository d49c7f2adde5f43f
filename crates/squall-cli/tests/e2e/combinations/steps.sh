#!/bin/sh
# What the steps of a job got: a file of options a line; the answer to each is the status of srun and, for each node, how
# many tasks there were and how many GPUs they saw.
number=0
while read -r options; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    timeout 30 srun $options sh -c 'echo "$SLURM_NODEID $CUDA_VISIBLE_DEVICES"' \
        >"$ANSWERS/$SLURM_JOB_NAME.out" 2>"$ANSWERS/$SLURM_JOB_NAME.err" </dev/null
    status=$?
    {
        if [ $status = 0 ]; then
            sort "$ANSWERS/$SLURM_JOB_NAME.out" | awk '
                { tasks[$1]++; seen[$1] = $2 == "" ? 0 : split($2, devices, ","); if ($1 > last) last = $1 }
                END { for (n = 0; n <= last; n++) printf "%s%d:%d", n ? " " : "", tasks[n], seen[n]; print "" }'
        else
            printf 'refused %s: ' $status
            sed -n 's/^srun: error: //p' "$ANSWERS/$SLURM_JOB_NAME.err" | sed 's/for job [0-9]*/for job JOB/' | tail -1
        fi
    } >"$ANSWERS/$SLURM_JOB_NAME.$number"
done <"$STEPS/$SLURM_JOB_NAME"
echo done >"$ANSWERS/$SLURM_JOB_NAME"
