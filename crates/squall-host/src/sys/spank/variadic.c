/*
 * The functions of SPANK with any number of arguments, for plugins: they read these and call Rust, which does the work.
 * The numbers of items are those of slurm/spank.h.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

int squall_spank_item(const void *spank, int item, uint32_t number, void *first, void *second);
void squall_spank_say(int level, const char *text);

/* Longest message, bytes; the rest is cut off. */
enum { MESSAGE = 4096 };

enum item { JOB_ARGV = 9, PID_TO_RANK = 15, PID_TO_TASK, TASK_TO_RANK, RANK_TO_TASK, SUPPLEMENTARY_GIDS };

int spank_get_item(void *spank, int item, ...)
{
    uint32_t number = 0;
    void *first, *second = NULL;
    va_list values;
    va_start(values, item);
    if (item >= PID_TO_RANK && item <= RANK_TO_TASK)
        number = va_arg(values, uint32_t);
    first = va_arg(values, void *);
    if (item == JOB_ARGV || item == SUPPLEMENTARY_GIDS)
        second = va_arg(values, void *);
    va_end(values);
    return squall_spank_item(spank, item, number, first, second);
}

static void say(int level, const char *format, va_list values)
{
    char text[MESSAGE];
    vsnprintf(text, sizeof text, format, values);
    squall_spank_say(level, text);
}

#define SAYS(name, level)             \
    void name(const char *format, ...) \
    {                                  \
        va_list values;                \
        va_start(values, format);      \
        say(level, format, values);    \
        va_end(values);                \
    }

SAYS(slurm_error, 0)
SAYS(slurm_spank_log, 1)
SAYS(slurm_info, 2)
SAYS(slurm_verbose, 3)
SAYS(slurm_debug, 4)
SAYS(slurm_debug2, 5)
SAYS(slurm_debug3, 6)
