/*
 * SPANK for Squall: what a plugin includes as <slurm/spank.h>. Plugins built with it have the interface and the numbers of
 * plugins built for Slurm 24.05, so that a plugin needs no change, and one that is built already no new build.
 *
 *   #include <slurm/spank.h>
 *   SPANK_PLUGIN(hello, 1)
 *   int slurm_spank_task_init(spank_t spank, int argc, char **argv) { slurm_spank_log("hello"); return ESPANK_SUCCESS; }
 *
 *   cc -shared -fPIC -I/usr/include/squall -o hello.so hello.c
 */
#ifndef SPANK_H
#define SPANK_H

#include <inttypes.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLURM_SUCCESS 0
#define SLURM_ERROR (-1)
#define ESPANK_SUCCESS 0

/* What functions return that fail. */
typedef enum {
    ESPANK_ERROR = 3000,    /* another reason */
    ESPANK_BAD_ARG,         /* an argument is invalid */
    ESPANK_NOT_TASK,        /* the hook is not about a task */
    ESPANK_ENV_EXISTS,      /* the variable exists, and is not to be overwritten */
    ESPANK_ENV_NOEXIST,     /* there is no such variable */
    ESPANK_NOSPACE,         /* the buffer is too small */
    ESPANK_NOT_REMOTE,      /* only beside a step */
    ESPANK_NOEXIST,         /* there is no such task or process on this node */
    ESPANK_NOT_EXECD,       /* no task runs yet */
    ESPANK_NOT_AVAIL,       /* not available in this hook */
    ESPANK_NOT_LOCAL,       /* only beside srun, sbatch and salloc */
    ESPANK_NODE_FAILURE,    /* a hook that returns it blames the node */
    ESPANK_JOB_FAILURE      /* a hook that returns it blames the job */
} slurm_err_t;
typedef slurm_err_t spank_err_t;

/* Handle of the job or step, which hooks get and functions take. */
typedef struct spank_handle *spank_t;

/* A hook. Its arguments are those of the plugin's line in plugstack.conf. It fails with a number below 0; a required
 * plugin with any other than 0. */
typedef int(spank_f)(spank_t spank, int argc, char **argv);

/* The hooks, in the order in which they are called. A plugin has those that it wants. */
extern spank_f slurm_spank_slurmd_init;          /* beside the node daemon, after slurm_spank_init: of old plugins */
extern spank_f slurm_spank_job_prolog;           /* on each node, before a job */
extern spank_f slurm_spank_init;                 /* loaded: the place to register options */
extern spank_f slurm_spank_init_post_opt;        /* options were handed over */
extern spank_f slurm_spank_local_user_init;      /* srun has its job */
extern spank_f slurm_spank_user_init;            /* beside a step, as the user */
extern spank_f slurm_spank_task_init_privileged; /* in each task, as root */
extern spank_f slurm_spank_task_init;            /* in each task, as the user, before its program */
extern spank_f slurm_spank_task_post_fork;       /* beside a step, for each task */
extern spank_f slurm_spank_task_exit;            /* beside a step, for each task that has ended */
extern spank_f slurm_spank_exit;                 /* at the end */
extern spank_f slurm_spank_job_epilog;           /* on each node, after a job */
extern spank_f slurm_spank_slurmd_exit;          /* beside the node daemon, when it has ended */

