/* A fence to which the rank of the first argument comes 200 ms late, with or without data (second argument, bytes).
   One line for each rank: when it came and when it left, in microseconds, and a digest of what all brought. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void must(const char *what, pmix_status_t status) {
    if (status != PMIX_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(status));
        exit(1);
    }
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    pmix_proc_t me, other;
    pmix_value_t value, *found;
    pmix_info_t info;
    int bytes = atoi(argv[2]), yes = 1;
    must("init", PMIx_Init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&other, me.nspace, PMIX_RANK_WILDCARD);
    must("size", PMIx_Get(&other, PMIX_JOB_SIZE, NULL, 0, &found));
    uint32_t size = found->data.uint32;
    char *card = calloc(1, bytes + 1);
    /* Letters that PMIx cannot make much shorter. */
    unsigned letter = me.rank + 1;
    for (int at = 0; at < bytes; at++) card[at] = 'a' + ((letter = letter * 1103515245 + 12345) >> 16) % 26;
    value.type = PMIX_STRING;
    value.data.string = card;
    must("put", PMIx_Put(PMIX_GLOBAL, "card", &value));
    must("commit", PMIx_Commit());
    if (me.rank == (uint32_t)atoi(argv[1])) usleep(200000);
    long long came = now();
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    must("fence", PMIx_Fence(&other, 1, &info, bytes > 0));
    long long left = now();
    unsigned long sum = 0;
    for (uint32_t rank = 0; rank < size; rank++) {
        other.rank = rank;
        must("get", PMIx_Get(&other, "card", NULL, 0, &found));
        for (char *at = found->data.string; *at; at++) sum = sum * 31 + *at;
    }
    printf("%u came %lld left %lld sum %lu\n", me.rank, came, left, sum);
    /* Who asks others directly needs them to be there. */
    other.rank = PMIX_RANK_WILDCARD;
    must("fence", PMIx_Fence(&other, 1, NULL, 0));
    must("finalize", PMIx_Finalize(NULL, 0));
    return 0;
}
