/* The last rank tells all others of something; who hears it says so, with what belongs to it. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NEWS = PMIX_EXTERNAL_ERR_BASE - 7 };

static volatile int heard = -1, ready = 0;

static void must(const char *what, pmix_status_t status) {
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
        fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
        exit(1);
    }
}

static void listen_to(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                      pmix_info_t results[], size_t result_count, pmix_event_notification_cbfunc_fn_t done, void *data) {
    int value = 0;
    for (size_t at = 0; at < count; at++)
        if (!strcmp(info[at].key, "news")) value = info[at].value.data.integer;
    heard = source->rank * 1000 + value;
    if (done) done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void registered(pmix_status_t status, size_t id, void *data) { ready = 1; }

int main(void) {
    pmix_proc_t me, all;
    pmix_value_t *found;
    pmix_info_t info;
    pmix_status_t code = NEWS;
    int value = 42;
    must("init", PMIx_Init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    must("size", PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &found));
    uint32_t last = found->data.uint32 - 1;
    PMIx_Register_event_handler(&code, 1, NULL, 0, listen_to, registered, NULL);
    while (!ready) usleep(1000);
    must("fence", PMIx_Fence(&all, 1, NULL, 0));
    if (me.rank == last) {
        PMIX_INFO_LOAD(&info, "news", &value, PMIX_INT);
        must("notify", PMIx_Notify_event(NEWS, &me, PMIX_RANGE_NAMESPACE, &info, 1, NULL, NULL));
    } else {
        for (int turn = 0; heard < 0 && turn < 10000; turn++) usleep(1000);
        printf("%u heard %d\n", me.rank, heard);
    }
    must("fence", PMIx_Fence(&all, 1, NULL, 0));
    must("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