/* What spank_get_item tells, and the types of its further arguments. */
typedef enum spank_item {
    S_JOB_UID = 0,                /* uid_t * */
    S_JOB_GID = 1,                /* gid_t * */
    S_JOB_ID = 2,                 /* uint32_t * */
    S_JOB_STEPID = 3,             /* uint32_t * */
    S_JOB_NNODES = 4,             /* uint32_t * */
    S_JOB_NODEID = 5,             /* uint32_t * */
    S_JOB_LOCAL_TASK_COUNT = 6,   /* uint32_t * */
    S_JOB_TOTAL_TASK_COUNT = 7,   /* uint32_t * */
    S_JOB_NCPUS = 8,              /* uint16_t * */
    S_JOB_ARGV = 9,               /* int *, char *** */
    S_JOB_ENV = 10,               /* char *** */
    S_TASK_ID = 11,               /* int * */
    S_TASK_GLOBAL_ID = 12,        /* uint32_t * */
    S_TASK_EXIT_STATUS = 13,      /* int * */
    S_TASK_PID = 14,              /* pid_t * */
    S_JOB_PID_TO_GLOBAL_ID = 15,  /* pid_t, uint32_t * */
    S_JOB_PID_TO_LOCAL_ID = 16,   /* pid_t, uint32_t * */
    S_JOB_LOCAL_TO_GLOBAL_ID = 17, /* uint32_t, uint32_t * */
    S_JOB_GLOBAL_TO_LOCAL_ID = 18, /* uint32_t, uint32_t * */
    S_JOB_SUPPLEMENTARY_GIDS = 19, /* gid_t **, int * */
    S_SLURM_VERSION = 20,         /* char ** */
    S_SLURM_VERSION_MAJOR = 21,   /* char ** */
    S_SLURM_VERSION_MINOR = 22,   /* char ** */
    S_SLURM_VERSION_MICRO = 23,   /* char ** */
    S_STEP_CPUS_PER_TASK = 24,    /* uint32_t * */
    S_JOB_ALLOC_CORES = 25,       /* char ** */
    S_JOB_ALLOC_MEM = 26,         /* uint64_t *, MiB */
    S_STEP_ALLOC_CORES = 27,      /* char ** */
    S_STEP_ALLOC_MEM = 28,        /* uint64_t *, MiB */
    S_SLURM_RESTART_COUNT = 29,   /* uint32_t * */
    S_JOB_ARRAY_ID = 30,          /* uint32_t *, 0: no array */
    S_JOB_ARRAY_TASK_ID = 31      /* uint32_t * */
} spank_item_t;

/* Where a plugin is loaded. */
typedef enum spank_context {
    S_CTX_ERROR = 0,
    S_CTX_LOCAL = 1,      /* beside srun */
    S_CTX_REMOTE = 2,     /* beside a step */
    S_CTX_ALLOCATOR = 3,  /* beside sbatch or salloc */
    S_CTX_SLURMD = 4,     /* beside the node daemon */
    S_CTX_JOB_SCRIPT = 5  /* around a job */
} spank_context_t;
#define HAVE_S_CTX_SLURMD 1
#define HAVE_S_CTX_JOB_SCRIPT 1

/* Gets the value of an option. `remote`: 1 beside a step. It refuses the value with a number other than 0. */
typedef int (*spank_opt_cb_f)(int val, const char *optarg, int remote);

/* An option of sbatch, srun and salloc. */
struct spank_option {
    char *name;         /* long name, without dashes */
    char *arginfo;      /* name of the value in --help */
    char *usage;        /* text in --help */
    int has_arg;        /* 0: no value; 1: a value; 2: perhaps one */
    int val;            /* is handed to the function */
    spank_opt_cb_f cb;  /* may be NULL */
};

/* Options may also stand in an array of this name, which ends with SPANK_OPTIONS_TABLE_END. */
extern struct spank_option spank_options[];
#define SPANK_OPTIONS_TABLE_END {NULL, NULL, NULL, 0, 0, NULL}
#define SPANK_OPTION_MAXLEN 75

const char *spank_strerror(spank_err_t error);
int spank_symbol_supported(const char *symbol);
int spank_remote(spank_t spank);
spank_context_t spank_context(void);
spank_err_t spank_option_register(spank_t spank, struct spank_option *option);
spank_err_t spank_option_getopt(spank_t spank, struct spank_option *option, char **optarg);
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...);
spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int length);
spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_unsetenv(spank_t spank, const char *name);
spank_err_t spank_job_control_getenv(spank_t spank, const char *name, char *buffer, int length);
spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_job_control_unsetenv(spank_t spank, const char *name);
spank_err_t spank_prepend_task_argv(spank_t spank, int argc, const char **argv);

/* Texts: slurm_error and slurm_spank_log go to the user, the others to the log. */
#if defined(__GNUC__)
#define SPANK_LIKE_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define SPANK_LIKE_PRINTF
#endif
void slurm_error(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_spank_log(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_info(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_verbose(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_debug(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_debug2(const char *format, ...) SPANK_LIKE_PRINTF;
void slurm_debug3(const char *format, ...) SPANK_LIKE_PRINTF;

/* Each plugin has this line once. */
#define SPANK_PLUGIN(name, version)           \
    const char plugin_name[] = #name;         \
    const char plugin_type[] = "spank";       \
    const unsigned int plugin_version = (version);

#ifdef __cplusplus
}
#endif

#endif
