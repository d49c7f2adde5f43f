/* A plugin of SPANK that notes which hooks are called, and fails, crashes or hangs in one where its arguments say so. */
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(probe, 1);

static char notes[4096];

static int greeted(int val, const char *optarg, int remote)
{
    FILE *file = fopen(notes, "a");
    if (file) {
        fprintf(file, "option %d %s remote=%d\n", val, optarg ? optarg : "-", remote);
        fclose(file);
    }
    return optarg && strcmp(optarg, "nobody") == 0;
}

static struct spank_option greet = {"greet", "name", "whom to greet", 1, 7, greeted};
struct spank_option spank_options[] = {{"probe-flag", NULL, "a flag", 0, 8, greeted}, SPANK_OPTIONS_TABLE_END};

static void note(const char *hook, const char *more)
{
    FILE *file = fopen(notes, "a");
    if (file) {
        fprintf(file, "%s %s\n", hook, more);
        fclose(file);
    }
}

/* What all hooks do. */
static int act(spank_t spank, const char *hook, int argc, char **argv, const char *more)
{
    const char *deed = "";
    char line[512];
    for (int at = 0; at < argc; at++) {
        const char *value = strchr(argv[at], '=');
        if (strncmp(argv[at], "notes=", 6) == 0)
            snprintf(notes, sizeof notes, "%s", value + 1);
        else if (value && strcmp(value + 1, hook) == 0)
            deed = argv[at];
    }
    snprintf(line, sizeof line, "context=%d remote=%d uid=%d %s", (int)spank_context(), spank_remote(spank),
             (int)geteuid(), more);
    note(hook, line);
    if (strncmp(deed, "crash", 5) == 0)
        abort();
    if (strncmp(deed, "hang", 4) == 0)
        for (;;)
            pause();
    return strncmp(deed, "fail", 4) == 0 ? -3 : 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    int result = act(spank, "init", argc, argv, "");
    if (spank_option_register(spank, &greet) != ESPANK_SUCCESS)
        note("init", "the option is not taken");
    return result;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    if (spank_context() != S_CTX_REMOTE) {
        char value[16] = "";
        setenv("PROBE_COMMAND", "from the command", 1);
        spank_job_control_setenv(spank, "A", "control", 1);
        spank_job_control_setenv(spank, "B", "never seen", 1);
        spank_job_control_unsetenv(spank, "B");
        spank_job_control_setenv(spank, "C", "two words", 1);
        if (spank_job_control_setenv(spank, "A", "other", 0) != ESPANK_ENV_EXISTS ||
            spank_job_control_setenv(spank, "D=E", "x", 1) != ESPANK_BAD_ARG)
            note("init_post_opt", "the control environment takes what it must not");
        if (spank_job_control_getenv(spank, "A", value, sizeof value) != ESPANK_SUCCESS || strcmp(value, "control"))
            note("init_post_opt", "the control environment forgets");
        if (spank_setenv(spank, "A", "1", 1) != ESPANK_NOT_REMOTE)
            note("init_post_opt", "the job's environment is taken here");
    }
    return act(spank, "init_post_opt", argc, argv, "");
}

int slurm_spank_local_user_init(spank_t spank, int argc, char **argv)
{
    uint32_t job = 0;
    spank_get_item(spank, S_JOB_ID, &job);
    return act(spank, "local_user_init", argc, argv, job ? "job" : "no job");
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
    spank_setenv(spank, "PROBE_STEP", "step", 1);
    spank_unsetenv(spank, "PROBE_GONE");
    slurm_info("for the log: %d", 5);
    return act(spank, "user_init", argc, argv, "");
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    return act(spank, "task_init_privileged", argc, argv, "");
}

