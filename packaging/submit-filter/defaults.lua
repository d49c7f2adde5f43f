-- Defaults: a partition by the job's length, a QOS by the partition, memory by the number of CPUs.

local QOS = { short = "fast", long = "steady" }
local MB_PER_CPU = 2000

local function number(value, none)
  if value == nil or value == slurm.NO_VAL or value == slurm.NO_VAL16 then return none end
  return value
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  local minutes = number(job_desc.time_limit, 60)
  if job_desc.time_limit == slurm.NO_VAL then job_desc.time_limit = minutes end
  if job_desc.partition == nil then
    local wanted = minutes <= 240 and "short" or "long"
    if part_list[wanted] then job_desc.partition = wanted end
  end
  if job_desc.qos == nil then
    local qos = QOS[job_desc.partition or ""]
    if qos then job_desc.qos = qos end
  end
  if job_desc.pn_min_memory == slurm.NO_VAL64 then
    job_desc.min_mem_per_cpu = MB_PER_CPU
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
