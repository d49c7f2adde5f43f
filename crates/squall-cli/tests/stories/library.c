/* What a C program does with libsquallclient: a thousand jobs, and everything that can be asked of them. */
#include <squall.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS 1000

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("not so: %s (%s)\n", what, squall_error());
        exit(1);
    }
}

int main(void)
{
    static squall_job jobs[JOBS];
    static uint32_t ids[JOBS], states[JOBS];
    static squall_end ends[JOBS];
    const char *args[] = {"3", NULL}, *env[] = {"PATH=/usr/bin:/bin", "WORD=spoken", NULL};

    check(squall_open("/nowhere/at/all") == NULL, "there is no cluster in a folder that is not there");
    check(strstr(squall_error(), "/nowhere/at/all") != NULL, "the error names the place");
    squall *squall = squall_open(NULL);
    check(squall != NULL, "SQUALL_STATE names the cluster");

    for (int i = 0; i < JOBS; i++)
        jobs[i] = (squall_job){SQUALL_JOB, .script = "#!/bin/true\n", .name = "many", .output = "/dev/null", .env = env};
    check(squall_submit(squall, jobs, JOBS, ids) == 0, "a thousand jobs are accepted");
    for (int i = 1; i < JOBS; i++)
        check(ids[i] > ids[i - 1], "each has an id of its own, in order");
    check(squall_wait(squall, ids, JOBS, ends) == 0, "they can be waited for");
    check(squall_states(squall, ids, JOBS, states) == 0, "they can be looked at");
    for (int i = 0; i < JOBS; i++) {
        check(ends[i].state == SQUALL_COMPLETED && ends[i].code == 0 && ends[i].signal == 0, "each ended well");
        check(states[i] == SQUALL_COMPLETED, "and is so known");
    }

    squall_job some[] = {
        {SQUALL_JOB, .script = "#!/bin/sh\necho $WORD; exit $1\n", .name = "tells", .output = "told", .env = env, .args = args},
        {SQUALL_JOB, .script = "#!/bin/sh\nsleep 1000\n", .hold = 1, .time_limit_s = 60, .tasks = 2, .memory_mb = 10},
    };
    some[0].size = some[1].size = 0;
    check(squall_submit(squall, some, 2, ids) == -1 && strstr(squall_error(), "SQUALL_JOB") != NULL, "several jobs have a size");
    some[0].size = some[1].size = sizeof some[0];
    check(squall_submit(squall, some, 2, ids) == 0, "others are accepted");
    check(squall_states(squall, ids + 1, 1, states) == 0 && states[0] == SQUALL_PENDING, "who is held waits");
    check(squall_cancel(squall, ids + 1, 1) == 0, "it can be ended");
    check(squall_wait(squall, ids, 2, ends) == 0, "both end");
    check(ends[0].state == SQUALL_FAILED && ends[0].code == 3, "the script's exit code is told");
    check(ends[1].state == SQUALL_CANCELLED, "and that it was cancelled");

    some[0].partition = "nosuch";
    check(squall_submit(squall, some, 2, ids) == -1, "a job for a partition that is not there is refused");
    check(ids[0] == 0 && ids[1] != 0, "the other one is accepted");
    check(strstr(squall_error(), "nosuch") != NULL, "the error names the partition");
    /* faults.md D11 */
    check(strstr(squall_error(), "Invalid partition name specified") == squall_error(), "in Slurm's words");
    check(squall_cancel(squall, ids + 1, 1) == 0, "it still can be ended");
    some[0].script = NULL;
    check(squall_submit(squall, some, 1, ids) == -1 && strstr(squall_error(), "no script") != NULL, "a script there must be");
    some[0].script = "echo no interpreter\n";
    check(squall_submit(squall, some, 1, ids) == -1 && strstr(squall_error(), "start with #!") != NULL, "a script names its interpreter");
    struct { squall_job job; size_t more; } newer[] = {{{.size = sizeof newer[0], .script = "#!/bin/true\n", .hold = 1}, 0}};
    check(squall_submit(squall, &newer[0].job, 1, ids) == 0, "a program of a newer header that asks for nothing new is served");
    check(squall_cancel(squall, ids, 1) == 0, "and its job ended");
    newer[0].more = 1;
    check(squall_submit(squall, &newer[0].job, 1, ids) == -1 && strstr(squall_error(), "older") != NULL, "what is not known is refused");
    ids[0] = 4000000000u;
    check(squall_states(squall, ids, 1, states) == 0 && states[0] == SQUALL_UNKNOWN, "a job that is not is not known");
    check(squall_wait(squall, ids, 1, ends) == -1, "and can't be waited for");
    squall_close(squall);
    squall_close(NULL);
    return 0;
}
