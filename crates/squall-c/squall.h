/* libsquallclient: submits jobs to Squall, cancels them, queries them and waits for them, without a process for each.
 *
 * One connection serves one thread at a time. If the controller is away for a moment, a call waits, repeats what was
 * not acknowledged, and every job is accepted once. Functions that return int return 0, or -1 and set the text that
 * squall_error() returns. Strings are UTF-8 and end with NUL.
 *
 * Link with -lsquallclient (or libsquallclient.a -lm -lpthread -ldl).
 */
#ifndef SQUALL_H
#define SQUALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection to a cluster's controller. */
typedef struct squall squall;

/* A batch job. Begin with SQUALL_JOB, as in `squall_job job = {SQUALL_JOB, .script = "#!/bin/sh\n..."}`: it sets `size`
 * and all else to zero, which means the default in every field but `script`. Later versions of this header may add
 * fields at the end; programs that were compiled with this one continue to work. */
#define SQUALL_JOB .size = sizeof(squall_job)
typedef struct squall_job {
    size_t size;              /* of this struct, bytes, the same in all jobs of a call; 0: that of its first version,
                                 for a call with one job */
    const char *script;       /* its text, from "#!" on */
    const char *name;         /* default: "job" */
    const char *work_dir;     /* default: this process's */
    const char *output;       /* default: slurm-%j.out in work_dir */
    const char *partition;
    const char *account;
    const char *const *env;   /* "KEY=VALUE" entries, then NULL; default: this process's */
    const char *const *args;  /* arguments of the script, then NULL */
    uint32_t nodes;
    uint32_t tasks;
    uint32_t cpus_per_task;
    uint32_t hold;            /* not 0: the job waits until it is released */
    uint64_t memory_mb;       /* on each node, MiB */
    uint64_t time_limit_s;
    const char *dependency;   /* as of sbatch --dependency: "afterok:12:13" */
    const char *array;        /* "0-99%8": ids[i] is the array's id, by which squall_wait waits for all tasks */
    const char *gpus;         /* of the job: "2", "a100:2" */
    const char *qos;
    const char *constraint;   /* features: "amd&nvme" */
    const char *begin;        /* "now+1hour", "2027-01-01T08:00" */
    const char *const *options; /* further options of sbatch, such as "--exclusive", then NULL */
} squall_job;

/* State of a job, or how it ended. */
enum squall_state {
    SQUALL_UNKNOWN = 0,       /* no such job, or it ended long ago */
    SQUALL_PENDING = 1,
    SQUALL_RUNNING = 2,
    SQUALL_SUSPENDED = 3,
    SQUALL_COMPLETING = 4,
    SQUALL_COMPLETED = 16,    /* this and all larger values: the job has ended */
    SQUALL_FAILED = 17,
    SQUALL_CANCELLED = 18,
    SQUALL_TIMEOUT = 19,
    SQUALL_NODE_FAIL = 20,
    SQUALL_OUT_OF_MEMORY = 21,
    SQUALL_PREEMPTED = 22,
    SQUALL_DEADLINE = 23,
    SQUALL_BOOT_FAIL = 24,
    SQUALL_REQUEUED = 25
};

/* How a job ended. */
typedef struct squall_end {
    uint32_t state;           /* enum squall_state */
    uint32_t code;            /* the script's exit code */
    uint32_t signal;          /* the signal that ended it, or 0 */
} squall_end;

/* Connects to the cluster with the state folder `state`; NULL: to the one that commands use. Returns NULL if it
 * fails. */
squall *squall_open(const char *state);

/* Ends a connection. Jobs are not affected. NULL is allowed. */
void squall_close(squall *squall);

/* Submits `count` jobs. On return ids[i] is the id of jobs[i], which is durable. 0: not accepted (only if it returns
 * -1). */
int squall_submit(squall *squall, const squall_job *jobs, size_t count, uint32_t *ids);

/* Cancels jobs. Jobs that have ended already are left alone. */
int squall_cancel(squall *squall, const uint32_t *ids, size_t count);

/* Sets states[i] to the state of ids[i] (enum squall_state). */
int squall_states(squall *squall, const uint32_t *ids, size_t count, uint32_t *states);

/* Waits until all jobs have ended, and sets ends[i] to how ids[i] did. */
int squall_wait(squall *squall, const uint32_t *ids, size_t count, squall_end *ends);

/* Returns why this thread's last failed call failed. Valid until its next call. */
const char *squall_error(void);

#ifdef __cplusplus
}
#endif

#endif
