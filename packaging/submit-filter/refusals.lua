-- Refusals: jobs without an account or a time limit, `--mem=0` outside of whole nodes, long interactive jobs.

local INTERACTIVE_MINUTES = 8 * 60

function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.account == nil and job_desc.default_account == nil then
    slurm.log_user("Name the project that pays: --account=PROJECT")
    return slurm.ESLURM_INVALID_ACCOUNT
  end
  if job_desc.time_limit == slurm.NO_VAL then
    slurm.log_user("Say how long the job may run: --time=MINUTES")
    return slurm.ESLURM_MISSING_TIME_LIMIT
  end
  if job_desc.min_mem_per_node == 0 and job_desc.shared ~= 0 then
    slurm.log_user("--mem=0 asks for all of a node's memory: use it with --exclusive, or ask for what you need")
    return slurm.ESLURM_INVALID_TASK_MEMORY
  end
  -- Further components of a heterogeneous job have no script either.
  local first = job_desc.het_job_offset == slurm.NO_VAL or job_desc.het_job_offset == 0
  if first and job_desc.script == nil and job_desc.time_limit > INTERACTIVE_MINUTES then
    job_desc.time_limit = INTERACTIVE_MINUTES
    slurm.log_user("Interactive jobs run for %d hours at most: the time limit was shortened", INTERACTIVE_MINUTES / 60)
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
