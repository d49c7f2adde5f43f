/* For plugins of SPANK that include it, although they need <slurm/spank.h> alone. */
#include <slurm/spank.h>
