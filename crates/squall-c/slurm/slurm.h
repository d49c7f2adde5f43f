/*
 * For plugins of SPANK that include it: <slurm/spank.h>, and Slurm's numbers that have no value. There are no functions of
 * libslurm here: a plugin asks for jobs by commands or REST.
 */
#ifndef SLURM_H
#define SLURM_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include <slurm/spank.h>

/* The release of which plugins have the interface. */
#define SLURM_VERSION_NUM(major, minor, micro) (((major) << 16) + ((minor) << 8) + (micro))
#define SLURM_VERSION_NUMBER SLURM_VERSION_NUM(24, 5, 8)
#define SLURM_VERSION_MAJOR(number) (((number) >> 16) & 0xff)
#define SLURM_VERSION_MINOR(number) (((number) >> 8) & 0xff)
#define SLURM_VERSION_MICRO(number) ((number) & 0xff)

/* Without limit, and not set. */
#define INFINITE8 (0xff)
#define INFINITE16 (0xffff)
#define INFINITE (0xffffffff)
#define INFINITE64 (0xffffffffffffffff)
#define NO_VAL8 (0xfe)
#define NO_VAL16 (0xfffe)
#define NO_VAL (0xfffffffe)
#define NO_VAL64 (0xfffffffffffffffe)

/* Highest number of a step of srun; others, as S_JOB_STEPID has them. */
#define SLURM_MAX_NORMAL_STEP_ID (0xfffffff0)
#define SLURM_PENDING_STEP (0xfffffffd)
#define SLURM_EXTERN_CONT (0xfffffffc)
#define SLURM_BATCH_SCRIPT (0xfffffffb)
#define SLURM_INTERACTIVE_STEP (0xfffffffa)

#endif
