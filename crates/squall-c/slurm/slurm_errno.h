/* Numbers of errors for plugins of SPANK, which are in <slurm/spank.h>. */
#include <errno.h>

#include <slurm/spank.h>
