-- GPUs: jobs that ask for them go to the GPU partition, with a feature by their type and at most 8 CPUs for each GPU.

local FEATURES = { a100 = "sxm", l40 = "pcie" }
local RENAMED = { gpu_old = "gpu" }
local CPUS_PER_GPU = 8

local function gpus(job_desc)
  local asked = job_desc.tres_per_node or job_desc.tres_per_job or job_desc.tres_per_task
  if asked == nil then return 0 end
  local kind, count = asked:match("gpu:(%a%w*):?(%d*)")
  if kind == nil then count = asked:match("gpu:(%d+)") end
  if count == nil and not asked:find("gpu", 1, true) then return 0 end
  return tonumber(count) or 1, kind
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  if job_desc.partition then
    local names = job_desc.partition:gsub("[^,]+", RENAMED)
    if names ~= job_desc.partition then
      slurm.log_user("partition %s is called %s now", job_desc.partition, names)
      job_desc.partition = names
    end
  end
  local count, kind = gpus(job_desc)
  if count == 0 then return slurm.SUCCESS end
  if job_desc.partition == nil and part_list.gpu then job_desc.partition = "gpu" end
  local feature = kind and FEATURES[kind]
  if feature and job_desc.features == nil then job_desc.features = feature end
  local cpus = job_desc.cpus_per_task
  if cpus ~= slurm.NO_VAL16 and cpus > CPUS_PER_GPU * count then
    slurm.log_user("A GPU comes with %d CPUs: ask for fewer CPUs, or for more GPUs", CPUS_PER_GPU)
    return slurm.ESLURM_INVALID_CPU_COUNT
  end
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end