static void items(spank_t spank)
{
    uint32_t job = 0, step = 0, nodes = 0, tasks = 0, here = 0, rank = 99, of_local = 99, local = 99, per_task = 0;
    uint64_t memory = 0;
    uint16_t cpus = 0;
    uid_t uid = 99;
    gid_t *groups = NULL;
    int task = -1, argc = 0, count = -1, status = 0;
    char **argv = NULL, **env = NULL, *version = NULL, *cores = NULL, line[512];
    pid_t pid = 0;
    spank_get_item(spank, S_JOB_ID, &job);
    spank_get_item(spank, S_JOB_STEPID, &step);
    spank_get_item(spank, S_JOB_UID, &uid);
    spank_get_item(spank, S_JOB_NNODES, &nodes);
    spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks);
    spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &here);
    spank_get_item(spank, S_JOB_NCPUS, &cpus);
    spank_get_item(spank, S_STEP_CPUS_PER_TASK, &per_task);
    spank_get_item(spank, S_JOB_ALLOC_MEM, &memory);
    spank_get_item(spank, S_STEP_ALLOC_CORES, &cores);
    spank_get_item(spank, S_TASK_ID, &task);
    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank);
    spank_get_item(spank, S_TASK_PID, &pid);
    spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, (uint32_t)task, &of_local);
    spank_get_item(spank, S_JOB_GLOBAL_TO_LOCAL_ID, rank, &local);
    spank_get_item(spank, S_JOB_ARGV, &argc, &argv);
    spank_get_item(spank, S_JOB_ENV, &env);
    spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count);
    spank_get_item(spank, S_SLURM_VERSION, &version);
    snprintf(line, sizeof line,
             "step=%u nodes=%u tasks=%u here=%u rank=%u maps=%d argv=%d:%s version=%s self=%d env=%d groups=%d cpus=%d "
             "cores=%d status=%d",
             step, nodes, tasks, here, rank, (int)of_local == (int)rank && (int)local == task, argc,
             argc ? argv[0] : "-", version, pid == getpid(), env && env[0], count >= 0, cpus > 0 && per_task > 0,
             cores && cores[0], spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_NOT_AVAIL);
    note("items", line);
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    char value[64] = "", small[2], *name = NULL, line[256];
    spank_getenv(spank, "SLURM_PROCID", value, sizeof value);
    spank_setenv(spank, "PROBE_TASK", value, 1);
    int given = spank_option_getopt(spank, &greet, &name);
    snprintf(line, sizeof line, "exists=%d none=%d small=%d bad=%d getopt=%d:%s supported=%d%d error=%d",
             spank_setenv(spank, "PROBE_TASK", "x", 0) == ESPANK_ENV_EXISTS,
             spank_getenv(spank, "NO_SUCH_VARIABLE", value, sizeof value) == ESPANK_ENV_NOEXIST,
             spank_getenv(spank, "PATH", small, sizeof small) == ESPANK_NOSPACE,
             spank_getenv(NULL, "PATH", value, sizeof value) == ESPANK_BAD_ARG,
             given, name ? name : "-",
             spank_symbol_supported("slurm_spank_task_exit"), spank_symbol_supported("slurm_spank_tea"),
             spank_strerror(ESPANK_NOSPACE)[0] != 0);
    note("functions", line);
    items(spank);
    slurm_spank_log("hello from task_init");
    if (getenv("PROBE_ENV"))
        note("task_init", "it has the environment of the daemon");
    spank_getenv(spank, "PROBE_BEFORE", value, sizeof value);
    if (strcmp(value, "yes") == 0) {
        const char *before[] = {"env", "PROBE_PREPENDED=1"};
        spank_prepend_task_argv(spank, 2, before);
    }
    return act(spank, "task_init", argc, argv, "");
}

int slurm_spank_task_post_fork(spank_t spank, int argc, char **argv)
{
    uint32_t rank = 99, by_pid = 98;
    pid_t pid = 0;
    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank);
    spank_get_item(spank, S_TASK_PID, &pid);
    spank_get_item(spank, S_JOB_PID_TO_GLOBAL_ID, pid, &by_pid);
    return act(spank, "task_post_fork", argc, argv, rank == by_pid ? "same" : "other");
}

int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    int status = -1;
    char line[64];
    spank_get_item(spank, S_TASK_EXIT_STATUS, &status);
    snprintf(line, sizeof line, "status=%d", status);
    return act(spank, "task_exit", argc, argv, line);
}

/* Around a job: what the hook can ask for, and what it finds in its environment. */
static int around(spank_t spank, const char *hook, int argc, char **argv)
{
    uint32_t job = 0, step = 0;
    uid_t uid = 99;
    gid_t gid = 99;
    char line[512], value[8], *name = NULL;
    const char *a = getenv("SPANK_A"), *b = getenv("SPANK_B"), *c = getenv("SPANK_C"), *code = getenv("SLURM_JOB_EXIT_CODE");
    spank_get_item(spank, S_JOB_ID, &job);
    spank_get_item(spank, S_JOB_UID, &uid);
    spank_get_item(spank, S_JOB_GID, &gid);
    int given = spank_option_getopt(spank, &greet, &name);
    snprintf(line, sizeof line, "job=%d owner=%d:%d step=%d env=%d control=%d SPANK_A=%s SPANK_B=%s SPANK_C=%s getopt=%d:%s code=%s",
             job > 0, (int)uid, (int)gid, spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_NOT_AVAIL,
             spank_getenv(spank, "PATH", value, sizeof value) == ESPANK_NOT_REMOTE,
             spank_job_control_setenv(spank, "X", "y", 1) == ESPANK_NOT_AVAIL, a ? a : "-", b ? b : "-", c ? c : "-",
             given, name ? name : "-", code ? code : "-");
    return act(spank, hook, argc, argv, line);
}

int slurm_spank_job_prolog(spank_t spank, int argc, char **argv)
{
    return around(spank, "job_prolog", argc, argv);
}

int slurm_spank_job_epilog(spank_t spank, int argc, char **argv)
{
    return around(spank, "job_epilog", argc, argv);
}

static pid_t beside;

int slurm_spank_slurmd_init(spank_t spank, int argc, char **argv)
{
    uint32_t job;
    char *version = NULL, line[64];
    beside = getpid();
    spank_get_item(spank, S_SLURM_VERSION_MAJOR, &version);
    snprintf(line, sizeof line, "item=%d major=%s node=%s", spank_get_item(spank, S_JOB_ID, &job) == ESPANK_NOT_AVAIL,
             version ? version : "-", getenv("SLURMD_NODENAME"));
    return act(spank, "slurmd_init", argc, argv, line);
}

int slurm_spank_slurmd_exit(spank_t spank, int argc, char **argv)
{
    return act(spank, "slurmd_exit", argc, argv, beside == getpid() ? "same process" : "another process");
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    return act(spank, "exit", argc, argv, "");
}
