/* What MPI libraries use of PMIx seldom or never: direct modex, published names, groups. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(const char *what, pmix_status_t status) {
    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
        exit(1);
    }
}

int main(void) {
    pmix_proc_t me, other;
    pmix_value_t value, *found;
    pmix_info_t info;
    pmix_pdata_t wanted;
    must("init", PMIx_Init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&other, me.nspace, PMIX_RANK_WILDCARD);
    must("size", PMIx_Get(&other, PMIX_JOB_SIZE, NULL, 0, &found));
    uint32_t size = found->data.uint32;

    value.type = PMIX_UINT32;
    value.data.uint32 = 100 + me.rank;
    must("put", PMIx_Put(PMIX_GLOBAL, "card", &value));
    must("commit", PMIx_Commit());
    other.rank = (me.rank + 1) % size;
    must("get", PMIx_Get(&other, "card", NULL, 0, &found));
    uint32_t card = found->data.uint32;

    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, "port", "here;there", PMIX_STRING);
        must("publish", PMIx_Publish(&info, 1));
    }
    memset(&wanted, 0, sizeof wanted);
    strcpy(wanted.key, "port");
    int all = 0;
    PMIX_INFO_LOAD(&info, PMIX_WAIT, &all, PMIX_INT);
    must("lookup", PMIx_Lookup(&wanted, 1, &info, 1));

    pmix_info_t *results;
    size_t count;
    other.rank = PMIX_RANK_WILDCARD;
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, NULL, PMIX_BOOL);
    must("group", PMIx_Group_construct("us", &other, 1, &info, 1, &results, &count));
    must("ungroup", PMIx_Group_destruct("us", NULL, 0));
    printf("%u: card %u port %s of %u\n", me.rank, card, wanted.value.data.string, wanted.proc.rank);
    must("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
