/* What a program asks of its resource manager: what is known of the step, words for the user, further processes (refused),
   and, with an argument, the end of the step at the last rank's wish. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(const char *what, pmix_status_t status) {
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
        fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
        exit(1);
    }
}

int main(int argc, char **argv) {
    pmix_proc_t me, all;
    pmix_value_t *found;
    pmix_info_t info, *results;
    pmix_query_t *query;
    pmix_status_t status;
    size_t count;
    must("init", PMIx_Init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    must("size", PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &found));
    uint32_t last = found->data.uint32 - 1;
    must("fence", PMIx_Fence(&all, 1, NULL, 0));
    if (argc > 1) {
        if (me.rank == last) {
            PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_KILL, NULL, PMIX_BOOL);
            must("control", PMIx_Job_control(&all, 1, &info, 1, &results, &count));
        }
        pause();
    }

    PMIX_QUERY_CREATE(query, 1);
    PMIX_ARGV_APPEND(status, query->keys, PMIX_QUERY_NAMESPACES);
    PMIX_ARGV_APPEND(status, query->keys, PMIX_QUERY_LOCAL_PROC_TABLE);
    must("query", PMIx_Query_info(query, 1, &results, &count));
    int own = 0;
    for (size_t at = 0; at < count; at++) {
        if (PMIX_CHECK_KEY(&results[at], PMIX_QUERY_NAMESPACES)) own += !strcmp(results[at].value.data.string, me.nspace);
        if (PMIX_CHECK_KEY(&results[at], PMIX_QUERY_LOCAL_PROC_TABLE)) {
            pmix_data_array_t *table = results[at].value.data.darray;
            pmix_proc_info_t *row = table->array;
            for (size_t of = 0; of < table->size; of++) own += row[of].proc.rank == me.rank && row[of].pid == getpid();
        }
    }
    PMIX_QUERY_CREATE(query, 1);
    PMIX_ARGV_APPEND(status, query->keys, "pmix.qry.nobody.knows");
    pmix_status_t unknown = PMIx_Query_info(query, 1, &results, &count);

    char text[64];
    snprintf(text, sizeof text, "word of %u\n", me.rank);
    PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, text, PMIX_STRING);
    must("log", PMIx_Log(&info, 1, NULL, 0));

    pmix_status_t spawned = PMIX_SUCCESS;
    if (me.rank == 0) {
        pmix_app_t *app;
        char nspace[PMIX_MAX_NSLEN + 1];
        PMIX_APP_CREATE(app, 1);
        app->cmd = strdup("hostname");
        app->maxprocs = 1;
        spawned = PMIx_Spawn(NULL, 0, app, 1, nspace);
    }
    printf("%u own %d unknown %s spawn %s\n", me.rank, own, PMIx_Error_string(unknown), PMIx_Error_string(spawned));
    must("fence", PMIx_Fence(&all, 1, NULL, 0));
    must("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
